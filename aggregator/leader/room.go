package leader

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/room"
	"github.com/starling-agg/starling/aggregator/internal/store"
)

// noRoom is how long a client is asked to wait where there is no room for its reports.
const noRoom = 30 * time.Second

// backlog counts the acknowledged reports that are in segments and not finished. It is
// read from the store every few seconds, and moves with the work between two readings.
type backlog struct{ segments atomic.Int64 }

// waiting is how many acknowledged reports are to be verified.
func (l *Leader) waiting() uint64 {
	return l.inbox.Stats().Reports + uint64(max(0, l.backlog.segments.Load()))
}

// roomFor says whether an upload may be taken.
func (l *Leader) roomFor() error {
	err := l.room.Take(l.waiting())
	if err == nil {
		return nil
	}
	why := aggregator.ShedDisk
	if errors.Is(err, room.ErrBacklog) {
		why = aggregator.ShedBacklog
	}
	l.opt.Observe.Turned(why)
	return edge.Later("the server has no room at present", noRoom)
}

// untilRoom repeats what the disk had no room for until it has: a claim that cannot be
// given back would keep its reports until the lease ends.
func (l *Leader) untilRoom(ctx context.Context, f func() error) error {
	for {
		err := f()
		if !errors.Is(err, store.ErrNoRoom) {
			return err
		}
		if stopped := l.sleep(ctx, l.opt.Idle); stopped != nil {
			return err
		}
	}
}
