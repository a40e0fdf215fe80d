package aggregator_test

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// expecting is the tasks with another expectation.
func expecting(tasks []aggregator.Task, e aggregator.Expectation) []aggregator.Task {
	tasks = slices.Clone(tasks)
	tasks[0].Expected = e
	return tasks
}

// heldOnce counts how often an observer is told of held batches.
func heldOnce(n *atomic.Int64) aggregator.Observer {
	return aggregator.Observer{Job: func(_ aggregator.JobKind, o aggregator.Outcome) {
		if o == aggregator.JobHeld {
			n.Add(1)
		}
	}}
}

func (p *pair) restartLeader(e aggregator.Expectation) {
	p.t.Helper()
	if err := p.leader.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.leaderOpt.Tasks = expecting(p.leaderOpt.Tasks, e)
	p.startLeader()
}

func (p *pair) restartHelper(e aggregator.Expectation) {
	p.t.Helper()
	if err := p.helper.Close(); err != nil {
		p.t.Fatal(err)
	}
	p.helperOpt.Tasks = expecting(p.helperOpt.Tasks, e)
	p.startHelper()
}

func (p *pair) helperTask() *status.Task {
	p.t.Helper()
	return &must(p.helper.Status(context.Background())).Tasks[0]
}

// waits demands that a collection is neither ready nor failed, and that the collector is
// told to wait.
func (p *pair) waits(location string) (retryAfter string) {
	p.t.Helper()
	a := p.poll(location)
	if a.status != http.StatusOK || len(a.body) != 0 || a.header.Get("Retry-After") == "" {
		p.t.Fatalf("collection: status %d, %d bytes, Retry-After %q", a.status, len(a.body), a.header.Get("Retry-After"))
	}
	return a.header.Get("Retry-After")
}

// TestLeaderHoldsTooManyReports: a leader neither releases a batch above twice what it
// expects nor asks the helper for it; it says so in status, in why and once in the log,
// and lets the collector wait. More expected, the batch is released whole.
func TestLeaderHoldsTooManyReports(t *testing.T) {
	few := aggregator.Expectation{Reports: 5, HalfHonestEpsilon: 1.25, HalfHonestDelta: 1e-9}
	var told atomic.Int64
	p := newPair(t, setup{leader: func(o *leader.Options) {
		o.Tasks, o.Observe = expecting(o.Tasks, few), heldOnce(&told)
	}})
	var asked atomic.Int64
	p.between(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if creates(r, "aggregate_shares") {
				asked.Add(1)
			}
			next.ServeHTTP(w, r)
		})
	})
	p.accept(p.reports(11)...)
	q := p.query()
	location := p.ask(q).header.Get("Location")
	p.step()
	for range 3 {
		if after := p.waits(location); after != "60" {
			t.Errorf("Retry-After %s", after)
		}
		p.clock.advance(2 * time.Minute)
		p.step()
	}
	task := p.leaderTask()
	want := status.Held{Reports: 11, Expected: 5, Epsilon: 1.25, Delta: 1e-9}
	if len(task.Held) == 1 {
		want.Start, want.Duration = task.Held[0].Start, task.Held[0].Duration
	}
	if len(task.Held) != 1 || task.Held[0] != want || want.Duration == 0 {
		t.Errorf("held: %+v, want %+v", task.Held, want)
	}
	why := status.Why(task)
	if len(why) == 0 || !strings.Contains(why[0].Blocks, "batch of 11 reports is held, more than twice the 5 expected") ||
		!strings.Contains(why[0].Blocks, "epsilon 1.25 at delta 1e-09") || !strings.Contains(why[0].Do, "configuration") {
		t.Errorf("why: %+v", why)
	}
	if n := strings.Count(p.log.String(), "a batch is held"); n != 1 || told.Load() != 1 {
		t.Errorf("%d alarms in the log, %d told", n, told.Load())
	}
	p.restartLeader(few) // changes nothing
	p.step()
	p.waits(location)
	if asked.Load() != 0 {
		t.Error("the helper was asked for the share of a batch that is held")
	}
	p.restartLeader(aggregator.Expectation{Reports: 6})
	p.step()
	a := p.poll(location)
	if a.status != http.StatusOK || len(a.body) == 0 {
		t.Fatalf("collection: status %d, %d bytes", a.status, len(a.body))
	}
	if resp, _ := p.open(q, a.body); resp.ReportCount != 11 {
		t.Errorf("%d reports", resp.ReportCount)
	}
	if task := p.leaderTask(); len(task.Held) != 0 {
		t.Errorf("still held: %+v", task.Held)
	}
}

