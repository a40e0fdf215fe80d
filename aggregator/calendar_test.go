package aggregator_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/releases"
)

// calendared is a task of rounds of four hours that are released alone, half a minute
// after their end and the clock skew.
func calendared(t *testing.T, c aggregator.Calendar) *pair {
	t.Helper()
	return newPair(t, setup{calendar: &c})
}

const skew = 5 * time.Minute // of aggregator.Limits

// TestReleaseAtItsTime: leader and helper each look at a clock of their own, and at
// nothing else: a minute before end, grace and skew nothing is released, and a second
// after it the round is (release.TestAllowed has the instant itself). One whose clock is
// slow holds the other up, and does not fail it.
func TestReleaseAtItsTime(t *testing.T) {
	const units, grace = 4, 30 * time.Second
	p := calendared(t, aggregator.Calendar{Units: units, Alone: true, Grace: grace})
	p.between(strangers) // others would not go on with clocks as these
	helperClock := &clock{}
	p.helperOpt.Clock = helperClock
	if err := p.helper.Close(); err != nil {
		t.Fatal(err)
	}
	p.startHelper()
	start := p.now() - p.now()%units
	reports := make([]dap.Report, 12)
	for i := range reports {
		reports[i] = p.report(i%buckets, spoil{Time: &start})
	}
	p.accept(reports...)
	q := p.query()
	q.Query.Interval = dap.Interval{Start: start, Duration: units}
	due := must(dap.TimePrecision(precision).Begin(start + units)).Add(grace + skew)
	set := func(c *clock, at time.Time) { c.shift.Store(int64(at.Sub(today()))) }

	a := p.ask(q)
	for _, at := range []time.Time{p.clock.Now(), due.Add(-grace - skew), due.Add(-skew), due.Add(-time.Minute)} {
		set(p.clock, at)
		set(helperClock, due.Add(time.Hour)) // it would give its share
		p.step()
		if got := p.poll(a.header.Get("Location")); got.status != http.StatusOK || len(got.body) > 0 || got.header.Get("Retry-After") == "" {
			t.Fatalf("at %v, due %v: status %d, %d bytes", at, due, got.status, len(got.body))
		} else if waits := got.header.Get(releases.WaitingHeader); waits != string(releases.ForRound) {
			t.Errorf("at %v, due %v: %s is %q", at, due, releases.WaitingHeader, waits)
		}
	}
	p.accept(p.report(1, spoil{Time: &start})) // the round took reports all the time
	// The leader's clock is there, the helper's is not.
	set(p.clock, due.Add(time.Second))
	set(helperClock, due.Add(-time.Minute))
	p.step()
	if got := p.poll(a.header.Get("Location")); got.status != http.StatusOK || len(got.body) > 0 {
		t.Fatalf("released by one clock: status %d, %d bytes", got.status, len(got.body))
	}
	set(p.clock, due.Add(2*time.Hour)) // past the leader's back-off
	set(helperClock, due.Add(time.Second))
	p.step()
	got := p.poll(a.header.Get("Location"))
	if got.status != http.StatusOK || len(got.body) == 0 {
		t.Fatalf("at its time: status %d, %d bytes", got.status, len(got.body))
	}
	if resp, _ := p.open(q, got.body); resp.ReportCount != 13 {
		t.Errorf("%d reports, want 13", resp.ReportCount)
	}
}

// TestLeaderWaitsForGateway: a leader that begins when a round is due already may have
// been away while a gateway kept reports for it. It drains nothing for one grace.
func TestLeaderWaitsForGateway(t *testing.T) {
	const grace = time.Hour
	p := calendared(t, aggregator.Calendar{Units: 1, Grace: grace})
	start := p.now() - 24
	reports := make([]dap.Report, 10)
	for i := range reports {
		reports[i] = p.report(i%buckets, spoil{Time: &start})
	}
	p.accept(reports...)
	q := p.query()
	q.Query.Interval = dap.Interval{Start: start, Duration: 1}
	a := p.ask(q)
	p.clock.advance(grace - time.Minute)
	p.step()
	if got := p.poll(a.header.Get("Location")); len(got.body) > 0 {
		t.Fatal("released before what a gateway kept could come")
	}
	p.accept(p.report(0, spoil{Time: &start})) // from the gateway
	p.clock.advance(2 * time.Minute)
	p.step()
	got := p.poll(a.header.Get("Location"))
	if len(got.body) == 0 {
		t.Fatal("never released")
	}
	if resp, _ := p.open(q, got.body); resp.ReportCount != 11 {
		t.Errorf("%d reports, want 11", resp.ReportCount)
	}
}

