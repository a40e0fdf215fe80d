package agreement

import (
	"context"
	"slices"
	"sync"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// page is how many releases are read at a time.
const page = 4096

// each reads the releases of a task after one of them.
func each(ctx context.Context, s Store, id dap.TaskID, after int64, f func(*store.Released)) error {
	for {
		list, err := s.ReleasesAfter(ctx, id, after, page)
		if err != nil {
			return err
		}
		for i := range list {
			f(&list[i])
			after = list[i].Seq
		}
		if len(list) < page {
			return nil
		}
	}
}

// A Ledger counts the releases of one task as they come, so that an exchange reads only new
// ones. Safe for concurrent use; the zero value is ready.
type Ledger struct {
	mu    sync.Mutex
	last  int64
	tally Tally
}

// Tally is of all releases up to now.
func (l *Ledger) Tally(ctx context.Context, s Store, id dap.TaskID, k Key) (Tally, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := each(ctx, s, id, l.last, func(r *store.Released) {
		l.tally.Add(k, r)
		l.last = r.Seq
	})
	return l.tally, err
}

// printsIn lists the releases that a part of the ledger has, rising, and those of frozen
// batches that were asked for: in this order of reading, nothing that was frozen before is
// missed.
func printsIn(ctx context.Context, s Store, id dap.TaskID, k Key, frozen bool, p *Part) (list []Print, err error) {
	add := func(r *store.Released) {
		if x := k.print(r); p.Has(x) {
			list = append(list, x)
		}
	}
	if frozen {
		asked, err := s.Frozen(ctx, id)
		if err != nil {
			return nil, err
		}
		for i := range asked {
			add(&asked[i])
		}
	}
	if err := each(ctx, s, id, 0, add); err != nil {
		return nil, err
	}
	slices.Sort(list)
	return slices.Compact(list), nil // what was released between the two reads is there twice
}
