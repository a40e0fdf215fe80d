package aggregator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
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
	"github.com/starling-agg/starling/internal/releases"
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
	want := status.Held{Verdict: status.TooMany, Reports: 11, Expected: 5, Epsilon: 1.25, Delta: 1e-9}
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
				if why := status.Why(p.leaderTask()); len(why) == 0 || !strings.Contains(why[0].Blocks, "the helper holds batches, for too many reports or too few (1)") {
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

// rated is the tasks with a rate.
func rated(tasks []aggregator.Task, r aggregator.Rate) []aggregator.Task {
	tasks = slices.Clone(tasks)
	tasks[0].Rate = &r
	return tasks
}

// comparedTo counts the verdicts that an observer is told.
type comparedTo map[status.Verdict]int

func (c comparedTo) observe(o *aggregator.Observer) {
	o.Compared = func(v status.Verdict) { c[v]++ }
}

// over is a round that is over.
func (p *pair) over() dap.Time { return p.now() - 2 }

// askRound asks for a round.
func (p *pair) askRound(round dap.Time) (q dap.CollectionJobReq, location string) {
	p.t.Helper()
	q = p.query()
	q.Query.Interval = dap.Interval{Start: round, Duration: 1}
	return q, p.ask(q).header.Get("Location")
}

// goOn has both aggregators do what they can, some minutes long.
func (p *pair) goOn() {
	p.t.Helper()
	for range 4 {
		p.step()
		p.clock.advance(2 * time.Minute)
	}
}

// alone is the calendar of a task whose rounds of one unit are released alone.
var alone = aggregator.Calendar{Units: 1, Alone: true}

// TestHoldsTooFewSenders: a round that has its minimum, but fewer reports than devices as
// many as the guarantee counts on send whatever their answers, is held open at the leader,
// which does not ask its helper for it; it is released once more come, and given up once
// none can. Of 100 devices that send with 1/2, 15 or fewer do once in 2^41.8, and 16 or
// fewer once in 2^39.5.
func TestHoldsTooFewSenders(t *testing.T) {
	for name, c := range map[string]struct {
		more     []int // reports that come later, in turn; the last of them are enough
		released uint64
	}{"more come": {[]int{3, 1}, 16}, "too few for ever": {[]int{3}, 0}} {
		t.Run(name, func(t *testing.T) {
			coins := aggregator.Rate{Senders: 100, Least: 0.5, Most: 0.75}
			told := map[dap.Role]comparedTo{dap.RoleLeader: {}, dap.RoleHelper: {}}
			var held atomic.Int64
			s := setup{calendar: &alone, leader: func(o *leader.Options) {
				o.Tasks, o.Observe = rated(o.Tasks, coins), heldOnce(&held)
				told[dap.RoleLeader].observe(&o.Observe)
			}, helper: func(o *helper.Options) {
				o.Tasks = rated(o.Tasks, coins)
				told[dap.RoleHelper].observe(&o.Observe)
			}}
			if c.released == 0 {
				s.interval = &dap.Interval{Start: dap.Time(today().Unix()/precision - 24), Duration: 25} // until the end of this hour
			}
			p := newPair(t, s)
			var asked atomic.Int64
			p.between(func(next http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if creates(r, "aggregate_shares") {
						asked.Add(1)
					}
					next.ServeHTTP(w, r)
				})
			})
			round := p.over()
			send := func(n int) {
				for i := range n {
					p.accept(p.report(i%buckets, spoil{Time: &round}))
				}
				p.goOn()
			}
			send(12)
			q, location := p.askRound(round)
			p.goOn()
			reports := uint64(12)
			for _, n := range append([]int{0}, c.more[:len(c.more)-1]...) {
				send(n)
				reports += uint64(n)
				p.waits(location)
				if told := p.poll(location).header.Get(releases.WaitingHeader); told != string(releases.ForReports) {
					t.Errorf("the collector is told that it waits for %q", told)
				}
				task := p.leaderTask()
				if len(task.Held) != 1 || task.Held[0] != (status.Held{Verdict: status.TooFew, Start: uint64(round), Duration: 1, Reports: reports, Senders: 100}) {
					t.Fatalf("held %+v", task.Held)
				}
				if why := status.Why(task); len(why) == 0 || !strings.Contains(why[0].Blocks, fmt.Sprintf("a batch of %d reports is held: of 100 devices", reports)) ||
					!strings.Contains(why[0].Do, "have more devices take part") {
					t.Errorf("why %+v", why)
				}
			}
			if task := p.leaderTask(); task.Rate == nil || task.Rate.Verdict != status.TooFew || task.Batches[0].State != "open" {
				t.Errorf("rate %+v, batches %+v", task.Rate, task.Batches)
			}
			if n := strings.Count(p.log.String(), "a batch is held"); n != 1 || held.Load() != 1 || asked.Load() != 0 {
				t.Errorf("%d alarms in the log, %d told; the helper was asked %d times", n, held.Load(), asked.Load())
			}
			send(c.more[len(c.more)-1])
			if c.released == 0 {
				p.clock.advance(2 * time.Hour)
				p.goOn()
				if a := p.poll(location); a.status != http.StatusBadRequest || !strings.Contains(string(a.body), string(dap.ProblemInvalidBatchSize)) {
					t.Fatalf("collection: status %d %q", a.status, a.body)
				}
				if n := asked.Load(); n != 0 {
					t.Errorf("the helper was asked %d times", n)
				}
				return
			}
			a := p.poll(location)
			if a.status != http.StatusOK || len(a.body) == 0 {
				t.Fatalf("collection: status %d, %d bytes; held %+v", a.status, len(a.body), p.leaderTask().Held)
			}
			if resp, _ := p.open(q, a.body); resp.ReportCount != c.released {
				t.Errorf("%d reports", resp.ReportCount)
			}
			for role, task := range map[dap.Role]*status.Task{dap.RoleLeader: p.leaderTask(), dap.RoleHelper: p.helperTask()} {
				if len(task.Held) != 0 || task.Rate == nil || task.Rate.Verdict != status.AsExpected || task.Rate.Reports != c.released || task.Rate.Senders != 100 {
					t.Errorf("%v: held %+v, rate %+v", role, task.Held, task.Rate)
				}
				want := comparedTo{status.AsExpected: 1}
				if role == dap.RoleLeader {
					want[status.TooFew] = 1
				}
				if !maps.Equal(told[role], want) {
					t.Errorf("%v is told %v, want %v", role, told[role], want)
				}
			}
		})
	}
}

