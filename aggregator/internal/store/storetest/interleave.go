package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
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

// errFault is what the caller of a call hears that a fault struck.
var errFault = errors.New("storetest: fault")

// Faults are drawn for the calls that change something. One in faultOdds calls is not made;
// as many are made, and the caller hears [store.ErrUnknown], as it does of half as many that
// are not made.
const faultOdds = 12

// reads are the calls that faults spare: to ask again is all that there is to do about them.
var reads = []string{"Counts", "Batches", "Resource", "PendingResources", "ReleasesAfter", "Ledger", "SegmentsOfLog", "BegunLogs", "BeginLogs"}

// faulty returns the handle behind faults, drawn from rng.
func faulty(e store.Engine, rng *rand.Rand, on func() bool) store.Engine {
	var mu sync.Mutex
	return &via{
		do: func(method string, call func(store.Engine) error) error {
			mu.Lock()
			n := rng.IntN(2 * faultOdds)
			mu.Unlock()
			if !on() || slices.Contains(reads, method) {
				return call(e)
			}
			switch n {
			case 0, 1:
				return fmt.Errorf("%w: not done", errFault)
			case 2:
				return fmt.Errorf("%w: %w, not done", errFault, store.ErrUnknown)
			case 3, 4:
				if err := call(e); err != nil {
					return err
				}
				return fmt.Errorf("%w: %w, done", errFault, store.ErrUnknown)
			}
			return call(e)
		},
		close: e.Close,
	}
}

// A process is what has one handle, and what it believes to hold.
type process struct {
	store store.Engine
	jobs  []*store.SegmentJob
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

	mu       sync.Mutex // guards what calls inside callbacks touch as well
	put      map[dap.TaskID]uint64
	asked    map[dap.TaskID][]asked
	answers  map[string]string // by resource
	drawn    map[string]draw   // by response
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
}

const (
	playSteps   = 300
	firstBucket = 10
	buckets     = 5
)

func interleave(t *testing.T, h Harness, seed uint64) {
	p := &play{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), put: make(map[dap.TaskID]uint64), asked: make(map[dap.TaskID][]asked),
		answers: make(map[string]string), drawn: make(map[string]draw),
		lead: []*store.Task{Task(t, dap.TimeInterval, 1), Task(t, dap.LeaderSelected, 2)},
		help: []*store.Task{Task(t, dap.TimeInterval, 3), Task(t, dap.LeaderSelected, 4)},
	}
	tasks := slices.Concat(p.lead, p.help)
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
				_, err := p.procs[who].store.Counts(context.Background(), p.lead[0].ID)
				p.fine(err)
			}
		}
	}, wg.Wait
}

// choose draws a call and all that it needs; the call itself draws nothing.
func (p *play) choose(who int) func() {
	proc, task := p.procs[who], p.lead[p.rng.IntN(len(p.lead))]
	helped := p.help[p.rng.IntN(len(p.help))]
	n := p.rng.IntN(100)
	if p.within && 40 <= n && n < 52 {
		n += 40 // those calls are of the world, not of a process
	}
	switch {
	case n < 12:
		return p.claim(proc)
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
	case n < 90:
		return p.job(who, helped)
	}
	return p.share(who, helped)
}

// fine fails the test on an error that is neither a fault nor one of the ordinary ones.
func (p *play) fine(err error, ordinary ...error) {
	p.t.Helper()
	if err == nil || errors.Is(err, errFault) {
		return
	}
	for _, o := range ordinary {
		if errors.Is(err, o) {
			return
		}
	}
	p.t.Errorf("unexpected: %v", err)
}

// pick draws some report numbers, sometimes of reports that were drawn before.
func (p *play) pick(n int) (numbers []int) {
	for range n {
		if m := p.rng.IntN(Elements); !slices.Contains(numbers, m) {
			numbers = append(numbers, m)
		}
	}
	return numbers
}

