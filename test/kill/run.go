package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/test/internal/parties"
)

// A tally is what happened in one run, or in several.
type tally struct {
	kills                        map[string]int // by party
	starting, collecting         int            // kills of a party that was starting, or while a round was collected
	acknowledged, again, unknown int            // reports acknowledged; requests sent again; those without an answer
	slowest                      time.Duration  // start of a party that was killed, until it answers
	objects                      int64          // put by leaders
}

func (t *tally) add(o *tally) {
	if t.kills == nil {
		t.kills = make(map[string]int)
	}
	for role, n := range o.kills {
		t.kills[role] += n
	}
	t.starting += o.starting
	t.collecting += o.collecting
	t.acknowledged += o.acknowledged
	t.again += o.again
	t.unknown += o.unknown
	t.slowest = max(t.slowest, o.slowest)
	t.objects += o.objects
}

func (t *tally) String() string {
	return fmt.Sprintf("kill -9: leader %d, helper %d, database %d, of which while starting %d, while collecting %d; acknowledged %d reports, "+
		"objects %d, requests sent again %d, without an answer %d; slowest start %v", t.kills["leader"], t.kills["helper"], t.kills["database"],
		t.starting, t.collecting, t.acknowledged, t.objects, t.again, t.unknown, t.slowest.Round(time.Millisecond))
}

// check says whether the kills met what they are meant for: those that meet nothing prove
// nothing.
func (t *tally) check(databases bool) error {
	if t.kills["leader"] == 0 || t.kills["helper"] == 0 || t.starting == 0 || t.collecting == 0 || t.again == 0 || t.unknown == 0 ||
		databases && t.kills["database"] == 0 {
		return errors.New("too little happened")
	}
	return nil
}

// A round is one run: its reports, and what becomes of them.
type round struct {
	pair    *parties.Pair
	largest int // reports of a request
	rng     *rand.Rand
	at      time.Time // the beginning of its round of time
	tally   tally     // of this goroutine, but for what mu guards

	mu sync.Mutex // guards acknowledged, again and unknown of the tally
}

func newRun(p *parties.Pair, largest int, seed uint64, at time.Time) *round {
	return &round{pair: p, largest: largest, rng: rand.New(rand.NewPCG(seed, 9)), at: at, tally: tally{kills: make(map[string]int)}}
}

// upTo draws a time.
func (r *round) upTo(d time.Duration) time.Duration { return time.Duration(r.rng.Int64N(int64(d))) }

func (r *round) play() error {
	requests, err := r.requests()
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	uploaded := make(chan error, 1)
	go func() { uploaded <- r.upload(ctx, requests) }()
	err = r.strike(r.upTo(250 * time.Millisecond))
	if err := errors.Join(err, <-uploaded); err != nil {
		return err
	}
	collected := make(chan error, 1)
	go func() { collected <- r.collect(ctx) }()
	if r.rng.IntN(3) == 0 {
		before := r.kills()
		err = r.strike(r.upTo(150 * time.Millisecond))
		r.tally.collecting += r.kills() - before
	}
	return errors.Join(err, <-collected, r.pair.Failed())
}

func (r *round) kills() (n int) {
	for _, of := range r.tally.kills {
		n += of
	}
	return n
}

// victims are those that are killed at one time: one party or both, or, of several processes
// and their databases, up to three.
func (r *round) victims() (parts []*parties.Party, databases []*parties.Database) {
	if len(r.pair.Databases) == 0 {
		parts = r.pair.Both()
		if n := r.rng.IntN(3); n < 2 {
			parts = parts[n : n+1]
		}
		return parts, nil
	}
	all := r.pair.All()
	for _, i := range r.rng.Perm(len(all) + len(r.pair.Databases))[:1+r.rng.IntN(3)] {
		if i < len(all) {
			parts = append(parts, all[i])
		} else {
			databases = append(databases, r.pair.Databases[i-len(all)])
		}
	}
	return parts, databases
}