// TestHelperHoldsTooManyReports: the helper's expectation is its own. It defers the
// answer, at once or later by its kind, the leader's operator is told where to look, and
// a helper that expects more releases the batch.
func TestHelperHoldsTooManyReports(t *testing.T) {
	for name, kind := range map[string]helper.Deferred{"at once": helper.Never, "deferred": helper.Always} {
		for _, mode := range []dap.BatchMode{dap.TimeInterval, dap.LeaderSelected} {
			t.Run(name+"/"+mode.String(), func(t *testing.T) {
				few := aggregator.Expectation{Reports: 5, Units: 24}
				var told atomic.Int64
				p := newPair(t, setup{mode: mode, helper: func(o *helper.Options) {
					o.Deferred, o.Tasks, o.Observe = kind, expecting(o.Tasks, few), heldOnce(&told)
				}})
				p.accept(p.reports(12)...)
				work := func() {
					for range 4 {
						p.step()
						p.clock.advance(2 * time.Minute)
					}
				}
				work()
				q := p.query()
				location := p.ask(q).header.Get("Location")
				work()
				p.waits(location)
				task := p.helperTask()
				if len(task.Held) != 1 || task.Held[0].Reports != 12 || task.Held[0].Expected != 5 || told.Load() != 1 {
					t.Errorf("helper: held %+v, told %d times", task.Held, told.Load())
				}
				if why := status.Why(task); len(why) == 0 || !strings.Contains(why[0].Blocks, "is not known") {
					t.Errorf("helper: why %+v", why)
				}
				if task.Counts.Collected != 0 {
					t.Error("the helper released the batch")
				}
				if why := status.Why(p.leaderTask()); len(why) == 0 || !strings.Contains(why[0].Blocks, "the helper holds batches with too many reports (1)") {
					t.Errorf("leader: why %+v", why)
				}
				p.restartHelper(few)
				p.restartLeader(aggregator.Expectation{})
				work()
				p.waits(location)
				if held := p.helperTask().Held; len(held) != 1 {
					t.Errorf("after a restart: held %+v", held)
				}
				p.restartHelper(aggregator.Expectation{Reports: 6, Units: 24})
				work()
				a := p.poll(location)
				if a.status != http.StatusOK || len(a.body) == 0 {
					t.Fatalf("collection: status %d, %d bytes", a.status, len(a.body))
				}
				if resp, _ := p.open(q, a.body); resp.ReportCount != 12 {
					t.Errorf("%d reports", resp.ReportCount)
				}
			})
		}
	}
}

