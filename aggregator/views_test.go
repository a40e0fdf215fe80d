package aggregator_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/backup"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/internal/service/database"
)

// viewed is a pair whose rounds are units, released in views of one, three and six, for two
// rounds after the end of six; and the first unit of such a six, which begins at noon or
// before.
func viewed(t *testing.T, s setup) (p *pair, start dap.Time) {
	t.Helper()
	wider := func(s noise.Sampler) []aggregator.View {
		return []aggregator.View{{Rounds: 3, Noise: s}, {Rounds: 6, Noise: s}}
	}
	if s.noise == nil {
		s.noise = noise.Zero{}
	}
	s.calendar = &aggregator.Calendar{Units: 1, Alone: true, Views: &aggregator.Views{Wider: wider(s.noise), Keep: 2}}
	p = newPair(t, s)
	return p, p.now() - p.now()%6
}

// passes has the clock be where a unit begins, grace and skew over.
func (p *pair) passes(unit dap.Time) {
	p.t.Helper()
	at := must(dap.TimePrecision(precision).Begin(unit)).Add(skew + time.Second)
	p.clock.shift.Store(int64(at.Sub(today())))
}

// fill has a number of reports accepted of a unit.
func (p *pair) fill(unit dap.Time, n int) (rs []dap.Report) {
	p.t.Helper()
	for i := range n {
		rs = append(rs, p.report(i%buckets, spoil{Time: &unit}))
	}
	p.accept(rs...)
	return rs
}

func (p *pair) of(start dap.Time, units dap.Duration) dap.CollectionJobReq {
	q := p.query()
	q.Query.Interval = dap.Interval{Start: start, Duration: units}
	return q
}

// draws collects a span, and demands how many reports it has.
func (p *pair) draws(start dap.Time, units dap.Duration, reports uint64) (sum []int64) {
	p.t.Helper()
	resp, sum := p.collect(p.of(start, units))
	if resp.ReportCount != reports {
		p.t.Errorf("%d units: %d reports, want %d", units, resp.ReportCount, reports)
	}
	return sum
}

func (p *pair) both() {
	p.t.Helper()
	for _, c := range []interface{ Close() error }{p.leader, p.helper} {
		if err := c.Close(); err != nil {
			p.t.Fatal(err)
		}
	}
	p.startLeader()
	p.startHelper()
}

// TestViews: a collector that asks for every interval gets each span of each view once, with
// all reports that came before any view had them, and nothing else, over restarts.
func TestViews(t *testing.T) {
	p, start := viewed(t, setup{})
	p.fill(start, 10)
	p.passes(start + 1)
	p.fill(start+1, 12)
	p.draws(start, 1, 10)
	p.both()
	p.passes(start + 2)
	p.fill(start+2, 4) // too few for a round
	// What one view has takes no report any more.
	if refused := p.uploadErrors(p.upload(p.report(0, spoil{Time: &start}))); len(refused) != 1 || refused[0].Error != dap.BatchCollected {
		t.Errorf("a report for a round that was released: %v", refused)
	}
	// A view before its end waits, and stops nothing.
	early := p.ask(p.of(start, 3))
	p.step()
	if got := p.poll(early.header.Get("Location")); got.status != http.StatusOK || len(got.body) > 0 {
		t.Errorf("a view before its end: status %d, %d bytes", got.status, len(got.body))
	}
	p.passes(start + 3)
	for from := dap.Time(0); from < 7; from++ {
		for units := dap.Duration(0); units < 8; units++ {
			batch := units == 1 || units == 3 && from%3 == 0 || units == 6 && from%6 == 0
			if batch {
				continue
			}
			p.refused(p.ask(p.of(start+from, units)), dap.ProblemBatchInvalid, http.StatusBadRequest)
			p.refused(p.postShare(p.shareReq(func(r *dap.AggregateShareReq) {
				r.CollectionJobReq = must(dap.ReadCollectionJobReq(must(p.of(start+from, units).Append(nil))))
				r.BatchSelector.Interval = r.CollectionJobReq.Query.Interval
			})), dap.ProblemBatchInvalid, http.StatusBadRequest)
		}
	}
	sum := p.draws(start, 3, 26)
	if want := []int64{6, 6, 5, 5, 4}; !slices.Equal(sum, want) {
		t.Errorf("three rounds have %v, want %v", sum, want)
	}
	p.both()
	// A view that was released, again after it was deleted.
	loc := p.ask(p.of(start, 3)).header.Get("Location")
	if a := p.call("DELETE", p.leaderURL, loc, "", collectorToken, nil); a.status != http.StatusNoContent {
		t.Fatalf("delete: status %d", a.status)
	}
	p.anew()
	p.refused(p.ask(p.of(start, 3)), dap.ProblemBatchOverlap, http.StatusBadRequest)
	p.draws(start+1, 1, 12) // after the wider one
	few := p.ask(p.of(start+2, 1))
	p.step()
	if got := p.poll(few.header.Get("Location")); got.status != http.StatusOK || len(got.body) > 0 {
		t.Errorf("a round of four: status %d, %d bytes", got.status, len(got.body))
	}
	p.passes(start + 4)
	p.fill(start+4, 11)
	p.passes(start + 6)
	p.draws(start, 6, 37)
	if refused := p.uploadErrors(p.upload(p.report(0, spoil{Time: ptr(start + 5)}))); len(refused) != 1 || refused[0].Error != dap.BatchCollected {
		t.Errorf("a report for a round of a view that was released: %v", refused)
	}
	// Two rounds after the end of six what was not asked for is gone for good.
	p.passes(start + 8)
	p.step()
	p.refused(p.poll(few.header.Get("Location")), dap.ProblemBatchInvalid, http.StatusBadRequest)
	p.refused(p.ask(p.of(start+3, 3)), dap.ProblemBatchInvalid, http.StatusBadRequest)
	p.refused(p.ask(p.of(start+4, 1)), dap.ProblemBatchInvalid, http.StatusBadRequest)
	p.both()
	p.step()
	p.refused(p.ask(p.of(start+4, 1)), dap.ProblemBatchInvalid, http.StatusBadRequest)
	p.fill(start+7, 10)
	p.passes(start + 9)
	p.draws(start+6, 3, 10)
}

