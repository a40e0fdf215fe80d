package aggregator_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/noise/noisetest"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// seriesSetup has three bands, for devices that stay away four units, and room for five
// releases.
func seriesSetup(t testing.TB) (setup, *noise.DiscreteGaussian) {
	s := must(correlated.SquareRoot(3, 6))
	g := must(s.Sampler(400, 1))
	return setup{noise: g, series: &aggregator.Series{Series: correlated.Series{Strategy: s, Separation: 4, Rounds: 5}, Units: 1}}, g
}

// at is a collection request for some units from now on.
func (p *pair) at(offset, units uint64) dap.CollectionJobReq {
	q := p.query()
	q.Query.Interval = dap.Interval{Start: p.now() + dap.Time(offset), Duration: dap.Duration(units)}
	return q
}

// noiseOf reads the noise files of a party: as many as there are, in no order.
func noiseOf(t *testing.T, mem *disktest.Mem, dir string) (all [][]int64) {
	t.Helper()
	entries, err := mem.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name, ".noise") {
			continue
		}
		b, err := disk.ReadFile(mem, dir+"/"+e.Name, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		b = b[24:]
		w := make([]int64, len(b)/8)
		for i := range w {
			w[i] = int64(binary.BigEndian.Uint64(b[8*i:]))
		}
		all = append(all, w)
	}
	return all
}

// fresh is the file of after that is not in before.
func fresh(t *testing.T, before, after [][]int64) []int64 {
	t.Helper()
	for _, w := range after {
		known := false
		for _, v := range before {
			known = known || equal(v, w)
		}
		if !known {
			return w
		}
	}
	t.Fatal("no noise was kept")
	return nil
}

func equal(a, b []int64) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return len(a) == len(b)
}

// TestCorrelatedNoise takes a series through collections, restarts and a skipped unit:
// what is released is the true sum and what both servers keep, rounded; and what they
// keep leans on what they kept before, as is seen from the draws that it takes back to.
func TestCorrelatedNoise(t *testing.T) {
	s, g := seriesSetup(t)
	p := newPair(t, s)
	bound := g.Tail(1e-10) // 50 draws: a false alarm once in 10^8 runs
	past := map[string][][]int64{}
	for round, step := range []uint64{0, 1, 2, 1} { // units after the one before: 0, 1, 3, 4
		p.clock.advance(time.Duration(step) * precision * time.Second)
		p.accept(p.reports(10)...)
		before := map[string][][]int64{"leader": noiseOf(t, p.leaderFS, "runs"), "helper": noiseOf(t, p.helperFS, "runs")}
		q := p.at(0, 1)
		_, got := p.collect(q)
		sum := make([]int64, buckets)
		lean := min(round, 2) // of two earlier releases, three bands; all are near enough
		for name, mem := range map[string]*disktest.Mem{"leader": p.leaderFS, "helper": p.helperFS} {
			w := fresh(t, before[name], noiseOf(t, mem, "runs"))
			back, err := s.series.Strategy.Next(past[name][:lean], make([]int64, len(w)))
			if err != nil {
				t.Fatal(err)
			}
			rounded := make([]int64, len(w))
			s.series.Strategy.Round(rounded, w)
			for i := range w {
				if z := w[i] - back[i]; z > bound || z < -bound {
					t.Errorf("round %d: the %s's draw %d is beyond %d", round, name, z, bound)
				}
				sum[i] += rounded[i]
			}
			past[name] = append([][]int64{w}, past[name]...)
		}
		for i := range sum {
			sum[i] += 2
		}
		if !equal(got, sum) {
			t.Errorf("round %d: released %v, kept noise makes %v", round, got, sum)
		}
		// The same request has the same answer, in this life and the next.
		first := p.poll(p.ask(q).header.Get("Location"))
		p.leader.Close()
		p.helper.Close()
		p.startLeader()
		p.startHelper()
		if again := p.poll(p.ask(q).header.Get("Location")); !bytes.Equal(first.body, again.body) {
			t.Error("the answer changed")
		}
	}
}

// TestCorrelatedNoiseInOrder: a unit before the last released one, an interval in which a
// device may be twice, and one more than the series has are refused, as batchInvalid, and
// close nothing at either server.
func TestCorrelatedNoiseInOrder(t *testing.T) {
	s, _ := seriesSetup(t)
	p := newPair(t, s)
	p.accept(p.reports(10)...)
	early := p.at(0, 1)
	p.clock.advance(precision * time.Second)
	refused := func(q dap.CollectionJobReq, words string) {
		t.Helper()
		loc := p.ask(q).header.Get("Location")
		p.step()
		a := p.poll(loc)
		p.refused(a, dap.ProblemBatchInvalid, 400)
		if d := p.problem(a).Detail; !strings.Contains(d, words) {
			t.Errorf("the collector reads %q, want %q", d, words)
		}
		p.audit()
	}
	p.accept(p.reports(10)...)
	refused(p.at(0, 5), "a device could be in it twice")
	p.collect(p.at(0, 1))
	refused(early, "in the order of time")
	for range 4 {
		p.clock.advance(precision * time.Second)
		p.accept(p.reports(10)...)
		p.collect(p.at(0, 1))
	}
	p.clock.advance(precision * time.Second)
	p.accept(p.reports(10)...)
	refused(p.at(0, 1), "all 5 releases")
	if n := len(noiseOf(t, p.leaderFS, "runs")) + len(noiseOf(t, p.helperFS, "runs")); n != 0 {
		t.Errorf("%d noise files are left at the end of the series", n)
	}
}

