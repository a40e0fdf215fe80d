package forward

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway/internal/journal"
	"github.com/starling-agg/starling/anonymity/internal/shuffle"
)

// start sends a batch, after what is to be done first.
func (f *Forwarder) start(q *queue, b *batch, first func() error) {
	f.running.Go(func() {
		if first != nil {
			if err := first(); err != nil {
				f.o.Fail(err)
				return
			}
		}
		open, all := f.o.Journal.Pieces(b.Batch)
		var pieces sync.WaitGroup
		var mu sync.Mutex
		var errs []error
		run := func(work func() error) {
			pieces.Go(func() {
				err := work()
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, err)
			})
		}
		if all == 0 {
			run(func() error { return f.probe(q, b) })
		}
		for _, i := range open {
			run(func() error { return f.piece(q, b, i) })
		}
		pieces.Wait()
		if err := errors.Join(errs...); err != nil {
			if f.ctx.Err() == nil {
				f.o.Fail(err)
			}
			return
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.over(q, b)
	})
}

// piece sends a piece until it is done with.
func (f *Forwarder) piece(q *queue, b *batch, n int) error {
	durably := context.WithoutCancel(f.ctx)
	refs := f.o.Journal.Piece(b.Batch, n)
	settle := func(outcome string, refused map[string]uint64) error {
		if err := f.o.Failpoints.Hit(failAfterAnswer); err != nil {
			return err
		}
		ends := map[string]uint64{outcome: uint64(len(refs))}
		for reason, n := range refused {
			ends[reason] += n
			ends[Refused] += n
			ends[outcome] -= n
		}
		if err := f.o.Journal.Settle(durably, b.Batch, n, journal.CountsAt(f.o.Clock.Now(), ends)); err != nil {
			return err
		}
		f.count(ends) // first: the status misses an upload at no time
		f.mu.Lock()
		b.items -= len(refs)
		f.mu.Unlock()
		return f.o.Failpoints.Hit(failAfterSettle)
	}
	verdict, refused, err := f.deliver(q, b, refs)
	switch {
	case err != nil:
		return err
	case verdict == giveUp:
		return settle(Expired, nil)
	case verdict == done:
		return settle(Taken, refused)
	case verdict == stranger, len(refs) == 1:
		return settle(Dropped, nil)
	}
	// Something in there is not to the target's liking. Nobody else is to suffer for it.
	second, err := f.o.Journal.Split(durably, b.Batch, n)
	if err != nil {
		return err
	}
	if err := f.piece(q, b, n); err != nil {
		return err
	}
	return f.piece(q, b, second)
}

// probe asks a target with an empty upload until it is there.
func (f *Forwarder) probe(q *queue, b *batch) error {
	_, _, err := f.deliver(q, b, nil)
	return err
}

// verdict is how it ended.
type verdict int

const (
	done     verdict = iota + 1 // the target has taken it
	final                       // the target will never take it
	giveUp                      // its time is over
	unknown                     // the target knows nothing of its route
	stranger                    // and never did, and too much else is of that kind
)

// Waits between two attempts.
const (
	firstWait   = time.Second
	longestWait = time.Minute
)

// deliver sends uploads until the target has said its last word, or their time is over.
// It fails where the journal does, and when the forwarder stops.
func (f *Forwarder) deliver(q *queue, b *batch, refs []journal.Ref) (verdict, map[string]uint64, error) {
	failed := false
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		if f.Passed() >= b.ends {
			return giveUp, nil, nil
		}
		select {
		case f.senders <- struct{}{}:
		case <-f.ctx.Done():
			return 0, nil, f.ctx.Err()
		}
		bodies, err := f.bodies(b, refs)
		if err != nil {
			<-f.senders
			return 0, nil, err
		}
		v, refused, err := f.ask(b.Route, bodies)
		<-f.senders
		if err == nil {
			keep, fault := f.heard(q, b, v)
			switch {
			case fault != nil:
				return 0, nil, fault
			case !keep:
				return stranger, nil, nil
			case v != unknown:
				return v, refused, nil
			}
			err = errUnknown
		}
		if f.ctx.Err() != nil {
			return 0, nil, f.ctx.Err()
		}
		if !failed { // once for each piece, not for each attempt
			f.o.Log.Warn("a target did not take uploads; they are sent again until it does", slog.Any("error", err))
			failed = true
		}
		pause := min(wait/2+shuffle.UpTo(wait/2), b.ends-f.Passed())
		timer := f.o.Clock.NewTimer(max(pause, 0))
		select {
		case <-timer.C():
		case <-f.ctx.Done():
			timer.Stop()
			return 0, nil, f.ctx.Err()
		}
	}
}

// errUnknown is an answer that may be wrong, or be right for good.
var errUnknown = errors.New("it says that it knows no such task")

// maxKnown bounds the routes that are remembered for a target has taken something by
// them; it knows far fewer tasks.
const maxKnown = 1 << 12

// heard notes what a target has said of a batch's route; keep is false where the batch is
// to be dropped: no target ever knew the route, and as much as may be is held of that
// kind. It fails where the journal does.
func (f *Forwarder) heard(q *queue, b *batch, v verdict) (keep bool, err error) {
	f.mu.Lock()
	q.unknown = v == unknown
	fresh := v == done && !f.known[b.Route] && len(f.known) < maxKnown
	if fresh {
		f.known[b.Route] = true
	}
	if v == unknown && !f.known[b.Route] && f.strangers() > f.o.Unknown {
		b.gone = true
	}
	keep = v != unknown || !b.gone
	f.mu.Unlock()
	if fresh {
		err = f.o.Journal.Know(context.WithoutCancel(f.ctx), b.Route)
	}
	return keep, err
}

// strangers is how many requests are held of routes that no target ever knew. f.mu must
// be held.
func (f *Forwarder) strangers() (n int) {
	for route, q := range f.queues {
		if q.unknown && !f.known[route] {
			n += q.requests()
		}
	}
	return n
}

// bodies reads what refs refer to, in their order.
func (f *Forwarder) bodies(b *batch, refs []journal.Ref) ([][]byte, error) {
	items, places := make(map[uint64][]int), make(map[uint64][]int)
	for i, ref := range refs {
		items[ref.Round], places[ref.Round] = append(items[ref.Round], ref.Item), append(places[ref.Round], i)
	}
	bodies := make([][]byte, len(refs))
	for number, list := range items {
		read, err := f.o.Journal.Bodies(b.rounds[number], list)
		if err != nil {
			return nil, err
		}
		for i, at := range places[number] {
			bodies[at] = read[i]
		}
	}
	return bodies, nil
}

// errStatus is an answer that is none.
type errStatus int

func (e errStatus) Error() string { return fmt.Sprintf("status %d", int(e)) }