func ptr[T any](v T) *T { return &v }

// TestViewsHaveNoiseOfTheirOwn: of one sum each view has one draw, which a restart does not
// change.
func TestViewsHaveNoiseOfTheirOwn(t *testing.T) {
	wide := must(noise.NewDiscreteGaussian(1<<40, 1)) // draws of deviation 2^20 are equal by chance once in 10^30
	p, start := viewed(t, setup{noise: wide})
	p.fill(start, 10)
	p.passes(start + 3)
	var sums [][]int64
	var answers [][]byte
	for _, units := range []dap.Duration{1, 3} {
		sums = append(sums, p.draws(start, units, 10))
		answers = append(answers, p.poll(p.ask(p.of(start, units)).header.Get("Location")).body)
	}
	if slices.Equal(sums[0], sums[1]) {
		t.Error("two views have one draw of noise")
	}
	p.both()
	for i, units := range []dap.Duration{1, 3} {
		if again := p.poll(p.ask(p.of(start, units)).header.Get("Location")).body; !bytes.Equal(again, answers[i]) {
			t.Errorf("the view of %d has another answer after a restart", units)
		}
	}
}

// TestHelperHoldsToViews: what a leader asks for, the helper releases once in each view and
// never after its time; the same question has the same bytes even then.
func TestHelperHoldsToViews(t *testing.T) {
	for _, deferred := range []helper.Deferred{helper.Never, helper.Always} {
		p, start := viewed(t, setup{helper: func(o *helper.Options) { o.Deferred = deferred }})
		var rs []dap.Report
		for unit := start; unit < start+3; unit++ {
			for i := range 10 {
				rs = append(rs, p.report(i%buckets, spoil{Time: &unit}))
			}
		}
		p.passes(start + 2)
		p.postInit(p.initReq(p.kit.Inits(rs...), nil))
		p.step()
		ask := func(from dap.Time, units dap.Duration, narrow dap.Duration, rs ...dap.Report) []byte {
			return p.shareReq(func(r *dap.AggregateShareReq) {
				r.CollectionJobReq = must(dap.ReadCollectionJobReq(must(p.of(from, units).Append(nil))))
				r.BatchSelector.Interval = dap.Interval{Start: from, Duration: narrow}
			}, rs...)
		}
		got := func(body []byte) answer {
			a := p.postShare(body)
			if len(a.body) == 0 && a.status == http.StatusCreated {
				p.step()
				a = p.call("GET", p.helperURL, a.header.Get("Location"), "", peerToken, nil)
			}
			return a
		}
		if a := p.postShare(ask(start, 3, 3, rs...)); a.status != http.StatusServiceUnavailable {
			t.Errorf("a view before its end: status %d", a.status)
		}
		p.passes(start + 3)
		day := got(ask(start, 1, 1, rs[:10]...))
		if len(day.body) == 0 || day.status >= 300 {
			t.Fatalf("a round: status %d %q", day.status, day.body)
		}
		p.refused(p.postShare(ask(start, 3, 2, rs[:20]...)), dap.ProblemBatchInvalid, http.StatusBadRequest) // less than the query
		p.refused(got(ask(start, 3, 3, rs[10:]...)), dap.ProblemBatchMismatch, http.StatusBadRequest)        // without what a round had
		view := ask(start, 3, 3, rs...)
		first := got(view)
		if len(first.body) == 0 || first.status >= 300 {
			t.Fatalf("a view: status %d %q", first.status, first.body)
		}
		p.refused(p.postShare(ask(start, 3, 3, rs[20:]...)), dap.ProblemBatchOverlap, http.StatusBadRequest)
		if a := got(view); !bytes.Equal(a.body, first.body) {
			t.Error("the same question has another answer")
		}
		p.passes(start + 8)
		p.step()
		if a := got(view); !bytes.Equal(a.body, first.body) {
			t.Errorf("the same question has another answer after its time: status %d %q", a.status, a.body)
		}
		p.refused(p.postShare(ask(start+1, 1, 1, rs[10:20]...)), dap.ProblemBatchInvalid, http.StatusBadRequest)
		p.refused(p.postShare(ask(start, 6, 6, rs...)), dap.ProblemBatchInvalid, http.StatusBadRequest)
	}
}

