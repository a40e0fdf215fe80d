//go:build !lean

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/lab"
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
		name: "e2e", args: "--vdaf count|histogram|pine32|... [--length N] [--seconds S] [--reports N] [--rate R] [--replicas N] [--objects FILE] [--json]",
		short: "Measure leader and helper from upload to verified, as two processes",
		long: `Reports are made before the clock starts, as far as 512 MiB hold them; of more, the rest while others are uploaded. The clock
stops when both aggregators have verified all. The client's work shares the machine with the two servers. Then all is collected,
both stores are audited, and both servers started again. Bytes written are those that a server hands to its files, the database's
log included; the disk's are the pages that the system wrote for them, where it says so. With --engine postgres each has a server of PostgreSQL
of its own, which the benchmark starts: its processor time and its write-ahead log count as theirs. With --replicas each has several processes on its database, and figures are of
all together; what spreads connections over them is the benchmark's own, and not counted. With --rate reports come at that pace, and an
acknowledgement is timed from when its request was due. With --objects large uploads lie in object storage that runs already: FILE
has the section [database.objects] of a leader, with absolute paths.`,
		examples: [][2]string{
			{"starling bench e2e --vdaf histogram --length 21 --seconds 10", "the lab's histogram"},
			{"starling bench e2e --vdaf count --seconds 30 --json", "the smallest reports, for a program"},
			{"starling bench e2e --vdaf count --reports 200_000 --engine postgres", "the same, in PostgreSQL"},
			{"starling bench e2e --vdaf count --engine postgres --replicas 3 --rate 3000", "three processes of each, at a steady pace"},
			{"starling bench e2e --vdaf count --reports 10_000_000", "what many reports stored cost; an hour or so"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			vdaf := flags.String("vdaf", "", "count, histogram, or the proof of a vector's norm as in bench report: `TYPE`")
			length := flags.Int("length", 0, "buckets of a histogram, entries of a vector: `N`")
			seconds := flags.Int("seconds", 0, "upload for `S` seconds, or until the reports run out; 0 takes 10, or with --reports what these take")
			reports := flags.Int("reports", 0, "make `N` reports; 0 makes 8,000 for each second")
			workers := flags.Int("workers", 0, "upload over `N` connections; 0 takes one for each processor or replica, with --rate 64")
			rate := flags.Int("rate", 0, "upload `R` reports a second; 0 is as fast as they are acknowledged")
			replicas := flags.Int("replicas", 1, "start `N` processes of each aggregator, with --engine postgres")
			engine := flags.String("engine", string(lab.Embedded), "where the servers keep all, embedded or postgres: `ENGINE`")
			objects := flags.String("objects", "", "keep large uploads in the object storage of `FILE`, with --engine postgres")
			return func(ctx context.Context, e *env, args []string) error {
				if err := noArgs("bench e2e", args); err != nil {
					return err
				}
				watch := newProgress(e)
				o := lab.BenchOptions{VDAF: *vdaf, Length: *length, Seconds: *seconds, Reports: *reports, Workers: *workers, Engine: lab.Engine(*engine), Rate: *rate, Replicas: *replicas, Objects: *objects,
					Serve: func(role dap.Role, config string) (*lab.Child, error) { return child(ctx, role, config) }, Progress: watch.show}
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
				return printBench(e, r)
			}
		},
	}
}

