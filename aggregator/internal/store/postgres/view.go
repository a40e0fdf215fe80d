package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// viewsSince is the first version of a schema that has views. A task of an older one has none.
const viewsSince = 12

// putViews gives a new task its views.
func (s *Store) putViews(tx *pgdb.Tx, in *store.Task) error {
	if len(in.Views) == 0 {
		return nil
	}
	if version, err := tx.Version(); err != nil {
		return err
	} else if version.Number < viewsSince {
		return fmt.Errorf("a task with views, and the schema is of version %d and has them from %d on: starling migrate", version.Number, viewsSince)
	}
	for number, units := range in.Views {
		if _, err := tx.Exec("put-view", in.ID[:], number, units); err != nil {
			return err
		}
	}
	return nil
}

// spans reads the views of a task, which never change, once in the life of a handle.
func (s *Store) spans(tx *pgdb.Tx, t *task) error {
	if known, ok := s.views.Load(t.id); ok {
		t.views = known.([]uint64)
		return nil
	}
	version, err := tx.Version()
	if err != nil {
		return err
	}
	t.views = nil
	if version.Number >= viewsSince {
		err = tx.Each("views-of", []any{t.row}, func(r pgdb.Row) error {
			var units uint64
			err := r.Scan(&units)
			t.views = append(t.views, units)
			return err
		})
	}
	if err == nil {
		s.views.Store(t.id, t.views)
	}
	return err
}

// told remembers the views of a task that was provisioned here.
func (s *Store) toldViews(in *store.Task) {
	s.views.Store(in.ID, slices.Clone(in.Views))
	if len(in.Views) > 0 {
		s.viewed.Store(true)
	}
}

// refuseView is ErrOverlap if a span was released in its view or is of none, and ErrOver if
// its time is over.
func (t *task) refuseView(tx *pgdb.Tx, sel store.Selection) error {
	sp, err := spanOf(sel.Interval)
	if err != nil {
		return err
	}
	number, ok := store.ViewOf(t.views, sp.first, sp.last)
	if !ok {
		return fmt.Errorf("%w: it is no span of a view", store.ErrOverlap)
	}
	var before uint64
	if _, err := tx.One("views-ended", []any{t.row}, &before); err != nil {
		return err
	}
	if sp.first < before {
		return store.ErrOver
	}
	var one int
	found, err := tx.One("view-closed", []any{t.row, number, sp.first, sp.last}, &one)
	if err == nil && found {
		err = store.ErrOverlap
	}
	return err
}

// viewed is what a selection of a task with views needs besides.
type viewed struct {
	number int
	fresh  uint64 // reports of which this is the first release
	kept   map[int64]uint64
	drawn  map[int]map[uint64]bool // by view: first units of spans that were released, this one too
}

// gatherView is [task.gather] for a task with views: of batches that were released in another
// one, the parts are there.
func (t *task) gatherView(tx *pgdb.Tx, x *selected) error {
	sp, err := spanOf(x.Selection.Interval)
	if err != nil {
		return err
	}
	var ok bool
	if x.views.number, ok = store.ViewOf(t.views, sp.first, sp.last); !ok {
		return fmt.Errorf("%w: it is no span of a view", store.ErrOverlap)
	}
	x.views.kept = make(map[int64]uint64) // closed batches: how many reports each has
	x.views.drawn = map[int]map[uint64]bool{x.views.number: {sp.first: true}}
	err = tx.Each("batches-in-span", []any{t.row, sp.first, sp.last}, func(r pgdb.Row) error {
		var row int64
		var closed bool
		var bucket, verified uint64
		if err := r.Scan(&row, &closed, &bucket, &verified); err != nil {
			return err
		}
		if closed {
			x.views.kept[row] = verified
		}
		x.rows = append(x.rows, row)
		x.batches[row] = &batchSum{of: store.Batch{Start: dap.Time(bucket)}}
		return nil
	})
	if err != nil {
		return err
	}
	return tx.Each("drawn", []any{t.row, sp.first, sp.last}, func(r pgdb.Row) error {
		var view int
		var first uint64
		err := r.Scan(&view, &first)
		if x.views.drawn[view] == nil {
			x.views.drawn[view] = make(map[uint64]bool)
		}
		x.views.drawn[view][first] = true
		return err
	})
}