// TestHeldByItsFullestRound: a batch of many rounds is not measured by what an attacker
// stretches it to with a report at each end: leader and helper, each by itself, hold it
// for the round that is too full. Rounds of which none is are released, however many
// there are and however far apart.
func TestHeldByItsFullestRound(t *testing.T) {
	const rounds, units = 12, 2
	few := aggregator.Expectation{Reports: 5, Units: units}
	for name, c := range map[string]struct {
		of           map[dap.Time]int // reports, by their round
		leader, held bool             // who expects so few; is it held
	}{
		"stretched, at the leader":    {map[dap.Time]int{0: 1, 5: 11, rounds - 1: 1}, true, true},
		"stretched, at the helper":    {map[dap.Time]int{0: 1, 5: 11, rounds - 1: 1}, false, true},
		"full rounds, at the leader":  {map[dap.Time]int{0: 10, 5: 10, rounds - 1: 10}, true, false},
		"sparse rounds at the leader": {map[dap.Time]int{0: 4, 1: 5, rounds - 1: 5}, true, false},
		"full rounds, at the helper":  {map[dap.Time]int{0: 10, 5: 10, rounds - 1: 10}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := setup{calendar: &aggregator.Calendar{Units: units}}
			if c.leader {
				s.leader = func(o *leader.Options) { o.Tasks = expecting(o.Tasks, few) }
			} else {
				s.helper = func(o *helper.Options) { o.Tasks = expecting(o.Tasks, few) }
			}
			p := newPair(t, s)
			start := p.now() - (rounds+1)*units
			start -= start % units
			for round, n := range c.of {
				at := start + round*units
				for i := range n {
					p.accept(p.report(i%buckets, spoil{Time: &at}))
				}
			}
			p.step()
			q := p.query()
			q.Query.Interval = dap.Interval{Start: start, Duration: rounds * units}
			location := p.ask(q).header.Get("Location")
			for range 4 {
				p.step()
				p.clock.advance(2 * time.Minute)
			}
			task := p.helperTask()
			if c.leader {
				task = p.leaderTask()
			}
			if !c.held {
				if a := p.poll(location); a.status != http.StatusOK || len(a.body) == 0 || len(task.Held) > 0 {
					t.Fatalf("collection: status %d, %d bytes; held %+v", a.status, len(a.body), task.Held)
				}
				return
			}
			p.waits(location)
			if len(task.Held) != 1 || task.Held[0].Reports != 11 || task.Held[0].Expected != 5 || !task.Held[0].OneRound || task.Counts.Collected != 0 {
				t.Fatalf("held %+v, %d collected", task.Held, task.Counts.Collected)
			}
			if why := status.Why(task); len(why) == 0 || !strings.Contains(why[0].Blocks, "11 reports of one round is held, more than twice the 5") {
				t.Errorf("why: %+v", why)
			}
		})
	}
}

// TestShareHeldIsAResource: the request for a held batch is a resource like any deferred
// one. Equal bytes find it, other batches go their way beside it, and deleting it ends
// the alarm but opens nothing.
func TestShareHeldIsAResource(t *testing.T) {
	p := newPair(t, setup{helper: func(o *helper.Options) {
		o.Tasks = expecting(o.Tasks, aggregator.Expectation{Reports: 5})
	}})
	many := p.reports(12)
	p.resps(p.postInit(p.initReq(p.kit.Inits(many...), nil)))
	body := p.shareReq(nil, many...)
	first := p.postShare(body)
	location := first.header.Get("Location")
	if first.status != http.StatusCreated || len(first.body) != 0 || first.header.Get("Retry-After") != "60" || location == "" {
		t.Fatalf("status %d, %d bytes, Location %q", first.status, len(first.body), location)
	}
	p.step()
	if again := p.postShare(body); again.header.Get("Location") != location || len(again.body) != 0 {
		t.Errorf("again: Location %q, want %q", again.header.Get("Location"), location)
	}
	// A batch of another time, no larger than it may be.
	p.clock.advance(10 * precision * time.Second)
	fair := p.reports(10)
	p.resps(p.postInit(p.initReq(p.kit.Inits(fair...), nil)))
	if a := p.postShare(p.shareReq(nil, fair...)); a.status != http.StatusCreated || len(a.body) == 0 {
		t.Errorf("a batch of 10: status %d, %d bytes", a.status, len(a.body))
	}
	if a := p.call("DELETE", p.helperURL, location, "", peerToken, nil); a.status != http.StatusNoContent {
		t.Fatalf("delete: status %d", a.status)
	}
	if task := p.helperTask(); len(task.Held) != 0 || task.Counts.Collected != 10 {
		t.Errorf("after the deletion: held %+v, %d collected", task.Held, task.Counts.Collected)
	}
	p.anew()
	next := p.postShare(body)
	if next.status != http.StatusCreated || len(next.body) != 0 || bytes.Equal([]byte(next.header.Get("Location")), []byte(location)) {
		t.Errorf("after the deletion: status %d, %d bytes", next.status, len(next.body))
	}
}