// TestEarlySharesHideNoOther: shares that were asked for when they were due, of a helper
// whose clock was put back since, wait until they are due again, and one that is due all
// the same does not wait behind them.
func TestEarlySharesHideNoOther(t *testing.T) {
	p := newPair(t, setup{calendar: &aggregator.Calendar{Units: 1, Alone: true}, helper: func(o *helper.Options) { o.Deferred = helper.Always }})
	now := p.now()
	p.clock.advance(12 * precision * time.Second)
	var questions [][]byte
	for _, start := range []dap.Time{now, now + 1, now + 2, now + 3, now - 24} {
		reports := make([]dap.Report, 10)
		for i := range reports {
			reports[i] = p.report(i%buckets, spoil{Time: &start})
		}
		p.postInit(p.initReq(p.kit.Inits(reports...), nil))
		questions = append(questions, p.shareReq(func(r *dap.AggregateShareReq) {
			r.BatchSelector.Interval = dap.Interval{Start: start, Duration: 1}
			q := dap.CollectionJobReq{Query: dap.Query{Mode: dap.TimeInterval, Interval: r.BatchSelector.Interval}}
			r.CollectionJobReq = must(dap.ReadCollectionJobReq(must(q.Append(nil))))
		}, reports...))
	}
	p.step()
	var shares []string
	for _, q := range questions {
		a := p.postShare(q)
		if a.status != http.StatusCreated || len(a.body) > 0 {
			t.Fatalf("status %d, %d bytes", a.status, len(a.body))
		}
		shares = append(shares, a.header.Get("Location"))
	}
	released := func() (n int, last bool) {
		p.step()
		for _, share := range shares {
			if last = len(p.call("GET", p.helperURL, share, "", peerToken, nil).body) > 0; last {
				n++
			}
		}
		return n, last
	}
	p.clock.advance(-12 * precision * time.Second)
	if n, last := released(); n != 1 || !last {
		t.Errorf("with the clock put back: %d shares are there, that of the oldest round: %v", n, last)
	}
	p.clock.advance(12 * precision * time.Second)
	if n, _ := released(); n != len(shares) {
		t.Errorf("%d shares are there, want all %d", n, len(shares))
	}
}

// TestCollectionsAheadHideNoOther: a collector asks for as many rounds to come as may
// wait. One more is 429, until one of them is deleted, and a round that is due is
// released although all others were asked for before.
func TestCollectionsAheadHideNoOther(t *testing.T) {
	const most = 1024
	p := calendared(t, aggregator.Calendar{Units: 1, Alone: true})
	now := p.now()
	start := now - 24
	reports := make([]dap.Report, 10)
	for i := range reports {
		reports[i] = p.report(i%buckets, spoil{Time: &start})
	}
	p.accept(reports...)
	ask := func(start dap.Time) answer {
		q := p.query()
		q.Query.Interval = dap.Interval{Start: start, Duration: 1}
		return p.ask(q)
	}
	first := ask(now + 1)
	for i := range dap.Time(most - 1) {
		if a := ask(now + 2 + i); a.status != http.StatusCreated {
			t.Fatalf("%d ahead: status %d", i+2, a.status)
		}
	}
	if a := ask(start); a.status != http.StatusTooManyRequests || a.header.Get("Retry-After") == "" {
		t.Fatalf("more than wait: status %d", a.status)
	}
	if again := ask(now + 1); again.status != http.StatusCreated || again.header.Get("Location") != first.header.Get("Location") {
		t.Errorf("one that waits, again: status %d", again.status)
	}
	if a := p.call("DELETE", p.leaderURL, first.header.Get("Location"), "", collectorToken, nil); a.status != http.StatusNoContent {
		t.Fatalf("delete: status %d", a.status)
	}
	due := ask(start)
	p.step()
	if a := p.poll(due.header.Get("Location")); a.status != http.StatusOK || len(a.body) == 0 {
		t.Errorf("the round that is due: status %d, %d bytes", a.status, len(a.body))
	}
}