// TestHelperHoldsTooFewSenders: a leader that asks for a round of too few devices gets no
// share of it, in whatever life of the helper's.
func TestHelperHoldsTooFewSenders(t *testing.T) {
	for name, kind := range map[string]helper.Deferred{"at once": helper.Never, "deferred": helper.Always} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, setup{calendar: &alone, leader: func(o *leader.Options) {
				o.Tasks = rated(o.Tasks, aggregator.Rate{Senders: 100, Least: 0.5, Most: 0.75})
			}, helper: func(o *helper.Options) {
				o.Deferred, o.Tasks = kind, rated(o.Tasks, aggregator.Rate{Senders: 200, Least: 0.5, Most: 0.75})
			}})
			round := p.over()
			for i := range 15 {
				p.accept(p.report(i%buckets, spoil{Time: &round}))
			}
			p.goOn()
			_, location := p.askRound(round)
			p.goOn()
			if mine, theirs := p.leaderTask().Held, p.helperTask().Held; len(mine) != 1 || len(theirs) != 0 {
				t.Errorf("held: %+v, at the helper %+v", mine, theirs)
			}
			p.accept(p.report(1, spoil{Time: &round})) // enough for the leader
			for life := range 2 {
				p.goOn()
				p.waits(location)
				if held := p.leaderTask().Held; len(held) != 0 {
					t.Errorf("the leader holds it: %+v", held)
				}
				task := p.helperTask()
				if len(task.Held) != 1 || task.Held[0].Verdict != status.TooFew || task.Held[0].Reports != 16 || task.Counts.Collected != 0 ||
					task.Rate == nil || task.Rate.Verdict != status.TooFew {
					t.Errorf("life %d: held %+v, %d collected, rate %+v", life, task.Held, task.Counts.Collected, task.Rate)
				}
				if why := status.Why(p.leaderTask()); len(why) == 0 || !strings.Contains(why[0].Blocks, "the helper holds batches") {
					t.Errorf("life %d: leader: why %+v", life, why)
				}
				p.restartHelper(aggregator.Expectation{})
			}
		})
	}
}

