package storetest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
)

// Interleave runs seeded lists of calls at two handles on one data set, through faults:
// calls that fail before they are made, calls that are made and whose outcome the caller
// does not learn, and calls inside the callbacks of others. After each list must hold, read
// through either handle, what the contract promises.
func Interleave(t *testing.T, seeds int, open func(t *testing.T) Harness) {
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			interleave(t, open(t), uint64(seed))
		})
	}
}

// A process is what has one handle, and what it believes to hold.
type process struct {
	store store.Engine
	jobs  []*store.Job
}

// A play is one list of calls. Inside the callback of a call, the other process makes one.
type play struct {
	t      *testing.T
	w      *World // its Store is the two handles in turn, without faults
	rng    *rand.Rand
	calm   bool // no faults, and nothing inside callbacks
	within bool // what is drawn is for the inside of a callback
	procs  [2]*process
	lead   []*store.Task
	help   []*store.Task
	series *store.Task // its noise is correlated over rounds, of a bucket each
	rounds int         // of it that were begun

	mu       sync.Mutex // guards what calls inside callbacks touch as well
	put      map[dap.TaskID]uint64
	asked    map[dap.TaskID][]asked
	answers  map[string]string      // by resource
	drawn    map[string]draw        // by response
	marks    map[shown]dap.ReportID // whose they are
	over     map[shown]int          // rounds: 1 where it may have been ended, 2 where it was
	draws    int
	sequence int
}

// asked is a collection, or a request for a share with what it selects.
type asked struct {
	*store.Resource
	sel *store.Selection
}

// A draw is one call of Build.
type draw struct {
	task     dap.TaskID
	count    uint64
	checksum dap.Checksum
	values   []int64
	round    int     // of the series
	noise    []int64 // of the series, as Build was given it
}

const (
	playSteps   = 300
	firstBucket = 10
	buckets     = 5
)

func interleave(t *testing.T, h Harness, seed uint64) {
	p := &play{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), put: make(map[dap.TaskID]uint64), asked: make(map[dap.TaskID][]asked),
		answers: make(map[string]string), drawn: make(map[string]draw), marks: make(map[shown]dap.ReportID), over: make(map[shown]int),
		lead:   []*store.Task{Task(t, dap.TimeInterval, 1), Task(t, dap.LeaderSelected, 2)},
		help:   []*store.Task{Task(t, dap.TimeInterval, 3), Task(t, dap.LeaderSelected, 4)},
		series: Task(t, dap.TimeInterval, 5),
	}
	if seed%2 == 1 {
		p.lead[0].Views, p.help[0].Views = []uint64{1, 2}, []uint64{1, 2}
	}
	tasks := slices.Concat(p.lead, p.help, []*store.Task{p.series})
	for _, task := range tasks {
		task.End = Epoch.Add(time.Hour)
	}
	p.begin(h, tasks)
	for range playSteps {
		switch n := p.rng.IntN(100); {
		case n < 2:
			p.w.close()
			p.begin(h, tasks)
		case n < 6:
			p.w.Audit()
		default:
			p.act(p.rng.IntN(2))
		}
	}
	p.end()
	p.retire(tasks)
}

// begin opens both handles, at first or again. Leases are as they may be after that: void,
// or still to run out.
func (p *play) begin(h Harness, tasks []*store.Task) {
	p.t.Helper()
	both := &opened{Harness: h}
	if p.w == nil {
		p.w = NewWorld(p.t, both, tasks...)
		Sums(p.t, p.w.Store)
	} else {
		p.w.h = both
		p.w.open(p.t)
	}
	for i, e := range both.handles {
		rng := rand.New(rand.NewPCG(p.rng.Uint64(), uint64(i)))
		if p.procs[i] == nil {
			p.procs[i] = new(process)
		}
		p.procs[i].store = faulty(e, rng, func() bool { return !p.calm })
	}
}

// act has a process make one call.
func (p *play) act(who int) {
	p.t.Helper()
	p.choose(who)()
}

// inside is another call, of the other process, to be made while a callback runs, as far
// as the locks let it. It is over when wait returns, which comes after the call that has
// the callback.
func (p *play) inside(who int) (begin, wait func()) {
	if p.calm || p.within || p.rng.IntN(2) > 0 {
		return func() {}, func() {}
	}
	p.within = true
	other := p.choose(1 - who)
	p.within = false
	var wg sync.WaitGroup
	return func() {
		done := make(chan struct{})
		wg.Go(func() {
			defer close(done)
			other()
		})
		for range 100 {
			select {
			case <-done:
				return
			default:
				_, err := p.procs[who].store.Counts(context.Background(), p.help[0].ID)
				p.fine(err)
			}
		}
	}, wg.Wait
}

