package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// stepKeys makes keys that are due, and destroys those that no acknowledged report needs
// any more.
func (l *Leader) stepKeys(ctx context.Context) (bool, error) {
	worked, err := l.keys.Step(ctx, l.needsKey)
	return worked, errors.Join(err, l.intake.expire(ctx))
}

// needsKey says how many acknowledged reports that are not folded yet were sealed to a
// key. Only one call at a time, which [keyset.Set.Step] sees to.
func (l *Leader) needsKey(ctx context.Context, id uint8, _ time.Time) (why string, err error) {
	// The uploads that were taken for the key are durable: sorted, they are all in slices. A
	// log that is set aside because it is damaged keeps no key; its reports are lost already.
	if _, err := l.intake.settle(ctx); err != nil {
		return "", err
	}
	if err := l.intake.broken(); err != nil {
		return "", fmt.Errorf("leader: what the log holds only a restart tells: %w", err)
	}
	l.moving.RLock() // or one might be looked for where it was
	defer l.moving.RUnlock()
	n, err := l.sealed.count(ctx, l.store, l.intake.files(), id)
	if n == 0 || err != nil {
		return "", err
	}
	return fmt.Sprintf("%d acknowledged reports are not folded yet", n), nil
}

// sealedTo remembers to which keys the reports of each waiting slice were sealed, by its
// sum: slices do not change, so each is read once.
type sealedTo map[segment.Sum]map[uint8]uint64

// listed is how many slices are listed at once.
const listed = 64

// count is how many reports in the slices that wait were sealed to a key.
func (s *sealedTo) count(ctx context.Context, jobs store.Jobs, files payload.Store, id uint8) (n uint64, err error) {
	next := make(sealedTo)
	for cursor := int64(0); ; {
		some, after, err := jobs.Slices(ctx, cursor, listed)
		if err != nil {
			return 0, err
		}
		if len(some) == 0 {
			break
		}
		before := cursor
		cursor = after
		for i := range some {
			sum := some[i].Sum
			keys, known := (*s)[sum]
			if !known {
				if keys, err = keysOf(ctx, jobs, files, some[i], before); err != nil {
					return 0, err
				}
			}
			if keys != nil { // another slice may have the same reports, whole
				next[sum] = keys
			}
			n += keys[id]
		}
	}
	*s = next
	return n, nil
}

// keysOf counts by key the reports of a slice, which is listed behind a cursor. One that is
// not where it was may have been moved, maybe by another process, and is looked for again.
// One that is listed no more was folded meanwhile; one that is damaged, or gone from where
// it is listed, opens to nobody.
func keysOf(ctx context.Context, jobs store.Jobs, files payload.Store, s segment.Slice, cursor int64) (map[uint8]uint64, error) {
	for {
		reports, err := segment.OpenSlices(ctx, files, []segment.Slice{s})
		if err == nil {
			defer reports.Close()
			return countKeys(reports), nil
		}
		if goneSlices(err) == nil {
			return nil, err
		}
		some, _, err := jobs.Slices(ctx, cursor, listed)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(some, func(x segment.Slice) bool { return x.Sum == s.Sum && x.TaskID == s.TaskID })
		if i < 0 || some[i].Object == s.Object {
			return nil, nil
		}
		s = some[i]
	}
}

func countKeys(reports *segment.Reports) map[uint8]uint64 {
	keys := make(map[uint8]uint64)
	for i := range reports.Len() {
		if r, err := dap.ReadReport(reports.Report(i)); err == nil {
			keys[r.Leader.ConfigID]++
		}
	}
	return keys
}