// TestComparesWithCredentials: leader and helper, each by what its own issuer gave out,
// hold a round whose devices are fewer than the guarantee counts on, one in which more
// credentials were shown than there are, and one of more than twice as many reports as
// coins of that many devices bring; and say so of one with more than chance brings. While
// an issuer does not say how many there are the round waits.
func TestComparesWithCredentials(t *testing.T) {
	for name, c := range map[string]struct {
		rate    *aggregator.Rate
		issued  uint64
		reports int
		verdict status.Verdict
		held    bool
		why     string // at the aggregator whose issuer that is
	}{
		"fewer than are counted on":    {&aggregator.Rate{Senders: 100, Least: 0.05, Most: 0.1}, 99, 12, status.TooFew, true, "99 devices have credentials, and the guarantee counts on 100"},
		"as many as are counted on":    {&aggregator.Rate{Senders: 100, Least: 0.05, Most: 0.1}, 100, 12, status.AsExpected, false, ""},
		"forged":                       {&aggregator.Rate{Senders: 10, Least: 0.1, Most: 1}, 11, 12, status.Forged, true, "12 credentials were shown in a round, and this aggregator's issuer has given out 11"},
		"forged, nothing is sampled":   {nil, 11, 12, status.Forged, true, "12 credentials were shown in a round, and this aggregator's issuer has given out 11"},
		"all come, nothing is sampled": {nil, 12, 12, status.AsExpected, false, ""},
		"flooded":                      {&aggregator.Rate{Senders: 10, Least: 0.01, Most: 0.01}, 200, 30, status.TooMany, true, "30 reports is held, more than twice the 2 expected of 200 devices with credentials"},
		"more than chance brings":      {&aggregator.Rate{Senders: 10, Least: 0.01, Most: 0.6}, 80, 80, status.TooMany, false, "more reports than coins of honest devices explain"},
	} {
		for _, at := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
			t.Run(name+"/"+at.String(), func(t *testing.T) {
				t.Parallel()
				s := setup{}
				if c.rate != nil {
					s.calendar = &alone
				}
				p := newCounted(t, s)
				told := comparedTo{}
				set := func(o *aggregator.Options) {
					o.Tasks = slices.Clone(o.Tasks)
					o.Tasks[0].Rate = c.rate
					told.observe(&o.Observe)
				}
				if at == dap.RoleLeader {
					set(&p.leaderOpt.Options)
				} else {
					set(&p.helperOpt.Options)
					if c.held {
						p.helperOpt.Deferred = helper.Always
					}
				}
				p.restart()
				round := p.over()
				for range c.reports {
					p.accept(p.report(1, p.shows(p.holder(), round)))
				}
				p.goOn()
				p.settled(uint64(c.reports), nil)
				x := p.issuers[at]
				x.set(func(x *issued) { x.most, x.told = &c.issued, errors.New("the register cannot be read") })
				q, location := p.askRound(round)
				p.goOn()
				if at == dap.RoleLeader {
					p.waits(location)
					if why := status.Why(p.leaderTask()); len(why) == 0 || !strings.Contains(why[0].Blocks, "how many credentials were given out is not known: the register cannot be read") {
						t.Errorf("why %+v", why)
					}
				} else if p.waits(location); !c.held && !strings.Contains(p.log.String(), `a share waits" why="how many credentials`) {
					t.Error("nothing of it is in the log")
				}
				x.set(func(x *issued) { x.told = nil })
				p.clock.advance(time.Hour)
				p.goOn()
				task := p.helperTask()
				if at == dap.RoleLeader {
					task = p.leaderTask()
				}
				if task.Rate == nil || task.Rate.Verdict != c.verdict || !maps.Equal(told, comparedTo{c.verdict: 1}) {
					t.Errorf("rate %+v, told %v", task.Rate, told)
				}
				why := status.Why(task)
				if c.why != "" && (len(why) == 0 || !strings.Contains(why[0].Blocks, c.why)) {
					t.Errorf("why %+v", why)
				}
				if c.held {
					p.waits(location)
					if len(task.Held) != 1 || task.Held[0].Verdict != c.verdict || *task.Held[0].Devices != c.issued || task.Counts.Collected != 0 {
						t.Errorf("held %+v, %d collected", task.Held, task.Counts.Collected)
					}
					return
				}
				a := p.poll(location)
				if a.status != http.StatusOK || len(a.body) == 0 || len(task.Held) > 0 {
					t.Fatalf("collection: status %d, %d bytes; held %+v", a.status, len(a.body), task.Held)
				}
				if resp, _ := p.open(q, a.body); resp.ReportCount != uint64(c.reports) {
					t.Errorf("%d reports", resp.ReportCount)
				}
			})
		}
	}
}