// TestCorrelatedNoiseAskedTogether: intervals that are asked for at once, the latest
// first, are released in the order of time; a later one waits for an earlier one that has
// too few reports, until that is deleted.
func TestCorrelatedNoiseAskedTogether(t *testing.T) {
	s, _ := seriesSetup(t)
	p := newPair(t, s)
	var asked []dap.CollectionJobReq
	for range 4 {
		p.accept(p.reports(10)...)
		asked = append(asked, p.at(0, 1))
		p.clock.advance(precision * time.Second)
	}
	var at []string
	for i := len(asked) - 1; i >= 0; i-- {
		at = append(at, p.ask(asked[i]).header.Get("Location"))
	}
	p.step()
	for i, loc := range at {
		if a := p.poll(loc); a.status != 200 || len(a.body) == 0 {
			t.Errorf("interval %d: status %d %q", len(at)-i, a.status, a.body)
		}
	}
	few, later := p.at(0, 1), p.at(1, 1)
	p.accept(p.reports(3)...)
	p.clock.advance(precision * time.Second)
	p.accept(p.reports(10)...)
	early := p.ask(few).header.Get("Location")
	loc := p.ask(later).header.Get("Location")
	p.step()
	if a := p.poll(loc); a.status != 200 || len(a.body) != 0 {
		t.Errorf("status %d, %d bytes while an earlier interval waits", a.status, len(a.body))
	}
	if a := p.call("DELETE", p.leaderURL, early, "", collectorToken, nil); a.status != 204 {
		t.Fatalf("delete: status %d", a.status)
	}
	p.step()
	if a := p.poll(loc); a.status != 200 || len(a.body) == 0 {
		t.Errorf("status %d, %d bytes once it is deleted", a.status, len(a.body))
	}
}

// TestCorrelatedNoiseHelperHoldsTheOrder: the helper itself refuses a leader that does
// not keep to the order, and may be asked on.
func TestCorrelatedNoiseHelperHoldsTheOrder(t *testing.T) {
	s, _ := seriesSetup(t)
	p := newPair(t, s)
	rs := p.reports(10)
	p.accept(rs...)
	early := p.at(0, 1)
	p.clock.advance(precision * time.Second)
	p.accept(p.reports(10)...)
	p.collect(p.at(0, 1))
	req := dap.AggregateShareReq{
		CollectionJobReq: must(dap.ReadCollectionJobReq(must(early.Append(nil)))),
		BatchSelector:    dap.BatchSelector{Mode: dap.TimeInterval, Interval: early.Query.Interval}, ReportCount: 10,
	}
	for _, r := range rs {
		req.Checksum.Add(r.Metadata.ID)
	}
	for range 2 {
		a := p.create(p.helperURL, dap.AggregateSharesResource, dap.MediaAggregateShareReq, peerToken, must(req.Append(nil)))
		p.refused(a, dap.ProblemBatchInvalid, 400)
		if d := p.problem(a).Detail; !strings.Contains(d, "in the order of time") {
			t.Errorf("the leader reads %q", d)
		}
	}
	p.clock.advance(precision * time.Second)
	p.accept(p.reports(10)...)
	p.collect(p.at(0, 1))
}