func (p *play) upload(proc *process, task *store.Task) func() {
	bucket := dap.Time(firstBucket + p.rng.IntN(buckets))
	numbers := p.pick(1 + p.rng.IntN(9))
	return func() {
		var entries []segment.Entry
		for _, n := range numbers {
			entries = append(entries, segment.Entry{
				TaskID: task.ID, Bucket: uint64(bucket), ReportID: segment.ReportID(ReportID(n)), Report: fmt.Appendf(nil, "report %d", n),
			})
		}
		p.w.ok(p.w.inbox.Put(context.Background(), entries))
		p.put[task.ID] += uint64(len(numbers))
		p.w.through(proc.store, func() {
			_, err := p.w.sorter.Sort(context.Background())
			p.fine(err)
		})
	}
}

func (p *play) claim(proc *process) func() {
	now := p.w.Now
	return func() {
		jobs, err := proc.store.ClaimSegments(context.Background(), now, time.Minute, 2)
		p.fine(err)
		proc.jobs = append(proc.jobs, jobs...)
	}
}

// take takes a job that the process believes to hold; nil where there is none.
func (p *play) take(proc *process) *store.SegmentJob {
	if len(proc.jobs) == 0 {
		return nil
	}
	i := p.rng.IntN(len(proc.jobs))
	j := proc.jobs[i]
	proc.jobs = slices.Delete(proc.jobs, i, i+1)
	return j
}

func (p *play) sent(proc *process) func() {
	j, now := p.take(proc), p.w.Now
	if j == nil {
		return func() {}
	}
	return func() {
		sent := &store.Sent{Accepted: make([]byte, (j.Segment.Count+7)/8), Digest: j.Segment.Sum}
		err := proc.store.SaveSent(context.Background(), j, sent, now.Add(time.Minute))
		p.fine(err, store.ErrStaleLease)
		if err == nil {
			proc.jobs = append(proc.jobs, j)
		}
	}
}

// giveUp gives a job back, parks it, or sets it aside.
func (p *play) giveUp(proc *process) func() {
	j, now, how := p.take(proc), p.w.Now, p.rng.IntN(6)
	if j == nil {
		return func() {}
	}
	return func() {
		var err error
		switch how {
		case 0:
			err = proc.store.Quarantine(context.Background(), j, dap.ReportDropped, "drawn")
		case 1:
			err = proc.store.Park(context.Background(), j, "drawn", now)
		default:
			err = proc.store.RetrySegment(context.Background(), j, now.Add(time.Second), "drawn")
		}
		p.fine(err, store.ErrStaleLease)
	}
}

func (p *play) commit(who int) func() {
	proc := p.procs[who]
	j := p.take(proc)
	if j == nil {
		return func() {}
	}
	begin, wait := p.inside(who)
	return func() {
		task := p.lead[0]
		if j.Task != task.ID {
			task = p.lead[1]
		}
		seg, err := segment.Open(p.w.h.FS(), j.Segment)
		if err != nil {
			return // another process has finished it
		}
		var numbers []int
		for i := range seg.Len() {
			numbers = append(numbers, number(dap.ReportID(seg.ReportID(i))))
		}
		seg.Close()
		c := Commit(p.t, task, []store.Batch{j.Batch}, []dap.Time{dap.Time(j.Segment.Bucket)}, [][]int{numbers})
		fold := c.Fold
		c.Fold = func(verdict []dap.ReportError) ([]*vdaf.AggShare, error) {
			begin()
			return fold(verdict)
		}
		err = proc.store.CommitSegment(context.Background(), j, c)
		wait()
		p.fine(err, store.ErrStaleLease)
	}
}

func (p *play) selection() *store.Selection {
	return Interval(dap.Time(firstBucket+p.rng.IntN(buckets)), dap.Duration(1+p.rng.IntN(2)))
}