// TestForgedInALeaderSelectedBatch: of a batch whose reports may be of any round nothing is
// released either, once more credentials were shown in one than there are.
func TestForgedInALeaderSelectedBatch(t *testing.T) {
	for _, at := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
		t.Run(at.String(), func(t *testing.T) {
			p := newCounted(t, setup{mode: dap.LeaderSelected})
			most := uint64(11)
			p.issuers[at].set(func(x *issued) { x.most = &most })
			p.accept(p.crowd(12)...)
			p.settled(12, nil)
			location := p.ask(p.query()).header.Get("Location")
			p.goOn()
			p.waits(location)
			task := p.helperTask()
			if at == dap.RoleLeader {
				task = p.leaderTask()
			}
			if len(task.Held) != 1 || task.Held[0].Verdict != status.Forged || task.Held[0].Reports != 12 || *task.Held[0].Devices != 11 || task.Counts.Collected != 0 {
				t.Errorf("held %+v, %d collected", task.Held, task.Counts.Collected)
			}
		})
	}
}

// TestFloodWithoutCredentials: reports of strangers never enter what is compared, however
// many they are.
func TestFloodWithoutCredentials(t *testing.T) {
	p := newCounted(t, setup{calendar: &alone})
	rate := aggregator.Rate{Senders: 10, Least: 0.5, Most: 1}
	p.leaderOpt.Tasks, p.helperOpt.Tasks = rated(p.leaderOpt.Tasks, rate), rated(p.helperOpt.Tasks, rate)
	p.restart()
	round := p.over()
	for range 12 {
		p.accept(p.report(1, p.shows(p.holder(), round)))
	}
	var flood []dap.Report
	for range 200 {
		flood = append(flood, p.report(1, spoil{Time: &round}))
	}
	p.accept(flood...)
	p.settled(12, map[string]uint64{"invalid_message": 200})
	_, location := p.askRound(round)
	p.goOn()
	if a := p.poll(location); a.status != http.StatusOK || len(a.body) == 0 {
		t.Fatalf("collection: status %d, %d bytes", a.status, len(a.body))
	}
	for _, task := range []*status.Task{p.leaderTask(), p.helperTask()} {
		if task.Rate == nil || task.Rate.Verdict != status.AsExpected || task.Rate.Reports != 12 || *task.Rate.Devices != 12 {
			t.Errorf("rate %+v", task.Rate)
		}
	}
}

