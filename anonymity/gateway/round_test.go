package gateway

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
)

// TestRound: what comes between two ticks is answered at one tick, in one size, and then
// becomes one request in another order.
func TestRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 64
		b := start(t, Options{Window: 5 * time.Second})
		defer b.stop()
		b.leader.answer = func(_ int, ids []byte, _ *http.Request) (int, []byte) {
			refused, err := dap.Dialect{}.AppendUploadErrors(nil, []dap.ReportUploadStatus{{ID: dap.ReportID{3}, Error: dap.ReportTooEarly}})
			if err != nil {
				t.Error(err)
			}
			return 200, refused
		}
		time.Sleep(time.Until(time.Now().Truncate(5 * time.Second).Add(5*time.Second + time.Millisecond)))
		begin := time.Now().Truncate(5 * time.Second)
		var all sync.WaitGroup
		var mu sync.Mutex
		var at []time.Time
		for i := range n {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 10 * time.Millisecond) // arrival in order, on the bubble's clock
				m := upload(report(t, byte(i)))
				if i%4 == 1 {
					m = cover(m.Content)
				}
				a := b.ask(t, m)
				mu.Lock()
				defer mu.Unlock()
				at = append(at, time.Now())
				if a.Status != 202 || len(a.Content)+len(a.Header) > 0 {
					t.Errorf("upload %d: status %d and %d bytes", i, a.Status, len(a.Content))
				}
			})
		}
		all.Wait()
		for _, when := range at {
			if when.Sub(begin) != 10*time.Second {
				t.Fatalf("answered after %v, want the second tick", when.Sub(begin))
			}
		}
		if len(b.leader.seen()) != 0 {
			t.Error("the leader was asked before the devices were answered")
		}
		seen := b.leader.await(t, n*3/4)
		if len(seen) != 1 || len(seen[0]) != n*3/4 || b.leader.heard()[0].Sub(begin) != 15*time.Second {
			t.Fatalf("the leader got %d requests, the first of %d reports, at %v", len(seen), len(seen[0]), b.leader.heard())
		}
		if slices.IsSorted(seen[0]) { // 1 in 48!
			t.Error("the reports came in the order of their arrival")
		}
		slices.Sort(seen[0])
		if len(slices.Compact(seen[0])) != n*3/4 || slices.ContainsFunc(seen[0], func(id byte) bool { return id%4 == 1 }) {
			t.Errorf("the leader got %v", seen[0])
		}
		r := b.leader.last
		if r.URL.String() != "http://127.0.0.1:1/inside/"+taskPath[len("/v1/"):] || r.Header.Get("Authorization") != "Bearer a token of sixteen" ||
			r.Header.Get("Content-Type") != uploadMedia || len(r.Header) != 3 {
			t.Errorf("the leader got %s %v", r.URL, r.Header)
		}
		time.Sleep(11 * time.Second) // two ticks, for what is done to be credited
		if s := b.Status(); s.Passed != n*3/4-1 || s.Covers != n/4 || s.Requests != 1 || s.Keys[0].Opened != n || s.Held != 0 ||
			s.Charged != 0 || s.Verdicts[dap.ReportTooEarly.String()] != 1 {
			t.Errorf("status %+v", s)
		}
		if files := b.files(t, "round-", "done-"); len(files) > 0 {
			t.Errorf("%v is left", files)
		}
	})
}

// files are those whose names begin so.
func (b *bed) files(t *testing.T, prefixes ...string) (names []string) {
	t.Helper()
	entries, err := b.o.FS.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(e.Name, p) }) {
			names = append(names, e.Name)
		}
	}
	return names
}

// TestMinRound: nothing goes on among fewer requests of its task than MinRound, however
// long it waits; covers count. All are answered at once all the same, and what waited for
// Hold is given up and counted.
func TestMinRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Options{Window: time.Second, MinRound: 3, Hold: time.Minute})
		defer b.stop()
		n := byte(0)
		next := func() *ohttp.Request { n++; return upload(report(t, n)) }
		ask := func(m *ohttp.Request) {
			t.Helper()
			if a := b.ask(t, m); a.Status != 202 {
				t.Errorf("status %d", a.Status)
			}
		}
		expect := func(when string, requests int, passed, few uint64, held int) {
			t.Helper()
			time.Sleep(4 * time.Second)
			if s := b.Status(); len(b.leader.seen()) != requests || s.Passed != passed || s.Lost["few"] != few || s.Held != held {
				t.Errorf("%s: %d requests to the leader, status %+v", when, len(b.leader.seen()), s)
			}
		}
		ask(next())
		ask(next())
		other := upload(report(t, 99))
		other.Path = "/v1/" + dap.CreationPath(dap.TaskID{6}, dap.ReportsResource)
		ask(other)
		expect("two wait, and one of another task", 0, 0, 0, 3)
		ask(next())
		expect("the third has come", 1, 3, 0, 1)
		if ids := b.leader.seen()[0]; len(ids) != 3 {
			t.Errorf("the leader got %d reports together", len(ids))
		}
		ask(next())
		ask(cover(report(t, 1)))
		expect("one and a cover wait", 1, 3, 0, 2)
		ask(cover(report(t, 1)))
		expect("one among covers", 2, 4, 0, 1)
		time.Sleep(time.Minute)
		expect("the other task's has waited too long", 2, 4, 1, 0)
		if s := b.Status(); s.Charged != 0 || s.Oldest != nil {
			t.Errorf("%+v", s)
		}
	})
}

