package gateway

import (
	"bytes"
	"context"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
)

// TestMinRound: no upload goes on among fewer requests than MinRound. A round waits for others, covers count, and what waited
// too long is refused with all that came with it, inside the sealed answer.
func TestMinRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Options{Window: time.Second, MinRound: 3, MaxDelay: 10 * time.Second})
		defer b.stop()
		cover := upload(nil)
		cover.Method = ohttp.MethodCover
		n := byte(0)
		next := func() *ohttp.Request { n++; return upload(report(t, n)) }
		var asked sync.WaitGroup
		var mu sync.Mutex
		answers := make(map[door.Reason]int)
		ask := func(m *ohttp.Request) {
			asked.Go(func() {
				reason := sealedReason(b.ask(t, m))
				mu.Lock()
				defer mu.Unlock()
				answers[reason]++
			})
		}
		expect := func(when string, passed, few, rounds int) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if got := len(b.leader.seen()); answers[""] != passed || answers[door.Few] != few || got != rounds {
				t.Errorf("%s: answers %v and %d requests to the leader, want %d passed, %d refused, %d requests", when, answers, got,
					passed, few, rounds)
			}
		}
		ask(next())
		ask(next())
		time.Sleep(8 * time.Second)
		expect("two wait", 0, 0, 0)
		ask(next())
		time.Sleep(3 * time.Second)
		expect("the third has come", 3, 0, 1)
		if ids := b.leader.seen()[0]; len(ids) != 3 {
			t.Errorf("the leader got %d reports together", len(ids))
		}

		ask(next())
		time.Sleep(9 * time.Second)
		ask(next())
		expect("two wait again", 3, 0, 1)
		time.Sleep(4 * time.Second)
		expect("the first has waited too long", 3, 2, 1)

		ask(next())
		ask(cover)
		ask(cover)
		time.Sleep(3 * time.Second)
		expect("one among covers", 6, 2, 2)

		ask(next())
		time.Sleep(2 * time.Second)
		b.stop()
		asked.Wait()
		expect("one was left at the stop", 6, 3, 2)
	})
}

// TestAbandonedRequestsCount: a relay that goes away does not make room for more: what waits for its round is held, and counts, until
// the round is over, and goes on with it.
func TestAbandonedRequestsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Options{Window: 10 * time.Second, Limits: Limits{Requests: 2}})
		defer b.stop()
		ctx, cancel := context.WithCancel(t.Context())
		var asked sync.WaitGroup
		for n := range byte(2) {
			request, _ := sealTo(t, b.pair, upload(report(t, n)))
			r := httptest.NewRequestWithContext(ctx, "POST", "/", bytes.NewReader(request))
			r.Header.Set("Content-Type", ohttp.RequestMedia)
			asked.Go(func() { b.ServeHTTP(httptest.NewRecorder(), r) })
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		request, _ := sealTo(t, b.pair, upload(report(t, 2)))
		if reason := refusedAs(t, b.bring(request)); reason != door.Busy {
			t.Errorf("a third request beside two that wait: %q, want %q", reason, door.Busy)
		}
		time.Sleep(11 * time.Second)
		asked.Wait()
		if seen := b.leader.seen(); len(seen) != 1 || len(seen[0]) != 2 {
			t.Errorf("the leader got %v, want one request of two reports", seen)
		}
		if a := b.ask(t, upload(report(t, 3))); a.Status != 200 {
			t.Errorf("afterwards: status %d", a.Status)
		}
	})
}

// TestDrain: a gateway that is about to stop keeps nobody waiting for company: what waits goes on, or is refused if that is too little,
// and who comes later is refused.
func TestDrain(t *testing.T) {
	for _, c := range []struct {
		requests int
		reason   door.Reason
	}{{1, door.Few}, {2, ""}} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, Options{Window: 20 * time.Second, MinRound: 2})
			defer b.stop()
			begin := time.Now()
			var asked sync.WaitGroup
			for n := range byte(c.requests) {
				asked.Go(func() {
					if reason := sealedReason(b.ask(t, upload(report(t, n)))); reason != c.reason {
						t.Errorf("%d waited: %q, want %q", c.requests, reason, c.reason)
					}
				})
			}
			synctest.Wait()
			b.Drain()
			b.Drain()
			asked.Wait()
			if d := time.Since(begin); d != 0 {
				t.Errorf("%d waited %v more", c.requests, d)
			}
			request, _ := sealTo(t, b.pair, upload(report(t, 9)))
			if reason := refusedAs(t, b.bring(request)); reason != door.Busy {
				t.Errorf("who comes later: %q", reason)
			}
		})
	}
}
