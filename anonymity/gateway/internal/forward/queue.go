package forward

import (
	"context"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway/internal/journal"
	"github.com/starling-agg/starling/anonymity/internal/shuffle"
)

// queue is the groups of one route, in the order of their rounds.
type queue struct {
	held    []held
	batches []*batch // cut and not credited, in order
	active  int      // of these, how many are not done
	unknown bool     // the target has said last that it knows nothing of the route
}

// requests is how many a queue holds, covers counted.
func (q *queue) requests() (n int) {
	for _, h := range q.held {
		n += int(h.round.Groups[h.group].Requests)
	}
	for _, b := range q.batches {
		for _, c := range b.credits {
			if b.gone {
				break
			}
			n += int(c.Round.Groups[c.Group].Requests)
		}
	}
	return n
}

// most is how many of the requests that wait have tokens of one round, or need none: as
// many devices at least, where each has one token a round. At the turn of a round the
// same may have come with one of either.
func (q *queue) most() (most uint64) {
	of := make(map[uint64]uint64, 2)
	for _, h := range q.held {
		g := &h.round.Groups[h.group]
		of[g.Of] += uint64(g.Requests)
		most = max(most, of[g.Of])
	}
	return most
}

// held is a group that waits.
type held struct {
	round *journal.Round
	group int
	items []int
}

// batch is one under way, or done and waiting for those before it.
type batch struct {
	*journal.Batch
	rounds  map[uint64]*journal.Round // of its members
	credits []Credit                  // what is done with when it is
	ends    time.Duration             // of the forwarder's passed, when it is given up
	done    bool                      // under the forwarder's mu, as are the next two
	// all that is left of it is dropped: no target ever knew its route
	gone  bool
	items int // that are not settled
}

func (b *batch) add(m journal.Member, r *journal.Round, hold time.Duration) {
	if b.rounds == nil {
		b.rounds = make(map[uint64]*journal.Round)
	}
	b.rounds[r.Number] = r
	b.credits = append(b.credits, Credit{r, m.Group})
	b.ends = max(b.ends, r.Passed+hold)
}

func (f *Forwarder) queue(r journal.Route) *queue {
	q := f.queues[r]
	if q == nil {
		q = &queue{}
		f.queues[r] = q
	}
	return q
}

// Hold takes a round that was logged and answered.
func (f *Forwarder) Hold(r *journal.Round) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hold(r, func(int) bool { return true })
}

func (f *Forwarder) hold(r *journal.Round, wanted func(group int) bool) {
	items := make([][]int, len(r.Groups))
	for i := range r.Items {
		g := r.Items[i].Group
		items[g] = append(items[g], i)
	}
	for g := range r.Groups {
		if wanted(g) {
			q := f.queue(r.Groups[g].Route)
			q.held = append(q.held, held{r, g, items[g]})
		}
	}
}

// Tick gives up what is too old and cuts batches where a multiple of Mix has come since
// the last call.
func (f *Forwarder) Tick(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	mixes := !now.Truncate(f.o.Mix).Equal(f.last.Truncate(f.o.Mix))
	f.see(now)
	for _, begin := range f.resume {
		begin()
	}
	f.resume = nil
	for route, q := range f.queues {
		f.expire(route, q)
		if mixes && len(q.held) > 0 && q.active < maxBatches && q.most() >= uint64(f.o.MinRound) {
			f.cut(route, q)
		}
		f.credit(q)
		if len(q.held)+len(q.batches) == 0 {
			delete(f.queues, route)
		}
	}
}

// expire gives up groups that were never cut: as a batch of which nothing is sent.
func (f *Forwarder) expire(route journal.Route, q *queue) {
	outcome := Expired
	if q.most() < uint64(f.o.MinRound) {
		outcome = Few
	}
	b := &batch{Batch: &journal.Batch{Number: f.next, Route: route, GivenUp: true}}
	for len(q.held) > 0 && f.passed >= q.held[0].round.Passed+f.o.Hold {
		h := q.held[0]
		q.held = q.held[1:]
		m := journal.Member{Round: h.round.Number, Group: h.group}
		b.Members = append(b.Members, m)
		b.add(m, h.round, f.o.Hold)
		b.items += len(h.items)
	}
	if len(b.Members) == 0 {
		return
	}
	f.next++
	q.batches = append(q.batches, b)
	q.active++
	f.running.Go(func() {
		ends := map[string]uint64{outcome: uint64(b.items)}
		if err := f.o.Journal.GiveUp(context.WithoutCancel(f.ctx), b.Batch, journal.CountsAt(f.o.Clock.Now(), ends)); err != nil {
			f.o.Fail(err)
			return
		}
		f.count(ends)
		f.mu.Lock()
		defer f.mu.Unlock()
		b.items = 0
		f.over(q, b)
	})
}

// cut makes one batch of all that a queue holds.
func (f *Forwarder) cut(route journal.Route, q *queue) {
	b := &batch{Batch: &journal.Batch{Number: f.next, Route: route}}
	f.next++
	var refs []journal.Ref
	var sizes []int64
	for _, h := range q.held {
		m := journal.Member{Round: h.round.Number, Group: h.group}
		b.Members = append(b.Members, m)
		b.add(m, h.round, f.o.Hold)
		for _, i := range h.items {
			refs, sizes = append(refs, journal.Ref{Round: h.round.Number, Item: i}), append(sizes, h.round.Items[i].Size())
		}
	}
	q.held = nil
	shuffle.Uniform(len(refs), func(i, j int) {
		refs[i], refs[j] = refs[j], refs[i]
		sizes[i], sizes[j] = sizes[j], sizes[i]
	})
	begin, size := 0, int64(0)
	for i := range refs {
		if i > begin && (i-begin >= f.o.Joined || size+sizes[i] > int64(f.o.JoinedBytes)) {
			b.Pieces = append(b.Pieces, refs[begin:i:i])
			begin, size = i, 0
		}
		size += sizes[i]
	}
	if begin < len(refs) {
		b.Pieces = append(b.Pieces, refs[begin:])
	}
	b.items = len(refs)
	q.batches = append(q.batches, b)
	q.active++
	f.start(q, b, func() error {
		if err := f.o.Failpoints.Hit(failBeforeCut); err != nil {
			return err
		}
		// Nothing of the batch leaves before it is written down; one without an upload
		// has nothing to repeat.
		if len(refs) > 0 {
			if err := f.o.Journal.Cut(context.WithoutCancel(f.ctx), b.Batch); err != nil {
				return err
			}
		}
		return f.o.Failpoints.Hit(failAfterCut)
	})
}

// over has a batch be done. f.mu must be held.
func (f *Forwarder) over(q *queue, b *batch) {
	b.done = true
	q.active--
}

// count tells of what is written down.
func (f *Forwarder) count(ends map[string]uint64) {
	for outcome, n := range ends {
		if n > 0 {
			f.o.Count(outcome, n)
		}
	}
}

// credit releases the batches at the head of a queue that are done: in the order of
// rounds, so that a target cannot choose which of two is released first.
func (f *Forwarder) credit(q *queue) {
	for len(q.batches) > 0 && q.batches[0].done {
		b := q.batches[0]
		q.batches = q.batches[1:]
		f.credits = append(f.credits, b.credits...)
	}
}

// Credits returns the groups that were done with since the last call.
func (f *Forwarder) Credits() []Credit {
	f.mu.Lock()
	defer f.mu.Unlock()
	credits := f.credits
	f.credits = nil
	return credits
}

// maxBatches is how many batches of one route are under way at one time: one that its
// target chokes on does not hold up the others, and a target that is away for long finds
// few large batches.
const maxBatches = 8