// TestViewsOver: a helper whose time is over refuses for good, by its own clock, what its
// leader has frozen; the leader gives the batch up, and the two agree that nothing was
// released.
func TestViewsOver(t *testing.T) {
	p, start := viewed(t, setup{})
	p.between(strangers) // others would not go on with clocks as these
	helperClock := &clock{}
	p.helperOpt.Clock = helperClock
	if err := p.helper.Close(); err != nil {
		t.Fatal(err)
	}
	p.startHelper()
	p.fill(start, 10)
	p.passes(start + 7)
	helperClock.shift.Store(p.clock.shift.Load() + int64(2*precision*time.Second))
	a := p.ask(p.of(start, 3))
	p.step()
	p.refused(p.poll(a.header.Get("Location")), dap.ProblemBatchInvalid, http.StatusBadRequest)
	p.passes(start + 9)
	p.step()
	p.refused(p.ask(p.of(start, 1)), dap.ProblemBatchInvalid, http.StatusBadRequest)
	if s := p.leaderTask(); s.Counts.Collected != 0 {
		t.Errorf("%d reports were collected", s.Counts.Collected)
	}
}

// TestViewsAreAgreed: leader and helper that hold different views, noise of them or time for
// them release nothing, and both say why.
func TestViewsAreAgreed(t *testing.T) {
	for what, change := range map[string]func(*aggregator.Views){
		"the calendar": func(v *aggregator.Views) { v.Keep++ },
		"the noise":    func(v *aggregator.Views) { v.Wider[1].Noise = must(noise.NewDiscreteGaussian(5, 1)) },
	} {
		p, _ := viewed(t, setup{})
		p.helperWith(func(task *aggregator.Task) {
			c, v := *task.Calendar, *task.Calendar.Views
			v.Wider = slices.Clone(v.Wider)
			change(&v)
			c.Views = &v
			task.Calendar = &c
		})
		p.clock.advance(time.Minute)
		p.step()
		why := status.Why(p.leaderTask())
		if len(why) == 0 || !strings.Contains(why[0].Blocks, what) {
			t.Errorf("%s differs: %+v", what, why)
		}
	}
}

