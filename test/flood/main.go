// Command flood measures what a flood does to a leader and a helper in processes of their
// own: honest uploads, first alone and then under idle connections from 64 addresses of
// this machine and junk requests. It prints what docs/bench/flood.md shows.
package main

import (
	"bufio"
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
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/test/internal/parties"
)

// profiles is where profiles go; empty: nowhere.
var profiles string

func main() {
	binary := flag.String("starling", "", "the binary that plays leader and helper; built if not given")
	seconds := flag.Int("seconds", 20, "of each of the two phases")
	idle := flag.Int("idle", 10_000, "idle connections, half of them at the leader and half at the helper")
	junk := flag.Int("junk", 5_000, "junk requests a second, half and half")
	uploads := flag.Int("uploads", 100, "honest uploads a second, of one report each")
	again := flag.Duration("again", 10*time.Second, "after which an idle connection that was closed is opened again")
	flag.StringVar(&profiles, "profiles", "", "a directory for the processor profiles of both under the flood")
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
	profiled := make(chan error, 1)
	if profiled <- nil; profiles != "" {
		<-profiled
		go func() { profiled <- profile(p, profiles, max(1, seconds-2)) }()
	}
	err := errors.Join(phase("flood", bodies[len(bodies)/2:], uploads, p), <-profiled)
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

// junk sends requests that are refused, at a rate, over a kept connection, as plainly as
// one can: the generator's share of the machine is not the server's.
func (f *flood) junk(ctx context.Context, target string, rate int) {
	var requests [][]byte
	for _, path := range []string{"/", "/tasks/x/reports", "/tasks/AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA/aggregation_jobs"} {
		requests = append(requests, fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\njunk", path, target))
	}
	var c net.Conn
	var answers *bufio.Reader
	defer func() {
		if c != nil {
			c.Close()
		}
	}()
	ticker := time.NewTicker(time.Second / time.Duration(rate))
	defer ticker.Stop()
	for i := 0; ; i++ {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if c == nil {
			var err error
			if c, err = net.DialTimeout("tcp", target, 10*time.Second); err != nil {
				f.failed.Add(1)
				continue
			}
			answers = bufio.NewReader(c)
		}
		c.SetDeadline(time.Now().Add(10 * time.Second))
		_, err := c.Write(requests[i%len(requests)])
		if err == nil {
			err = answered(answers)
		}
		if err != nil {
			f.failed.Add(1)
			c.Close()
			c = nil
			continue
		}
		f.answered.Add(1)
	}
}

// answered reads one answer that says how long it is.
func answered(r *bufio.Reader) error {
	length := -1
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case first && !bytes.HasPrefix(line, []byte("HTTP/1.1 4")):
			return fmt.Errorf("junk was answered %q", line)
		case len(line) == 2:
			if length < 0 {
				return errors.New("an answer of no length")
			}
			_, err := r.Discard(length)
			return err
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
	}
}

// profile keeps the processor profiles of both while a phase runs.
func profile(p *parties.Pair, dir string, seconds int) error {
	var wait sync.WaitGroup
	var errs [2]error
	for i, s := range p.Both() {
		wait.Go(func() {
			b, err := s.Profile(seconds)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, s.Role+".cpu"), b, 0o600)
			}
			errs[i] = err
		})
	}
	wait.Wait()
	return errors.Join(errs[:]...)
}