// saidOf is what a log says of every epoch, and why it fails.
type saidOf struct {
	said    status.Cohort
	failing string
}

// Cohort implements [aggregator.Cohorts].
func (x saidOf) Cohort([32]byte, uint64) status.Cohort { return x.said }

// Published implements [aggregator.Cohorts].
func (x saidOf) Published() *status.Published {
	return &status.Published{Log: "log.example", Failing: x.failing, Epochs: []status.Cohort{x.said}}
}

// TestComparesWithTheLog: leader and helper each hold a batch of which more credentials were
// shown in a round than any of leader, helper and attester say in the log that there are,
// though their own issuer has given out enough; what the log has not said holds nothing up,
// nor does a log that fails. What it says is in status, levels and reasons.
func TestComparesWithTheLog(t *testing.T) {
	few, enough, more := uint64(11), uint64(12), uint64(13)
	for name, c := range map[string]struct {
		of    saidOf
		says  string // who is believed, where it is held
		alarm string
	}{
		"the leader's issuer": {saidOf{said: status.Cohort{Leader: &few, Helper: &enough, Attester: &enough}}, "leader", ""},
		"the helper's issuer": {saidOf{said: status.Cohort{Leader: &enough, Helper: &few, Attester: &enough}}, "helper", ""},
		"the attester":        {saidOf{said: status.Cohort{Leader: &enough, Attester: &few}}, "attester", "11 devices were let ask for credentials, and the leader's owner says that its issuer has answered 12"},
		"all, and as many":    {saidOf{said: status.Cohort{Leader: &enough, Helper: &more, Attester: &more}}, "", ""},
		"nobody yet":          {saidOf{failing: "it is down"}, "", "the log log.example was found good last: never"},
	} {
		for _, at := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
			t.Run(name+"/"+at.String(), func(t *testing.T) {
				t.Parallel()
				p := newCounted(t, setup{mode: dap.LeaderSelected})
				if at == dap.RoleLeader {
					p.leaderOpt.Cohorts = c.of
				} else {
					p.helperOpt.Cohorts = c.of
				}
				p.restart()
				p.accept(p.crowd(12)...)
				p.settled(12, nil)
				location := p.ask(p.query()).header.Get("Location")
				p.goOn()
				s, levels := must(p.leader.Status(t.Context())), p.leader.Levels()
				if at == dap.RoleHelper {
					s, levels = must(p.helper.Status(t.Context())), p.helper.Levels()
				}
				task := &s.Tasks[0]
				if s.Published == nil || s.Published.Log != "log.example" || levels.LogFailing > 0 != (c.of.failing != "") || levels.CohortAlarms > 0 != (c.says == "attester") {
					t.Errorf("published %+v, levels %+v", s.Published, levels)
				}
				if reasons := fmt.Sprint(s.Reasons()); (c.alarm != "") != strings.Contains(reasons, "log") && c.says != "attester" || !strings.Contains(reasons, c.alarm) {
					t.Errorf("reasons %s", reasons)
				}
				if c.says == "" {
					if a := p.poll(location); a.status != http.StatusOK || len(a.body) == 0 || len(task.Held) > 0 {
						t.Fatalf("collection: status %d, %d bytes; held %+v", a.status, len(a.body), task.Held)
					}
					return
				}
				p.waits(location)
				if len(task.Held) != 1 || task.Held[0].Verdict != status.Forged || task.Held[0].Says != c.says || *task.Held[0].Devices != 11 || task.Counts.Collected != 0 {
					t.Fatalf("held %+v, %d collected", task.Held, task.Counts.Collected)
				}
				if why := status.Why(task); len(why) == 0 || !strings.Contains(why[0].Blocks, c.says) || !strings.Contains(why[0].Blocks, "11: somebody makes them") ||
					!strings.Contains(why[0].Do, "find out whether the "+c.says+" said too little") {
					t.Errorf("why %+v", why)
				}
			})
		}
	}
}