// TestSelectedWaitsForGateway: a batch of the leader's choice that is too small when the
// task is over is not given up before the grace is, in which a gateway brings what it
// kept.
func TestSelectedWaitsForGateway(t *testing.T) {
	const grace = 3 * time.Hour
	now := must(dap.TimePrecision(precision).At(today()))
	p := newPair(t, setup{mode: dap.LeaderSelected, interval: &dap.Interval{Start: now, Duration: 1},
		calendar: &aggregator.Calendar{Units: 1, Grace: grace}})
	p.accept(p.reports(9)...)
	q := p.query()
	loc := p.ask(q).header.Get("Location")
	p.clock.advance(2 * precision * time.Second) // the task is over, and the skew
	p.step()
	if a := p.poll(loc); a.status != http.StatusOK || len(a.body) != 0 {
		t.Fatalf("in the grace: status %d", a.status)
	}
	p.accept(p.report(0, spoil{Time: &now})) // from the gateway
	p.step()
	if resp, _ := p.open(q, p.poll(loc).body); resp.ReportCount != 10 {
		t.Errorf("%d reports, want 10", resp.ReportCount)
	}
	loc = p.ask(q).header.Get("Location")
	p.clock.advance(grace)
	p.step()
	if a := p.poll(loc); len(a.body) == 0 && a.status == http.StatusOK {
		t.Error("waits for ever")
	}
}

// TestMaxAgeCountsRounds: a report of the round that was MaxAge ago is taken whatever
// unit of it MaxAge ago was, and one of the round before is not.
func TestMaxAgeCountsRounds(t *testing.T) {
	const units = 24
	p := calendared(t, aggregator.Calendar{Units: units, Alone: true})
	if err := p.leader.Close(); err != nil {
		t.Fatal(err)
	}
	p.leaderOpt.Limits.MaxAge = 72 * time.Hour
	p.startLeader()
	first := p.now() - 72
	first -= first % units
	before := first - units
	p.accept(p.report(0, spoil{Time: &first}))
	if refused := p.uploadErrors(p.upload(p.report(0, spoil{Time: &before}))); len(refused) != 1 || refused[0].Error != dap.ReportDropped {
		t.Errorf("a report of the round before: %v", refused)
	}
}

// TestCalendarRefuses: what no task may be provisioned with, at leader and helper alike.
func TestCalendarRefuses(t *testing.T) {
	p := newPair(t, setup{})
	selected := newPair(t, setup{mode: dap.LeaderSelected})
	series, _ := seriesSetup(t)
	for name, c := range map[string]struct {
		of       *pair
		calendar aggregator.Calendar
		change   func(*aggregator.Task)
	}{
		"no length":       {p, aggregator.Calendar{}, nil},
		"no end":          {p, aggregator.Calendar{Units: 1 << 63}, nil},
		"negative grace":  {p, aggregator.Calendar{Units: 1, Grace: -1}, nil},
		"leader-selected": {selected, aggregator.Calendar{Units: 1, Alone: true}, nil},
		"expects reports of parts of a round": {p, aggregator.Calendar{Units: 24}, func(task *aggregator.Task) {
			task.Expected = aggregator.Expectation{Reports: 5, Units: 1}
		}},
		"expects reports of a round and a part": {p, aggregator.Calendar{Units: 24}, func(task *aggregator.Task) {
			task.Expected = aggregator.Expectation{Reports: 5, Units: 36}
		}},
		"other rounds than the noise": {p, aggregator.Calendar{Units: 2, Alone: true},
			func(task *aggregator.Task) { task.Noise, task.Series = series.noise, series.series }},
	} {
		task := c.of.task
		if c.change != nil {
			c.change(&task)
		}
		for _, role := range []dap.Role{dap.RoleLeader, dap.RoleHelper} {
			if err := task.Validate(role); err != nil {
				t.Fatalf("%s: refused without a calendar: %v", name, err)
			}
			task := task
			task.Calendar = &c.calendar
			if task.Validate(role) == nil {
				t.Errorf("%s: the %v takes it", name, role)
			}
		}
	}
}