// TestCorrelatedNoiseAfterACrash: the leader dies between the helper's release and its
// own; both lean on the same releases after.
func TestCorrelatedNoiseAfterACrash(t *testing.T) {
	s, _ := seriesSetup(t)
	fail := new(disk.Failpoints)
	s.leader = func(o *leader.Options) { o.Failpoints = fail }
	p := newPair(t, s)
	p.accept(p.reports(10)...)
	power := errors.New("power lost")
	for _, at := range []string{leader.FailAfterShare, leader.FailBeforeRelease, leader.FailAfterRelease} {
		fail.Arm(at, 0, func() error { return power })
		q := p.at(0, 1)
		loc := p.ask(q).header.Get("Location")
		for {
			more, err := p.leader.Step(context.Background())
			if err != nil || !more {
				break
			}
			if _, err := p.helper.Step(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		p.leader.Close()
		fail.Disarm(at)
		p.startLeader()
		p.clock.advance(precision * time.Second) // beyond any back-off
		p.step()
		a := p.poll(loc)
		if a.status != 200 || len(a.body) == 0 {
			t.Fatalf("%s: status %d", at, a.status)
		}
		if _, got := p.open(q, a.body); len(got) != buckets {
			t.Fatal(got)
		}
		p.audit()
		p.accept(p.reports(10)...)
	}
}

// TestCorrelatedNoiseFrozenFirst: a collection whose batch is frozen, so that the helper
// may have released it, is finished before any other, also one of an earlier interval,
// which comes too late then and cannot hold it up.
func TestCorrelatedNoiseFrozenFirst(t *testing.T) {
	s, _ := seriesSetup(t)
	p := newPair(t, s)
	var away atomic.Bool
	p.between(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/aggregate_shares") && away.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	few := p.at(0, 1)
	p.accept(p.reports(3)...)
	p.clock.advance(precision * time.Second)
	p.accept(p.reports(10)...)
	away.Store(true)
	frozen := p.ask(p.at(0, 1)).header.Get("Location")
	p.step()
	early := p.ask(few).header.Get("Location")
	away.Store(false)
	for range 3 {
		p.clock.advance(10 * time.Minute)
		p.step()
	}
	if a := p.poll(frozen); a.status != 200 || len(a.body) == 0 {
		t.Errorf("the frozen batch: status %d, %d bytes", a.status, len(a.body))
	}
	p.refused(p.poll(early), dap.ProblemBatchInvalid, 400)
	p.audit()
}

func TestSeriesValidate(t *testing.T) {
	good, g := seriesSetup(t)
	p := newPair(t, good)
	for name, change := range map[string]func(*aggregator.Task){
		"no sampler":   func(t *aggregator.Task) { t.Noise = nil },
		"laplace":      func(t *aggregator.Task) { t.Noise = must(noise.NewDiscreteLaplace(5, 1)) },
		"no units":     func(t *aggregator.Task) { t.Series = &aggregator.Series{Series: good.series.Series} },
		"no strategy":  func(t *aggregator.Task) { t.Series = &aggregator.Series{Units: 1} },
		"close rounds": func(t *aggregator.Task) { s := *t.Series; s.Separation = 2; t.Series = &s },
	} {
		task := p.task
		change(&task)
		if err := task.Validate(dap.RoleLeader); err == nil || !strings.Contains(err.Error(), "noise") {
			t.Errorf("%s: %v", name, err)
		}
	}
	selected := newPair(t, setup{mode: dap.LeaderSelected})
	task := selected.task
	task.Noise, task.Series = g, good.series
	if err := task.Validate(dap.RoleLeader); err == nil {
		t.Error("a leader-selected task has correlated noise")
	}
}

// TestCorrelatedNoiseCovariance: a series of all-zero collections shows the noise alone,
// the sum of both servers'. 4,096 entries over six rounds, each of the 21 covariances
// within 7 standard errors of what the strategy says: an entry's own is outside once in
// 5*10^8 (Laurent and Massart 2000, lemma 1), any of them less than once in 10^6. The
// seeds are fixed.
func TestCorrelatedNoiseCovariance(t *testing.T) {
	const dim, rounds, sigma2 = 4096, 6, 400
	config, v := vectors(dap.TypePine32, dim, 1024)
	strategy := must(correlated.Optimize(3, rounds, 6))
	g := must(strategy.Sampler(sigma2, 1))
	s := setup{
		min: 2, config: config, noise: g,
		series: &aggregator.Series{Series: correlated.Series{Strategy: strategy, Separation: 3, Rounds: rounds}, Units: 1},
		leader: func(o *leader.Options) { o.Tasks = withNoise(o.Tasks, noisetest.DiscreteGaussian(g, [32]byte{1})) },
		helper: func(o *helper.Options) { o.Tasks = withNoise(o.Tasks, noisetest.DiscreteGaussian(g, [32]byte{2})) },
	}
	p := newPair(t, s)
	var out [][]int64
	for range rounds {
		p.accept(p.vector(v, make([]int64, dim), spoil{}), p.vector(v, make([]int64, dim), spoil{}))
		_, got := p.collect(p.at(0, 1))
		out = append(out, got)
		p.clock.advance(precision * time.Second)
	}
	// What w = C^-1 z makes of independent z, and what independent noise would.
	c := strategy.Coefficients()
	inverse := make([]float64, rounds)
	inverse[0] = 1
	for i := 1; i < rounds; i++ {
		for j := 1; j <= min(i, len(c)); j++ {
			inverse[i] -= float64(c[j-1]) / 64 * inverse[i-j]
		}
	}
	want := func(a, b int) (sum float64) {
		for i := 0; i <= b; i++ {
			sum += inverse[a-b+i] * inverse[i]
		}
		sum *= 2 * sigma2
		if a == b {
			sum += 2.0 / 12
		}
		return sum
	}
	worst, alone := 0.0, 0.0
	for a := range rounds {
		for b := 0; b <= a; b++ {
			sum := 0.0
			for i := range dim {
				sum += float64(out[a][i]) * float64(out[b][i])
			}
			sum /= dim
			se := math.Sqrt((want(a, a)*want(b, b) + want(a, b)*want(a, b)) / dim)
			worst = max(worst, math.Abs(sum-want(a, b))/se)
			if a != b {
				alone = max(alone, math.Abs(sum)/se)
			}
		}
	}
	if worst > 7 {
		t.Errorf("a covariance is %.1f standard errors off", worst)
	}
	if alone < 20 {
		t.Errorf("independent noise passes: %.1f standard errors", alone)
	}
}