// TestViewsRefuses: what no task may be provisioned with.
func TestViewsRefuses(t *testing.T) {
	p := newPair(t, setup{})
	view := func(rounds ...uint64) (list []aggregator.View) {
		for _, n := range rounds {
			list = append(list, aggregator.View{Rounds: n, Noise: noise.Zero{}})
		}
		return list
	}
	for name, c := range map[string]aggregator.Calendar{
		"none":            {Units: 1, Alone: true, Views: &aggregator.Views{Keep: 1}},
		"no end":          {Units: 1, Alone: true, Views: &aggregator.Views{Wider: view(7)}},
		"one round":       {Units: 1, Alone: true, Views: &aggregator.Views{Wider: view(1), Keep: 1}},
		"no multiple":     {Units: 1, Alone: true, Views: &aggregator.Views{Wider: view(7, 30), Keep: 1}},
		"falling":         {Units: 1, Alone: true, Views: &aggregator.Views{Wider: view(28, 7), Keep: 1}},
		"no noise":        {Units: 1, Alone: true, Views: &aggregator.Views{Wider: []aggregator.View{{Rounds: 7}}, Keep: 1}},
		"longer than all": {Units: 1 << 62, Alone: true, Views: &aggregator.Views{Wider: view(7), Keep: 1}},
		"several rounds":  {Units: 1, Views: &aggregator.Views{Wider: view(7), Keep: 1}},
	} {
		task := p.task
		task.Calendar = &c
		if task.Validate(dap.RoleLeader) == nil {
			t.Errorf("%s: it is taken", name)
		}
	}
}

// TestViewsAreNotRestored: a backup that knows of a round's release and not of its view's has
// the round's sum; after a restore nothing is drawn from it, and it is gone.
func TestViewsAreNotRestored(t *testing.T) {
	p, start := viewed(t, scheduled(setup{}))
	p.fetchKeys()
	p.fill(start, 10)
	p.passes(start + 3)
	p.draws(start, 1, 10)
	l, h := p.stopped()
	saved := disktest.NewMem(8)
	must(backup.Make(t.Context(), p.backupOf(dap.RoleLeader, l), saved))
	p.onDisks(l, h)
	p.draws(start, 3, 10)
	l, h = p.stopped()
	l = diskOf(t, recordOf(t, l))
	restore(t, p.backupOf(dap.RoleLeader, l), saved)
	p.onDisks(l, h)
	p.anew()
	a := p.ask(p.of(start, 3))
	p.step()
	p.refused(p.poll(a.header.Get("Location")), releases.ProblemClosed, http.StatusBadRequest)
	if n := sumsOn(t, l); n != 0 {
		t.Errorf("%d sums are left after a restore", n)
	}
}

// TestSumsAreSealed: between the release of a round and that of its view neither server's
// disk has the round's sum, which lies under a data key and is gone with the view's release.
func TestSumsAreSealed(t *testing.T) {
	p, start := viewed(t, setup{})
	p.fill(start, 10)
	p.passes(start + 6)
	p.step()
	l, h := p.stopped()
	open := func(mem *disktest.Mem) (share []byte) {
		return asks(t, mem, "SELECT share FROM batch WHERE verified > 0")
	}
	plain := [][]byte{open(l), open(h)}
	p.onDisks(l, h)
	p.draws(start, 1, 10)
	p.draws(start, 3, 10)
	l, h = p.stopped()
	for side, mem := range []*disktest.Mem{l, h} {
		if len(plain[side]) < 5*8 || sumsOn(t, mem) != 1 {
			t.Errorf("%d bytes of a share, %d sums are kept", len(plain[side]), sumsOn(t, mem))
		}
		for name, b := range content(t, mem, ".") {
			if bytes.Contains(b, plain[side]) {
				t.Errorf("%s has the sum of a round that was released", name)
			}
		}
	}
	p.onDisks(l, h)
	p.draws(start, 6, 10)
	l, h = p.stopped()
	for _, mem := range []*disktest.Mem{l, h} {
		if n := sumsOn(t, mem); n != 0 {
			t.Errorf("%d sums are kept for no view", n)
		}
	}
	p.onDisks(l, h)
}

// sumsOn counts the sums that a store keeps for views.
func sumsOn(t *testing.T, mem *disktest.Mem) int {
	t.Helper()
	return len(asks(t, mem, "SELECT zeroblob(count(*)) FROM bucket_sum"))
}

// asks reads one value of a store, on a copy of its disk.
func asks(t *testing.T, mem *disktest.Mem, query string) (b []byte) {
	t.Helper()
	db, err := database.Open(database.Options{
		FS: diskOf(t, content(t, mem, ".")), Name: "store.db", Migrations: os.DirFS("internal/store/sqlite/migrations"),
		Statements: fstest.MapFS{"x.sql": {Data: []byte("-- name: ask\n" + query)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	err = db.View(t.Context(), "ask", func(tx *database.Tx) error {
		_, err := tx.One("ask", nil, &b)
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return b
}
