package storetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/vdaf"
)

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
		jobs, err := proc.store.ClaimJobs(context.Background(), now, time.Minute, 2, most)
		p.fine(err)
		proc.jobs = append(proc.jobs, jobs...)
	}
}

// take takes a job that the process believes to hold; nil where there is none.
func (p *play) take(proc *process) *store.Job {
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
		sent := &store.Sent{Accepted: make([]byte, (j.Reports()+7)/8), Digest: j.Slices[0].Sum}
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
			err = proc.store.QuarantineJob(context.Background(), j, dap.ReportDropped, "drawn")
		case 1:
			err = proc.store.ParkJob(context.Background(), j, "drawn", now)
		default:
			err = proc.store.RetryJob(context.Background(), j, now.Add(time.Second), "drawn")
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
		numbers, err := p.w.numbers(j.Slices)
		if err != nil {
			return // another process has finished it
		}
		c := Commit(p.t, task, []store.Batch{j.Batch}, []dap.Time{dap.Time(j.Slices[0].Bucket)}, [][]int{numbers})
		fold := c.Fold
		c.Fold = func(verdict []dap.ReportError) ([]*vdaf.AggShare, error) {
			begin()
			return fold(verdict)
		}
		err = proc.store.FinishJob(context.Background(), j, c)
		wait()
		p.fine(err, store.ErrStaleLease)
	}
}

func (p *play) selection(task *store.Task) *store.Selection {
	if len(task.Views) > 0 && p.rng.IntN(8) > 0 { // else it is perhaps of no view
		units := task.Views[p.rng.IntN(len(task.Views))]
		start := firstBucket + p.rng.Uint64N(buckets)
		return Interval(dap.Time(start-start%units), dap.Duration(units))
	}
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
		sel = p.selection(task)
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
		Resource: r.ID, Task: task.ID, Kind: r.Kind, Selection: sel, Count: count, Checksum: checksum, Debit: "none", Sums: sums{},
		Build: func(sum *vdaf.AggShare, f store.Frozen, _ []int64) ([]byte, *store.Kept, error) {
			begin()
			values, err := task.VDAF.Unshard([]*vdaf.AggShare{sum, task.VDAF.NewAggShare()})
			p.mu.Lock()
			defer p.mu.Unlock()
			p.draws++
			response := fmt.Sprintf("draw %d", p.draws)
			p.drawn[response] = draw{task: task.ID, count: f.Count, checksum: f.Checksum, values: values}
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
		sel = p.selection(task)
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
			if in && (b.State != store.Closed || len(task.Views) > 0) { // a view has what another had
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

func (p *play) seriesOf() *store.Series {
	s := p.w.series(1000)
	s.Units = 1
	return s
}

// askRound makes or finds the request for the share of a round.
func (p *play) askRound(s store.Engine, n int) (*store.Resource, error) {
	r, _, err := s.Create(context.Background(), store.KindShare, p.series.ID, "", fmt.Appendf(nil, "share %d", n), true, nil, p.w.Now)
	return r, err
}

// round has reports and a release of the next round of the series, or of the last once
// more. Where faults keep one from its release, those after it come first.
func (p *play) round(who int) func() {
	proc := p.procs[who]
	if p.rounds == 0 || p.rng.IntN(2) > 0 {
		p.rounds++
	}
	n, now := p.rounds, p.w.Now
	begin, wait := p.inside(who)
	return func() {
		defer wait()
		ctx := context.Background()
		numbers := []int{5 * n, 5*n + 1, 5*n + 2, 5*n + 3, 5*n + 4}
		job, _, err := proc.store.Create(ctx, store.KindAggregation, p.series.ID, "", fmt.Appendf(nil, "round %d", n), false, nil, now)
		if p.fine(err); err != nil {
			return
		}
		c := Commit(p.t, p.series, []store.Batch{{Start: dap.Time(n)}}, []dap.Time{dap.Time(n)}, [][]int{numbers})
		if _, err = proc.store.CommitJob(ctx, job, c, reply); err != nil {
			p.fine(err)
			return
		}
		share, err := p.askRound(proc.store, n)
		if p.fine(err); err != nil {
			return
		}
		rel := p.release(share, p.series, *Interval(dap.Time(n), 1), 5, checksum(5*n, 5*n+4), begin)
		rel.Series = p.seriesOf()
		rel.Draw = func(*vdaf.AggShare, store.Frozen) ([]int64, error) { return drawn(int64(n)), nil }
		build := rel.Build
		rel.Build = func(sum *vdaf.AggShare, f store.Frozen, noise []int64) ([]byte, *store.Kept, error) {
			response, kept, err := build(sum, f, noise)
			p.mu.Lock()
			defer p.mu.Unlock()
			d := p.drawn[string(response)]
			d.round, d.noise = n, slices.Clone(noise)
			p.drawn[string(response)] = d
			return response, kept, err
		}
		response, err := proc.store.Release(ctx, rel)
		if errors.As(err, new(*correlated.OrderError)) {
			return
		}
		if p.fine(err); err == nil {
			p.answered(p.series.ID.Base64()+share.ID, response)
		}
	}
}
