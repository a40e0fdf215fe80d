//go:build postgres

package aggregator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// stream sends reports while something else happens. Each has a bucket of one histogram for
// itself, no noise is added, and each is sent until it is acknowledged: so the result is a 1
// for each report, and anything else was lost or doubled.
type stream struct {
	*replicas
	client *client.Client
	device *http.Client
	begun  time.Time
	stop   context.CancelFunc
	all    sync.WaitGroup

	mu    sync.Mutex
	next  uint32 // bucket, guarded by mu as all below
	taken int    // reports that were acknowledged
	again int    // requests that were sent once more
	since int    // reports that were begun in this phase
	heard chan struct{}
}

const (
	streamBuckets = 2048
	streamSenders = 4
	streamPace    = 30 * time.Millisecond // between two reports of a sender; doubled after so many of a phase:
	streamSlower  = 50
)

// streamed has a deployment without noise for a stream.
func streamed(t *testing.T, r *replicas) *stream {
	t.Helper()
	r.T = t
	r.make(true, recipe.Histogram{Length: streamBuckets}, recipe.Decimal{})
	return &stream{replicas: r, heard: make(chan struct{})}
}

// start begins to send, once leader and helper serve.
func (s *stream) start() {
	s.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, deploy.RecipeFile))
	s.ok(err)
	s.client, err = client.New(client.Options{Prover: account.Prover, Recipe: b, MaxEpsilon: math.Inf(1)})
	s.ok(err)
	s.ok(s.client.Refresh(s.Context()))
	// A connection for each request, so that each process has some.
	s.device = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	ctx, stop := context.WithCancel(s.Context())
	s.begun, s.stop = time.Now(), stop
	for range streamSenders {
		s.all.Go(func() {
			for s.send(ctx) {
			}
		})
	}
	s.Cleanup(func() {
		stop()
		s.all.Wait()
	})
}

// send sends the report of the next bucket, and waits as devices do.
func (s *stream) send(ctx context.Context) bool {
	s.mu.Lock()
	bucket := s.next
	pace := streamPace << min(s.since/streamSlower, 8)
	s.next++
	s.since++
	s.mu.Unlock()
	if bucket >= streamBuckets {
		s.Errorf("the stream has no bucket left")
		return false
	}
	report, err := s.client.Prepare(client.Bucket(bucket), time.Now())
	if err == nil {
		err = s.deliver(ctx, report)
	}
	if err != nil {
		s.Error(err)
		return false
	}
	s.mu.Lock()
	s.taken++
	close(s.heard)
	s.heard = make(chan struct{})
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return false
	case <-time.After(pace):
		return true
	}
}

// deliver sends a report until it is acknowledged: also when the stream is to end, for what
// was sent once may count.
func (s *stream) deliver(ctx context.Context, report dap.Report) error {
	body, err := dap.AppendUploadRequest(nil, []dap.Report{report})
	if err != nil {
		return err
	}
	for end := time.Now().Add(2 * time.Minute); ; {
		resp, err := s.device.Post(s.client.UploadURL().String(), dap.ContentType(dap.MediaUploadReq), bytes.NewReader(body))
		var said []byte
		if err == nil {
			said, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		switch {
		case err == nil && resp.StatusCode == http.StatusOK && len(said) == 0:
			return nil
		case err == nil && resp.StatusCode < http.StatusInternalServerError && resp.StatusCode != http.StatusTooManyRequests:
			return fmt.Errorf("an upload was refused for good: status %d, %q", resp.StatusCode, said)
		case time.Now().After(end):
			return fmt.Errorf("an upload was never acknowledged: %w, %q", err, said)
		}
		s.mu.Lock()
		s.again++
		s.mu.Unlock()
		select {
		case <-s.Context().Done():
			return errors.Join(err, s.Context().Err())
		case <-time.After(30 * time.Millisecond): // as clients do
		}
	}
}

// burst sends so many reports at one time, of which some are acknowledged together.
func (s *stream) burst(n int) {
	s.Helper()
	s.mu.Lock()
	first := s.next
	s.next += uint32(n)
	s.mu.Unlock()
	var all sync.WaitGroup
	ready := make(chan struct{})
	for i := range n {
		report, err := s.client.Prepare(client.Bucket(first+uint32(i)), time.Now())
		s.ok(err)
		all.Go(func() {
			<-ready
			if err := s.deliver(s.Context(), report); err != nil {
				s.Error(err)
			}
		})
	}
	close(ready)
	all.Wait()
	s.mu.Lock()
	s.taken += n
	s.mu.Unlock()
}

// during does something under load, and then waits for some more acknowledgements, of reports
// that came behind it.
func (s *stream) during(what string, do func()) {
	s.Helper()
	s.mu.Lock()
	taken, again, begun := s.taken, s.again, time.Now()
	s.since = 0
	s.mu.Unlock()
	do()
	took := time.Since(begun)
	s.mu.Lock()
	for until := s.taken + 2*streamSenders; s.taken < until && !s.Failed(); {
		heard := s.heard
		s.mu.Unlock()
		select {
		case <-heard:
		case <-time.After(time.Minute):
			s.Fatalf("%s: the stream stands still", what)
		}
		s.mu.Lock()
	}
	s.Logf("%s: %d reports acknowledged, %d requests sent again, %v", what, s.taken-taken, s.again-again, took.Round(100*time.Millisecond))
	failed := s.Failed()
	s.mu.Unlock()
	if failed {
		s.FailNow()
	}
}

// collected ends the stream, and demands that each report that was acknowledged is in the
// result once.
func (s *stream) collected() {
	s.Helper()
	s.stop()
	s.all.Wait()
	if s.Failed() {
		return
	}
	config, err := deploy.LoadCollector(filepath.Join(s.dir, deploy.CollectorFile))
	s.ok(err)
	session, err := config.Open(collector.Options{Poll: 50 * time.Millisecond, MaxPoll: 500 * time.Millisecond})
	s.ok(err)
	ctx, cancel := context.WithTimeout(s.Context(), 2*time.Minute)
	defer cancel()
	result, err := session.Collect(ctx, s.begun.Truncate(time.Second), time.Now().Add(2*time.Second).Truncate(time.Second))
	s.ok(err)
	lost, doubled := 0, 0
	for bucket, n := range result.Raw {
		sent := int64(0)
		if bucket < s.taken { // all that were begun were acknowledged
			sent = 1
		}
		switch {
		case n < sent:
			lost++
		case n > sent:
			doubled++
		}
	}
	if lost > 0 || doubled > 0 || result.ReportCount != uint64(s.taken) {
		s.Errorf("of %d reports %d are lost and %d doubled; the result has %d", s.taken, lost, doubled, result.ReportCount)
	}
	s.Logf("in all: %d reports acknowledged, %d collected, %d lost, %d doubled; %d requests were sent again", s.taken, result.ReportCount, lost, doubled, s.again)
}