// printBench writes a benchmark for people.
func printBench(e *env, r *lab.BenchReport) error {
	n := prose.Count
	fmt.Fprintf(e.stdout, "%s reports of %s bytes in %.2f s on %d processors, engine %s\n",
		n(float64(r.Reports)), n(float64(r.BytesEach)), r.Seconds, r.CPUs, r.Engine)
	if r.Replicas > 1 {
		fmt.Fprintf(e.stdout, "%d processes of each aggregator\n", r.Replicas)
	}
	if r.Rate > 0 {
		fmt.Fprintf(e.stdout, "%s reports a second were due\n", n(float64(r.Rate)))
	}
	fmt.Fprintf(e.stdout, "%s reports a second, verified by both aggregators\n", n(r.ReportsPerSecond))
	if last := len(r.Windows) - 1; last > 0 {
		first, last := r.Windows[0], r.Windows[last]
		fmt.Fprintf(e.stdout, "the first %s at %s a second, the last at %s; processor time of leader and helper %.0f and %.0f us a report, at last %.0f and %.0f\n",
			n(float64(first.Reports)), n(first.ReportsPerSecond), n(last.ReportsPerSecond), first.CPU.Leader, first.CPU.Helper, last.CPU.Leader, last.CPU.Helper)
	}
	if r.MadeMeanwhile {
		fmt.Fprintf(e.stdout, "reports were made meanwhile, on the same processors\n")
	}
	fmt.Fprintf(e.stdout, "acknowledged in %.1f ms (median), %.1f ms (99 %%), for requests of %d reports\n", r.AckP50, r.AckP99, r.ReportsPerRequest)
	fmt.Fprintf(e.stdout, "peak memory %.0f MB: leader %.0f, helper %.0f\n\n", r.PeakRSS, r.LeaderPeakRSS, r.HelperPeakRSS)
	row := func(name string, each lab.ByRole, format string) {
		fmt.Fprintf(e.stdout, "%-40s %12s %12s\n", name, fmt.Sprintf(format, each.Leader), fmt.Sprintf(format, each.Helper))
	}
	fmt.Fprintf(e.stdout, "%-40s %12s %12s\n", "", "leader", "helper")
	row("processor time a report, us", r.CPU, "%.1f")
	row("bytes written a report", r.Written, "%.1f")
	for _, kind := range slices.Sorted(maps.Keys(r.WrittenBy["leader"])) {
		if each := (lab.ByRole{Leader: r.WrittenBy["leader"][kind], Helper: r.WrittenBy["helper"][kind]}); each.Leader+each.Helper >= 0.05 {
			row("  "+strings.ReplaceAll(kind, "_", " "), each, "%.1f")
		}
	}
	if r.Disk != nil {
		row("bytes written by the system a report", *r.Disk, "%.1f")
	}
	row("stored, MB", r.StoreMB, "%.1f")
	row("start with all that is stored, s", r.Start, "%.2f")
	row("audit of the store, s", r.Doctor, "%.2f")
	if r.Collect > 0 {
		fmt.Fprintf(e.stdout, "all collected in %.2f s\n", r.Collect)
	}
	if r.Exhausted {
		fmt.Fprintf(e.stdout, "the reports ran out before the time did; --reports makes more\n")
	}
	return nil
}

// child runs this binary as an aggregator, and waits until it is ready.
func child(ctx context.Context, role dap.Role, config string) (*lab.Child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	loaded, err := deploy.LoadAggregator(config, role)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "serve", role.String(), config)
	var said end
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		if why := said.fault(); err != nil && why != "" {
			err = fmt.Errorf("%w: %s", err, why)
		}
		exited <- err
	}()
	stop := func() (int64, error) {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			cmd.Process.Kill()
		}
		if err := <-exited; err != nil {
			return 0, fmt.Errorf("the %v's process: %w", role, err)
		}
		return peakRSS(cmd.ProcessState), nil
	}
	client := localClient(loaded.Local.Address)
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+string(loaded.Local.Address)+"/livez", nil)
		if err != nil {
			return nil, err
		}
		if resp, err := client.Do(req); err == nil {
			resp.Body.Close()
			return &lab.Child{PID: cmd.Process.Pid, Stop: stop}, nil
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

// end keeps the end of what is written to it, at least endSize bytes where there are as many.
type end []byte

const endSize = 16 << 10

func (e *end) Write(b []byte) (int, error) {
	*e = append(*e, b...)
	if len(*e) > 2*endSize {
		*e = append((*e)[:0], (*e)[len(*e)-endSize:]...)
	}
	return len(b), nil
}

// fault is the error that a command ended with, or the last line that it wrote, if any.
func (e *end) fault() (why string) {
	for line := range strings.Lines(string(*e)) {
		line = strings.TrimSpace(line)
		if fault, ok := strings.CutPrefix(line, "starling: error: "); ok {
			return fault
		}
		if line != "" {
			why = line
		}
	}
	return why
}