// strike kills some after a time, and has them answer again.
func (r *round) strike(after time.Duration) error {
	time.Sleep(after)
	victims, databases := r.victims()
	var errs []error
	for _, d := range databases {
		errs = append(errs, d.Kill())
		r.tally.kills["database"]++
	}
	for _, s := range victims {
		errs = append(errs, s.Kill())
		r.tally.kills[s.Role]++
	}
	time.Sleep(r.upTo(100 * time.Millisecond))
	for _, d := range databases {
		errs = append(errs, d.Again())
	}
	for _, s := range victims {
		begin := time.Now()
		errs = append(errs, s.Again())
		if r.rng.IntN(3) == 0 {
			time.Sleep(r.upTo(120 * time.Millisecond))
			begin = time.Now()
			errs = append(errs, s.Kill(), s.Again())
			r.tally.kills[s.Role]++
			r.tally.starting++
		}
		errs = append(errs, s.Answers(patience))
		r.tally.slowest = max(r.tally.slowest, time.Since(begin))
	}
	return errors.Join(errs...)
}

// requests are the reports of the round, each in a bucket of its own, in requests of
// several.
func (r *round) requests() (bodies [][]byte, err error) {
	for next := 0; next < reports; {
		var request []dap.Report
		for range 1 + r.rng.IntN(r.largest) {
			if next == reports {
				break
			}
			report, err := r.pair.Client.Prepare(client.Bucket(uint32(next)), r.at)
			if err != nil {
				return nil, err
			}
			request, next = append(request, report), next+1
		}
		body, err := dap.AppendUploadRequest(nil, request)
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, body)
		r.tally.acknowledged += len(request)
	}
	return bodies, nil
}

// upload sends all requests, each until it is acknowledged.
func (r *round) upload(ctx context.Context, requests [][]byte) error {
	transport := new(http.Transport)
	device := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	defer transport.CloseIdleConnections()
	work := make(chan []byte)
	errs := make(chan error, atOnce)
	for range atOnce {
		go func() {
			for body := range work {
				if err := r.deliver(ctx, device, body); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var all []error
	done := 0
	for _, body := range requests {
		select {
		case work <- body:
			time.Sleep(time.Duration(r.largest) * time.Millisecond / 2) // as from many devices
		case err := <-errs:
			all, done = append(all, err), done+1
		}
		if done > 0 {
			break
		}
	}
	close(work)
	for ; done < atOnce; done++ {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// deliver sends a request until it is acknowledged, as a device does.
func (r *round) deliver(ctx context.Context, device *http.Client, body []byte) error {
	for {
		resp, err := device.Post(r.pair.Client.UploadURL().String(), dap.ContentType(dap.MediaUploadReq), bytes.NewReader(body))
		var said []byte
		if err == nil {
			said, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		switch {
		case err == nil && resp.StatusCode == http.StatusOK && len(said) == 0:
			return nil
		case err == nil && resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusTooManyRequests:
			return fmt.Errorf("an upload was refused: status %d, %q", resp.StatusCode, said)
		}
		r.mu.Lock()
		r.tally.again++
		if err != nil {
			r.tally.unknown++
		}
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return fmt.Errorf("an upload was never acknowledged: %w", errors.Join(err, ctx.Err()))
		case <-time.After(30 * time.Millisecond):
		}
	}
}

// collect asks for the round until it has the result, which is a 1 for each report.
func (r *round) collect(ctx context.Context) error {
	config, err := deploy.LoadCollector(filepath.Join(r.pair.Dir, deploy.CollectorFile))
	if err != nil {
		return err
	}
	var result *collector.Result
	for result == nil {
		var session *deploy.Session
		if session, err = config.Open(collector.Options{Poll: 20 * time.Millisecond, MaxPoll: 200 * time.Millisecond}); err != nil {
			return err
		}
		once, stop := context.WithTimeout(ctx, 20*time.Second)
		result, err = session.Collect(once, r.at, r.at.Add(precision*time.Second))
		stop()
		if ctx.Err() != nil {
			return fmt.Errorf("no result: %w", errors.Join(err, ctx.Err()))
		}
	}
	lost, doubled := 0, 0
	for _, n := range result.Raw {
		switch {
		case n == 0:
			lost++
		case n != 1:
			doubled++
		}
	}
	if lost > 0 || doubled > 0 || result.ReportCount != reports {
		return fmt.Errorf("%d reports lost and %d doubled, the result has %d of %d", lost, doubled, result.ReportCount, reports)
	}
	return nil
}