// choose draws a call and all that it needs; the call itself draws nothing.
func (p *play) choose(who int) func() {
	proc := p.procs[who]
	task := p.lead[p.rng.IntN(len(p.lead))]
	helped := p.help[p.rng.IntN(len(p.help))]
	n := p.rng.IntN(100)
	if p.within && 40 <= n && n < 52 {
		n += 40 // those calls are of the world, not of a process
	}
	switch {
	case n < 10:
		return p.claim(proc)
	case n < 12:
		return p.shows(proc, []*store.Task{task, helped}[p.rng.IntN(2)])
	case n < 13:
		return p.forgets(proc, []*store.Task{task, helped}[p.rng.IntN(2)])
	case n < 17:
		return p.sent(proc)
	case n < 20:
		return p.giveUp(proc)
	case n < 22:
		return func() { p.fine(proc.store.Bury(context.Background())) }
	case n < 28:
		return p.ask(proc, task)
	case n < 30:
		return p.delete(proc, []*store.Task{task, helped}[p.rng.IntN(2)])
	case n < 32:
		return func() {
			_, err := proc.store.Resume(context.Background(), []dap.TaskID{task.ID}, false)
			p.fine(err)
		}
	case n < 40:
		return p.askShare(proc, helped)
	case n < 42:
		p.w.Now = p.w.Now.Add(45 * time.Second) // some leases end
		return func() {}
	case n < 52:
		return p.upload(proc, task)
	case n < 66:
		return p.commit(who)
	case n < 78:
		return p.drive(who, task)
	case n < 87:
		return p.job(who, helped)
	case n < 93:
		return p.round(who)
	}
	return p.share(who, helped)
}

// fine fails the test on an error that is neither a fault nor one of the ordinary ones.
func (p *play) fine(err error, ordinary ...error) {
	p.t.Helper()
	if err == nil || errors.Is(err, ErrFault) {
		return
	}
	for _, o := range ordinary {
		if errors.Is(err, o) {
			return
		}
	}
	p.t.Errorf("unexpected: %v", err)
}

// end is the time after the faults: everything that waits gets done, and what the world
// outside knows holds of what the store has.
func (p *play) end() {
	p.t.Helper()
	ctx := context.Background()
	p.calm = true
	p.finish()
	p.w.ok(p.w.Store.Bury(ctx))
	p.w.Audit()
	for _, task := range slices.Concat(p.lead, p.help) {
		p.balanced(task)
	}
	p.correlated(p.balanced(p.series))
	p.shownAll()
}

// finish does what waits at the leader.
func (p *play) finish() {
	p.t.Helper()
	ctx := context.Background()
	p.w.Sort()
	p.w.Now = p.w.Now.Add(time.Hour) // all leases have ended
	for _, task := range p.lead {
		_, err := p.w.Store.Resume(ctx, []dap.TaskID{task.ID}, false)
		p.w.ok(err)
	}
	for range 20 {
		for i := range p.procs {
			p.procs[i].jobs = nil
			p.claim(p.procs[i])()
			for len(p.procs[i].jobs) > 0 {
				p.commit(i)()
			}
			for _, task := range p.lead {
				for _, r := range p.asked[task.ID] {
					p.collect(p.procs[i].store, task, r.ID, func() {})
				}
			}
		}
	}
}

