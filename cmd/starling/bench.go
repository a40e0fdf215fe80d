package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/lab"
	"github.com/starling-agg/starling/lab/chart"
)

func benchCommand() *command {
	return &command{
		name:  "bench",
		short: "Measure on this machine",
		sub:   []*command{benchEndToEnd(), benchReport()},
	}
}

func benchEndToEnd() *command {
	return &command{
		name: "e2e", args: "--vdaf count|histogram|pine32|... [--length N] [--seconds S] [--json]",
		short: "Measure leader and helper from upload to verified, as two processes",
		long: `The reports are made before the clock starts. It stops when both aggregators have verified all that was uploaded.
The client's work of uploading shares the machine with the two servers.`,
		examples: [][2]string{
			{"starling bench e2e --vdaf histogram --length 21 --seconds 10", "the lab's histogram"},
			{"starling bench e2e --vdaf count --seconds 30 --json", "the smallest reports, for a program"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			vdaf := flags.String("vdaf", "", "count, histogram, or the proof of a vector's norm as in bench report: `TYPE`")
			length := flags.Int("length", 0, "buckets of a histogram, entries of a vector: `N`")
			seconds := flags.Int("seconds", 10, "upload for `S` seconds, or until the reports run out")
			reports := flags.Int("reports", 0, "make `N` reports; 0 makes 8,000 for each second")
			workers := flags.Int("workers", 0, "upload over `N` connections; 0 takes one for each processor")
			return func(ctx context.Context, e *env, args []string) error {
				if err := noArgs("bench e2e", args); err != nil {
					return err
				}
				watch := newProgress(e)
				o := lab.BenchOptions{VDAF: *vdaf, Length: *length, Seconds: *seconds, Reports: *reports, Workers: *workers,
					Serve: func(role dap.Role, config string) (func() (int64, error), error) { return child(ctx, role, config) }, Progress: watch.show}
				if err := o.Validate(); err != nil {
					return usageOf("bench e2e", err)
				}
				r, err := lab.Bench(ctx, o)
				watch.end()
				if err != nil {
					return err
				}
				if *asJSON {
					return e.json(r)
				}
				n := func(x float64) string { return chart.Count(x) }
				fmt.Fprintf(e.stdout, "%s reports of %s bytes in %.2f s on %d processors\n", n(float64(r.Reports)), n(float64(r.BytesEach)), r.Seconds, r.CPUs)
				fmt.Fprintf(e.stdout, "%s reports a second, verified by both aggregators\n", n(r.ReportsPerSecond))
				fmt.Fprintf(e.stdout, "acknowledged in %.1f ms (median), %.1f ms (99 %%), for requests of %d reports\n", r.AckP50, r.AckP99, r.ReportsPerRequest)
				fmt.Fprintf(e.stdout, "peak memory %.0f MB: leader %.0f, helper %.0f\n", r.PeakRSS, r.LeaderPeakRSS, r.HelperPeakRSS)
				if r.Exhausted {
					fmt.Fprintf(e.stdout, "the reports ran out before the time did; --reports makes more\n")
				}
				return nil
			}
		},
	}
}

// child runs this binary as an aggregator, waits until it is ready, and returns what
// stops it and tells its peak memory.
func child(ctx context.Context, role dap.Role, config string) (stop func() (int64, error), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	loaded, err := deploy.LoadAggregator(config, role)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "serve", role.String(), config)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	stop = func() (int64, error) {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			cmd.Process.Kill()
		}
		if err := <-exited; err != nil {
			return 0, fmt.Errorf("the %v's process: %w", role, err)
		}
		return peakRSS(cmd.ProcessState), nil
	}
	client := localClient(loaded.Local.Address)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(loaded.Local.Address)+"/livez", nil)
		if err != nil {
			return nil, err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			return stop, nil
		}
		select {
		case err := <-exited:
			return nil, failf(exitFailed, "starling check "+config, "the %v did not start: %w", role, err)
		case <-ctx.Done():
			_, err := stop()
			return nil, errors.Join(ctx.Err(), err)
		case <-ticker.C:
		}
	}
}
