package leader

import (
	"context"
	"errors"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
)

// A file of acknowledged reports goes with the last of them. So one whose reports are of
// several jobs would keep the sealed shares of those that were folded for as long as any
// waits, and a trickle of a task whose helper is away would keep every log that it came in.
// Therefore what still waits in a file that has been there for leftoverAfter, and of which
// something ended, is copied into another; and so are many small ones into one. Objects of
// processes that share a database are such files.
const (
	leftoverAfter = 10 * time.Minute
	leftoverEvery = time.Minute
)

// stepLeftover copies what is left of some files into a new one, and says whether it did.
func (l *Leader) stepLeftover(ctx context.Context) (bool, error) {
	if l.room.Work() != nil {
		return false, nil
	}
	if mine, err := l.intake.tidies(ctx); err != nil || !mine {
		return false, err
	}
	l.moving.Lock()
	defer l.moving.Unlock()
	list, err := l.store.Leftover(ctx, l.opt.Clock.Now().Add(-leftoverAfter))
	if len(list) == 0 || err != nil {
		return false, err
	}
	size := int64(0)
	for i := range list {
		size += list[i].Size()
	}
	to := l.intake.place(size)
	places, err := l.move(ctx, to, list)
	if err == nil && len(places) > 0 {
		err = l.store.Move(ctx, places)
	}
	switch {
	case err == nil || errors.Is(err, store.ErrUnknown):
		return err == nil && len(places) > 0, err
	case errors.Is(err, payload.ErrFull), errors.Is(err, store.ErrNoRoom):
		return false, l.intake.discard(ctx, to) // later
	}
	return false, errors.Join(err, l.intake.discard(ctx, to)) // nothing names the copy
}

// move copies slices, but for those that are damaged or gone: the job that has one sets it
// aside.
func (l *Leader) move(ctx context.Context, to string, list []segment.Slice) (places []store.Place, err error) {
	files := l.intake.files()
	moved, err := segment.MoveSlices(ctx, files, files, to, list)
	if gone := goneSlices(err); err != nil && gone != nil {
		var rest []segment.Slice
		for i := range list {
			if len(gone) > 0 && gone[0] == i {
				gone = gone[1:]
				continue
			}
			rest = append(rest, list[i])
		}
		if list = rest; len(list) == 0 {
			return nil, nil
		}
		moved, err = segment.MoveSlices(ctx, files, files, to, list)
	}
	if err != nil {
		return nil, err
	}
	for i := range moved {
		places = append(places, store.Place{From: list[i], To: moved[i]})
	}
	return places, nil
}