// TestAbandonedRequestsCount: a relay that goes away does not make room for more: what
// waits for its tick is held, and counts, until then, and goes on with its round.
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
		asked.Wait()
		if seen := b.leader.await(t, 2); len(seen) != 1 || len(seen[0]) != 2 {
			t.Errorf("the leader got %v, want one request of two reports", seen)
		}
		if a := b.ask(t, upload(report(t, 3))); a.Status != 202 {
			t.Errorf("afterwards: status %d", a.Status)
		}
	})
}

// TestDrain: a gateway that is about to stop answers what has come at the tick at which it
// would have without, all kinds alike; who comes later is refused, and what was kept goes
// on, in this life or the next.
func TestDrain(t *testing.T) {
	const window = 20 * time.Second
	for _, drain := range []bool{true, false} { // or the end of its context
		for _, forward := range []bool{false, drain} {
			synctest.Test(t, func(t *testing.T) {
				pair := generate(t, 1)
				b := start(t, Options{Window: window, Keys: []Key{{Pair: pair}}})
				defer b.stop()
				time.Sleep(time.Until(time.Now().Truncate(window).Add(window + time.Second)))
				begin := time.Now().Truncate(window)
				elsewhere := upload(report(t, 7))
				elsewhere.Authority = "nobody.example"
				var asked sync.WaitGroup
				for _, m := range []*ohttp.Request{upload(report(t, 1)), upload(report(t, 2)), upload(report(t, 1)), cover(report(t, 1)), elsewhere} {
					asked.Go(func() {
						want := 202
						if m == elsewhere {
							want = 421
						}
						if a := b.ask(t, m); a.Status != want {
							t.Errorf("status %d, want %d", a.Status, want)
						}
						if d := time.Since(begin); d != 2*window {
							t.Errorf("answered %v after a tick, want %v", d, 2*window)
						}
					})
					synctest.Wait()
				}
				time.Sleep(3 * time.Second)
				if drain {
					b.Drain()
					b.Drain()
				} else {
					go b.stop()
				}
				synctest.Wait()
				request, _ := sealTo(t, b.pair, upload(report(t, 9)))
				if reason := refusedAs(t, b.bring(request)); reason != door.Busy {
					t.Errorf("who comes later: %q", reason)
				}
				asked.Wait()
				if forward {
					b.leader.await(t, 2)
					return
				}
				b.stop()
				if n := len(b.leader.seen()); n != 0 {
					t.Errorf("%d requests to the leader", n)
				}
				again := start(t, Options{Window: time.Second, Keys: []Key{{Pair: pair}}, FS: b.o.FS})
				defer again.stop()
				if seen := again.leader.await(t, 2); len(seen) != 1 || len(seen[0]) != 2 {
					t.Errorf("after the next start: %v", seen)
				}
			})
		}
	}
}

// TestMix: rounds go on at the multiples of Mix, together, and nobody waits for it.
func TestMix(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Options{Window: time.Second, Mix: time.Hour})
		defer b.stop()
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour + time.Minute)))
		begin := time.Now()
		for i := range byte(5) {
			at := time.Now()
			if a := b.ask(t, upload(report(t, i))); a.Status != 202 || time.Since(at) > 2*time.Second {
				t.Errorf("status %d after %v", a.Status, time.Since(at))
			}
			time.Sleep(5 * time.Minute)
		}
		seen := b.leader.await(t, 5)
		if heard := b.leader.heard(); len(seen) != 1 || len(heard) != 1 || !heard[0].Equal(begin.Truncate(time.Hour).Add(time.Hour)) {
			t.Errorf("the leader got %d requests, at %v", len(seen), heard)
		}
	})
}