// whole says whether all that was released in another view is there still, and counts what
// was not.
func (x *selected) whole(t *task) error {
	for row, b := range x.batches {
		reports, closed := x.views.kept[row]
		if !closed {
			x.views.fresh += b.reports
		} else if reports != b.reports {
			return fmt.Errorf("task %v %s: its sum is gone, or a part of it", t.id, t.call(b.of))
		}
	}
	return nil
}

// closeView is [selected.close] for a task with views: parts stay for the views that wait.
func (x *selected) closeView(tx *pgdb.Tx, t *task) error {
	var open, done []int64
	for _, row := range x.rows {
		if _, closed := x.views.kept[row]; !closed {
			open = append(open, row)
		}
		if !x.views.waits(t, uint64(x.batches[row].of.Start)) {
			done = append(done, row)
		}
	}
	if err := x.note(tx, open); err != nil {
		return err
	}
	_, err := tx.Exec("drop-parts", done)
	return err
}

// waits says whether a batch bucket has a view that was not released of it.
func (x *viewed) waits(t *task, bucket uint64) bool {
	for number, units := range t.views {
		if !x.drawn[number][bucket-bucket%units] {
			return true
		}
	}
	return false
}

// EndViews implements [store.Releases].
func (s *Store) EndViews(ctx context.Context, id dap.TaskID, before dap.Time) error {
	end := min(uint64(before), math.MaxInt64)
	return s.update(ctx, "end-views", func(tx *pgdb.Tx) error {
		t, err := live(tx, reading, id)
		if err == nil {
			err = s.spans(tx, t)
		}
		if err != nil {
			return err
		}
		if len(t.views) == 0 {
			return errors.New("the task has no views")
		}
		ended := func() (bool, error) {
			var so uint64
			_, err := tx.One("views-ended", []any{t.row}, &so)
			return end <= so, err
		}
		if done, err := ended(); err != nil || done {
			return err // as nearly always, and no commit has to wait
		}
		if t, err = live(tx, excluding, id); err != nil {
			return err
		}
		if done, err := ended(); err != nil || done {
			return err
		}
		var one int
		if held, err := tx.One("held-before", []any{t.row, end}, &one); err != nil {
			return err
		} else if held {
			return fmt.Errorf("%w: a collection is under way", store.ErrBusy)
		}
		var late uint64
		if _, err := tx.One("drop-slices-before", []any{t.row, end}, &late); err != nil {
			return err
		}
		if err := t.reject(tx, dap.BatchCollected, late); err != nil {
			return err
		}
		x := &selected{batches: make(map[int64]*batchSum)}
		var open []int64
		err = tx.Each("batches-before", []any{t.row, end}, func(r pgdb.Row) error {
			var row int64
			var closed bool
			var bucket uint64
			if err := r.Scan(&row, &closed, &bucket); err != nil {
				return err
			}
			if !closed {
				open = append(open, row)
			}
			x.rows = append(x.rows, row)
			x.batches[row] = &batchSum{of: store.Batch{Start: dap.Time(bucket)}}
			return nil
		})
		if err != nil {
			return err
		}
		if err := x.readParts(tx); err != nil {
			return err
		}
		if err := x.note(tx, open); err != nil {
			return err
		}
		if _, err := tx.Exec("drop-parts", x.rows); err != nil {
			return err
		}
		_, err = tx.Exec("end-views", t.row, end)
		return err
	})
}

// Viewed implements [store.Releases].
func (s *Store) Viewed(ctx context.Context) (ids []dap.TaskID, err error) {
	err = s.view(ctx, "viewed", func(tx *pgdb.Tx) error {
		ids = nil
		if version, err := tx.Version(); err != nil || version.Number < viewsSince {
			return err
		}
		ids, err = taskIDs(tx, "viewed-tasks")
		return err
	})
	return ids, err
}