// balanced checks one task, through either handle, and returns its releases.
func (p *play) balanced(task *store.Task) (list []store.Released) {
	p.t.Helper()
	ctx := context.Background()
	var before *store.Counts
	for i := range p.procs {
		c, err := p.procs[i].store.Counts(ctx, task.ID)
		p.w.ok(err)
		released, err := p.procs[i].store.ReleasesAfter(ctx, task.ID, 0, 1000)
		p.w.ok(err)
		if before != nil && (fmt.Sprint(*c) != fmt.Sprint(*before) || fmt.Sprint(released) != fmt.Sprint(list)) {
			p.t.Errorf("task %v: one handle reads %+v %+v, the other %+v %+v", task.ID, *before, list, *c, released)
		}
		before, list = c, released
	}
	rejected := uint64(0)
	for n := range maps.Values(before.Rejected) {
		rejected += n
	}
	if before.Acknowledged != before.Aggregated+rejected || before.Waiting != 0 {
		p.t.Errorf("task %v: %+v: reports wait, or are unaccounted for", task.ID, *before)
	}
	if slices.Contains(p.lead, task) {
		if before.Acknowledged != p.put[task.ID] {
			p.t.Errorf("task %v: %d reports were acknowledged, %d are counted", task.ID, p.put[task.ID], before.Acknowledged)
		}
	}
	collected, views := uint64(0), make(map[uint64][]int64) // by the length of an interval, where there are views
	for _, r := range list {
		length := uint64(0)
		if len(task.Views) > 0 {
			length = binary.BigEndian.Uint64(r.Batch[8:]) - binary.BigEndian.Uint64(r.Batch) + 1
		} else {
			collected += r.Count
		}
		if views[length] == nil {
			views[length] = make([]int64, Elements)
		}
		counted, known := views[length], false
		for _, d := range p.drawn {
			if d.task == task.ID && d.count == r.Count && d.checksum == r.Checksum && !known {
				known = true
				for n, v := range d.values {
					counted[n] += v
				}
			}
		}
		if !known {
			p.t.Errorf("task %v: batch %x was released, and nothing was built for it", task.ID, r.Batch)
		}
	}
	for n := range Elements {
		any := false
		for length, counted := range views {
			if v := counted[n]; v < 0 || v > 1 {
				p.t.Errorf("task %v: report %d is in the releases %d times, of intervals of %d", task.ID, n, v, length)
			}
			any = any || counted[n] > 0
		}
		if any && len(task.Views) > 0 {
			collected++
		}
	}
	if collected != before.Collected {
		p.t.Errorf("task %v: %d reports were released, %d are counted", task.ID, collected, before.Collected)
	}
	return list
}

// correlated checks that each release of the series has the noise that those before it in
// the ledger make of its draw.
func (p *play) correlated(list []store.Released) {
	p.t.Helper()
	given := make(map[dap.Checksum]draw)
	for n := range p.rounds {
		r, err := p.askRound(p.w.Store, n+1)
		p.w.ok(err)
		if r.State == store.Ready {
			d := p.drawn[string(r.Response)]
			given[d.checksum] = d
		}
	}
	s := p.seriesOf()
	var spans []correlated.Span
	var past [][]int64
	for i, r := range list {
		d, ok := given[r.Checksum]
		if !ok {
			p.t.Errorf("release %d of the series is of no request", i)
			continue
		}
		span := correlated.Span{First: uint64(d.round), Last: uint64(d.round)}
		lean, err := s.Rule.Next(span, uint64(i), spans[:min(len(spans), s.Rule.Strategy.Bands()-1)])
		p.w.ok(err)
		want, err := s.Rule.Strategy.Next(past[:lean], drawn(int64(d.round)))
		p.w.ok(err)
		if !slices.Equal(d.noise, want) {
			p.t.Errorf("release %d of the series, round %d, has noise %v..., want %v...", i, d.round, d.noise[:4], want[:4])
		}
		spans, past = slices.Insert(spans, 0, span), slices.Insert(past, 0, want)
	}
}

// retire ends the tasks at one handle, and has the other refuse what comes for them.
func (p *play) retire(tasks []*store.Task) {
	p.t.Helper()
	ctx := context.Background()
	for i, task := range tasks {
		one, other := p.procs[i%2].store, p.procs[1-i%2].store
		job, _, err := other.Create(ctx, store.KindAggregation, task.ID, "", []byte("late"), false, nil, p.w.Now)
		p.w.ok(err)
		p.w.ok(one.Retire(ctx, task.ID, task.End))
		c := Commit(p.t, task, []store.Batch{{Start: 99}}, []dap.Time{99}, [][]int{{0}})
		_, err = other.CommitJob(ctx, job, c, reply)
		p.w.is(err, store.ErrNotFound)
		for more := true; more; {
			one, other = other, one
			more, err = one.Sweep(ctx, task.ID, 5)
			p.w.ok(err)
		}
	}
	p.w.Audit()
}

// opened is a harness that keeps the two handles that it has opened last.
type opened struct {
	Harness
	handles [2]store.Engine
}

func (o *opened) Open(t *testing.T) store.Engine {
	o.handles = [2]store.Engine{o.Harness.Open(t), o.Harness.Beside(t)}
	return inTurn(o.handles)
}