// created notes a resource, once.
func (p *play) created(r *store.Resource, sel *store.Selection, made bool) {
	if !made {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[r.Task] = append(p.asked[r.Task], asked{r, sel})
}

func (p *play) ask(proc *process, task *store.Task) func() {
	var sel *store.Selection
	if task.Mode == dap.TimeInterval {
		sel = p.selection()
	}
	p.sequence++
	body, now := fmt.Appendf(nil, "collection %d", p.sequence), p.w.Now
	return func() {
		r, made, err := proc.store.Create(context.Background(), store.KindCollection, task.ID, "", body, true, sel, now)
		p.fine(err, store.ErrOverlap)
		if err == nil {
			p.created(r, sel, made)
		}
	}
}

// any draws a resource of a task that was asked for, if there is one.
func (p *play) any(task *store.Task) (r asked, ok bool) {
	if list := p.asked[task.ID]; len(list) > 0 {
		return list[p.rng.IntN(len(list))], true
	}
	return r, false
}

func (p *play) delete(proc *process, task *store.Task) func() {
	r, ok := p.any(task)
	if !ok || p.rng.IntN(2) == 0 {
		return func() {}
	}
	return func() {
		err := proc.store.Delete(context.Background(), r.Kind, task.ID, r.ID)
		p.fine(err, store.ErrNotFound, store.ErrBusy)
	}
}

// answered holds a response against the one that the resource gave before.
func (p *play) answered(resource string, response []byte) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if before, ok := p.answers[resource]; ok && before != string(response) {
		p.t.Errorf("resource %s answered %q, and now %q", resource, before, response)
	}
	p.answers[resource] = string(response)
}

// release is of a selection with what its batches are said to hold.
func (p *play) release(r *store.Resource, task *store.Task, sel store.Selection, count uint64, checksum dap.Checksum, begin func()) *store.Release {
	return &store.Release{
		Resource: r.ID, Task: task.ID, Kind: r.Kind, Selection: sel, Count: count, Checksum: checksum, Debit: "none",
		Build: func(sum *vdaf.AggShare, f store.Frozen, _ []int64) ([]byte, *store.Kept, error) {
			begin()
			values, err := task.VDAF.Unshard([]*vdaf.AggShare{sum, task.VDAF.NewAggShare()})
			p.mu.Lock()
			defer p.mu.Unlock()
			p.draws++
			response := fmt.Sprintf("draw %d", p.draws)
			p.drawn[response] = draw{task.ID, f.Count, f.Checksum, values}
			return []byte(response), nil, err
		},
	}
}

// drive takes a collection as far as it goes.
func (p *play) drive(who int, task *store.Task) func() {
	r, ok := p.any(task)
	if !ok {
		return func() {}
	}
	proc := p.procs[who]
	begin, wait := p.inside(who)
	return func() {
		defer wait()
		p.collect(proc.store, task, r.ID, begin)
	}
}

// collect says whether a collection has its answer, or never gets one.
func (p *play) collect(s store.Engine, task *store.Task, id string, begin func()) (done bool) {
	p.t.Helper()
	ctx := context.Background()
	r, err := s.Resource(ctx, store.KindCollection, task.ID, id)
	if err != nil {
		p.fine(err, store.ErrNotFound)
		return errors.Is(err, store.ErrNotFound)
	}
	switch r.State {
	case store.Ready:
		p.answered(task.ID.Base64()+id, r.Response)
		return true
	case store.Failed:
		return true
	}
	sel, waiting, err := s.Drain(ctx, r)
	if errors.Is(err, store.ErrOverlap) {
		p.fine(s.Fail(ctx, r, &dap.Problem{Type: dap.ProblemBatchOverlap}), store.ErrNotFound)
		return false
	}
	if p.fine(err, store.ErrTooSmall, store.ErrBusy, store.ErrNotFound, store.ErrDifferent); err != nil || waiting > 0 {
		return false
	}
	f, err := s.Freeze(ctx, r, sel)
	if p.fine(err, store.ErrTooSmall, store.ErrBusy, store.ErrNotFound, store.ErrDifferent); err != nil {
		return false
	}
	response, err := s.Release(ctx, p.release(r, task, f.Selection, f.Count, f.Checksum, begin))
	if p.fine(err, store.ErrNotFound, store.ErrOverlap); err != nil {
		return false
	}
	p.answered(task.ID.Base64()+id, response)
	return true
}

