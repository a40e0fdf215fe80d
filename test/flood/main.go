// Command flood measures what a flood does to a leader and a helper in processes of their
// own: honest uploads, first alone and then under idle connections from 64 addresses of
// this machine and junk requests. It prints what docs/bench/flood.md shows.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/test/internal/parties"
)

func main() {
	binary := flag.String("starling", "", "the binary that plays leader and helper; built if not given")
	seconds := flag.Int("seconds", 20, "of each of the two phases")
	idle := flag.Int("idle", 10_000, "idle connections, half of them at the leader and half at the helper")
	junk := flag.Int("junk", 5_000, "junk requests a second, half and half")
	uploads := flag.Int("uploads", 100, "honest uploads a second, of one report each")
	again := flag.Duration("again", 10*time.Second, "after which an idle connection that was closed is opened again")
	flag.Parse()
	if err := run(*binary, *seconds, *idle, *junk, *uploads, *again); err != nil {
		log.Fatal(err)
	}
}

func run(binary string, seconds, idle, junk, uploads int, again time.Duration) error {
	dir, err := os.MkdirTemp("", "starling-flood-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if binary == "" {
		if binary, err = parties.Build(dir); err != nil {
			return err
		}
	}
	p, err := parties.Start(binary, filepath.Join(dir, "deployment"), nil)
	if err != nil {
		return err
	}
	return errors.Join(measure(p, seconds, idle, junk, uploads, again), p.Stop())
}

func measure(p *parties.Pair, seconds, idle, junk, uploads int, again time.Duration) error {
	bodies := make([][]byte, 2*seconds*uploads)
	for i := range bodies {
		report, err := p.Client.Prepare(client.Bool(true), time.Now())
		if err != nil {
			return err
		}
		if bodies[i], err = dap.AppendUploadRequest(nil, []dap.Report{report}); err != nil {
			return err
		}
	}
	fmt.Printf("| phase | uploads | taken | p50 | p99 | max | verified at its end | processor s: generator, leader, helper |\n|---|---|---|---|---|---|---|---|\n")
	if err := phase("alone", bodies[:len(bodies)/2], uploads, p); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	f := &flood{again: again}
	f.start(ctx, []string{p.Leader.Public, p.Helper.Public}, idle, junk)
	time.Sleep(5 * time.Second) // until all have come once
	err := phase("flood", bodies[len(bodies)/2:], uploads, p)
	stop()
	f.done.Wait()
	fmt.Printf("\n%d idle connections opened, %d of them closed by the servers; %d junk requests answered, %d failed\n", f.opened.Load(), f.shed.Load(),
		f.answered.Load(), f.failed.Load())
	if err != nil {
		return err
	}
	begin := time.Now()
	for {
		s, err := p.Leader.Status()
		if err != nil {
			return err
		}
		if c := s.Tasks[0].Counts; c.Waiting == 0 && c.Aggregated == c.Acknowledged {
			fmt.Printf("%d acknowledged, %d aggregated, all %v after the flood\n", c.Acknowledged, c.Aggregated, time.Since(begin).Round(time.Millisecond))
			return nil
		}
		if time.Since(begin) > time.Minute {
			return errors.New("not all reports were aggregated")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// phase uploads at a rate, each on a connection of its own, and prints a row.
func phase(name string, bodies [][]byte, rate int, p *parties.Pair) error {
	before := times(p)
	url := p.Client.UploadURL().String()
	var mu sync.Mutex
	var took []time.Duration
	var wait sync.WaitGroup
	taken := atomic.Int64{}
	device := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for _, body := range bodies {
		<-ticker.C
		wait.Go(func() {
			start := time.Now()
			resp, err := device.Post(url, dap.ContentType(dap.MediaUploadReq), bytes.NewReader(body))
			if err == nil {
				b, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if resp.StatusCode == http.StatusOK && len(b) == 0 {
					taken.Add(1)
				}
			}
			mu.Lock()
			took = append(took, time.Since(start))
			mu.Unlock()
		})
	}
	wait.Wait()
	after := times(p)
	s, err := p.Leader.Status()
	if err != nil {
		return err
	}
	slices.Sort(took)
	at := func(q float64) time.Duration { return took[int(q*float64(len(took)-1))].Round(100 * time.Microsecond) }
	fmt.Printf("| %s | %d | %d | %v | %v | %v | %d of %d | %.1f, %.1f, %.1f |\n", name, len(bodies), taken.Load(), at(.5), at(.99), at(1),
		s.Tasks[0].Counts.Aggregated, s.Tasks[0].Counts.Acknowledged, after[0]-before[0], after[1]-before[1], after[2]-before[2])
	return nil
}

// times are the processor seconds of this process and of the two.
func times(p *parties.Pair) [3]float64 {
	var u syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return [3]float64{float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9, p.Leader.Seconds(), p.Helper.Seconds()}
}

type flood struct {
	again                          time.Duration
	done                           sync.WaitGroup
	opened, shed, answered, failed atomic.Int64
}

func (f *flood) start(ctx context.Context, targets []string, idle, junk int) {
	for i := range idle {
		dialer := &net.Dialer{Timeout: 20 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(1+i%64))}}
		f.done.Go(func() {
			f.idle(ctx, dialer, targets[i%len(targets)], time.Duration(i)*5*time.Second/time.Duration(idle))
		})
	}
	const workers = 20
	for i := range workers {
		f.done.Go(func() { f.junk(ctx, targets[i%len(targets)], junk/workers) })
	}
}

// idle holds a connection that asked once and says nothing more.
func (f *flood) idle(ctx context.Context, d *net.Dialer, target string, first time.Duration) {
	wait := first
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		wait = f.again
		c, err := d.DialContext(ctx, "tcp", target)
		if err != nil {
			continue
		}
		f.opened.Add(1)
		stop := context.AfterFunc(ctx, func() { c.Close() })
		fmt.Fprintf(c, "GET /hpke_config HTTP/1.1\r\nHost: x\r\n\r\n")
		io.Copy(io.Discard, c) // until the server closes it
		if stop() {
			f.shed.Add(1)
		}
		c.Close()
	}
}

// junk sends requests that are refused, at a rate, over kept connections.
func (f *flood) junk(ctx context.Context, target string, rate int) {
	hc := &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		path := []string{"/", "/tasks/x/reports", "/tasks/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/aggregation_jobs"}[i%3]
		resp, err := hc.Post("http://"+target+path, "text/plain", strings.NewReader("junk"))
		if err != nil {
			f.failed.Add(1)
			continue
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		f.answered.Add(1)
	}
}
