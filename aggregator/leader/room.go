package leader

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/room"
	"github.com/starling-agg/starling/aggregator/internal/store"
)

// noRoom is how long a client is asked to wait where there is no room for its reports.
const noRoom = 30 * time.Second

// backlog counts the acknowledged reports that rows name and that are not finished. It is
// read from the store every few seconds, and moves with the work between two readings.
type backlog struct{ named atomic.Int64 }

// waiting is how many acknowledged reports are to be verified.
func (l *Leader) waiting() uint64 {
	return l.intake.unnamed().Reports + uint64(max(0, l.backlog.named.Load()))
}

// roomFor says whether an upload may be taken.
func (l *Leader) roomFor() error {
	err := l.takes(l.waiting())
	if err == nil {
		return nil
	}
	why := aggregator.ShedDisk
	switch {
	case errors.Is(err, room.ErrBacklog):
		why = aggregator.ShedBacklog
	case errors.Is(err, room.ErrStored):
		why = aggregator.ShedStored
	}
	l.opt.Observe.Turned(why)
	return edge.Later("the server has no room at present", noRoom)
}

// takes says why no upload is taken while waiting reports wait; nil where one is.
func (l *Leader) takes(waiting uint64) error {
	if err := l.room.Take(waiting); err != nil {
		return err
	}
	return l.party.Quota.Room()
}

// unreturned are claims that the disk had no room to give back. They are tried before
// anything else is claimed; kept to the end of their lease, their reports would wait for
// nothing.
type unreturned struct {
	mu     sync.Mutex
	claims []func(context.Context) error
}

// giveBack calls f, and again in every later [unreturned.retry] while there is no room.
func (u *unreturned) giveBack(ctx context.Context, f func(context.Context) error) error {
	err := f(ctx)
	if !errors.Is(err, store.ErrNoRoom) {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.claims = append(u.claims, f)
	return nil
}

// retry gives back what could not be given back, and stops at the first that still cannot.
func (u *unreturned) retry(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	for len(u.claims) > 0 {
		if err := u.claims[0](ctx); err != nil {
			return err
		}
		u.claims = u.claims[1:]
	}
	return nil
}