// job answers an aggregation job of a few buckets, one of those that were answered before
// or a new one: the same body has the same reports.
func (p *play) job(who int, task *store.Task) func() {
	proc, now := p.procs[who], p.w.Now
	p.sequence++
	n := p.rng.IntN(p.sequence)
	own := &play{rng: rand.New(rand.NewPCG(uint64(n), 2))}
	var batches []store.Batch
	var times []dap.Time
	var numbers [][]int
	for range 1 + own.rng.IntN(2) {
		at := dap.Time(firstBucket + own.rng.IntN(buckets))
		b := store.Batch{Start: at}
		if task.Mode == dap.LeaderSelected {
			b = store.Batch{ID: dap.BatchID{1 + byte(own.rng.IntN(3))}}
		}
		if !slices.Contains(batches, b) {
			batches, times, numbers = append(batches, b), append(times, at), append(numbers, own.pick(4))
		}
	}
	begin, wait := p.inside(who)
	return func() {
		defer wait()
		ctx := context.Background()
		r, _, err := proc.store.Create(ctx, store.KindAggregation, task.ID, "", fmt.Appendf(nil, "job %d", n), false, nil, now)
		if p.fine(err); err != nil {
			return
		}
		c := Commit(p.t, task, batches, times, numbers)
		fold := c.Fold
		c.Fold = func(verdict []dap.ReportError) ([]*vdaf.AggShare, error) {
			begin()
			return fold(verdict)
		}
		response, err := proc.store.CommitJob(ctx, r, c, reply)
		if p.fine(err, store.ErrNotFound); err == nil {
			p.answered(task.ID.Base64()+r.ID, response)
		}
	}
}

func (p *play) askShare(proc *process, task *store.Task) func() {
	sel, now := &store.Selection{ID: dap.BatchID{1 + byte(p.rng.IntN(3))}}, p.w.Now
	if task.Mode == dap.TimeInterval {
		sel = p.selection()
	}
	p.sequence++
	body := fmt.Appendf(nil, "share %d", p.sequence)
	return func() {
		r, made, err := proc.store.Create(context.Background(), store.KindShare, task.ID, "", body, true, sel, now)
		if p.fine(err, store.ErrOverlap); err == nil {
			p.created(r, sel, made)
		}
	}
}

// share releases a helper's batch as a leader would ask that has the same reports.
func (p *play) share(who int, task *store.Task) func() {
	r, ok := p.any(task)
	if !ok {
		return func() {}
	}
	proc := p.procs[who]
	begin, wait := p.inside(who)
	return func() {
		defer wait()
		ctx := context.Background()
		batches, err := proc.store.Batches(ctx, task.ID, 100)
		p.fine(err)
		var count uint64
		var sum dap.Checksum
		for _, b := range batches {
			in := b.Batch.ID == r.sel.ID
			if task.Mode == dap.TimeInterval {
				in = r.sel.Interval.Contains(b.Batch.Start)
			}
			if in && b.State != store.Closed {
				count += b.Verified
				sum.Merge(b.Checksum)
			}
		}
		response, err := proc.store.Release(ctx, p.release(r.Resource, task, *r.sel, count, sum, begin))
		p.fine(err, store.ErrNotFound, store.ErrOverlap, store.ErrMismatch, store.ErrTooSmall)
		if err == nil {
			p.answered(task.ID.Base64()+r.ID, response)
		}
	}
}

// end is the time after the faults: everything that waits gets done, and what the world
// outside knows holds of what the store has.
func (p *play) end() {
	p.t.Helper()
	ctx := context.Background()
	p.calm = true
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
	p.w.ok(p.w.Store.Bury(ctx))
	p.w.Audit()
	for _, task := range slices.Concat(p.lead, p.help) {
		p.balanced(task)
	}
}

// balanced checks one task, through either handle.
func (p *play) balanced(task *store.Task) {
	p.t.Helper()
	ctx := context.Background()
	var before *store.Counts
	var list []store.Released
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
	if task == p.lead[0] || task == p.lead[1] {
		if before.Acknowledged != p.put[task.ID] {
			p.t.Errorf("task %v: %d reports were acknowledged, %d are counted", task.ID, p.put[task.ID], before.Acknowledged)
		}
	}
	collected, counted := uint64(0), make([]int64, Elements)
	for _, r := range list {
		collected += r.Count
		known := false
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
	for n, v := range counted {
		if v < 0 || v > 1 {
			p.t.Errorf("task %v: report %d is in the releases %d times", task.ID, n, v)
		}
	}
	if collected != before.Collected {
		p.t.Errorf("task %v: %d reports were released, %d are counted", task.ID, collected, before.Collected)
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
