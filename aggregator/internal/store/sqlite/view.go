package sqlite

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// domainSum is in docs/registry.md.
const domainSum = "starling bucket sum v1"

// put gives a task its row, and its views theirs.
func (t *task) put(tx *database.Tx) (err error) {
	if t.row, err = tx.Insert("put-task", t.ID[:], t.Config, int(t.Mode), uint64(t.TimePrecision), t.MinBatch); err != nil {
		return err
	}
	for number, units := range t.Views {
		if _, err := tx.Exec("put-view", t.row, number, units); err != nil {
			return err
		}
	}
	return nil
}

// readViews is a part of Open.
func (s *Store) readViews(tx *database.Tx) error {
	return tx.Each("views", nil, func(r database.Row) error {
		var row int64
		var units uint64
		if err := r.Scan(&row, &units); err != nil {
			return err
		}
		t := s.rows[row]
		if t == nil {
			return fmt.Errorf("%w: a view is of no task", database.ErrDamaged)
		}
		t.Views = append(t.Views, units)
		return nil
	})
}

// refuseView is ErrOverlap if a span was released in its view or is of none, and ErrOver if
// its time is over.
func (t *task) refuseView(tx *database.Tx, sp span) error {
	number, ok := store.ViewOf(t.Views, uint64(sp.first), uint64(sp.last))
	if !ok {
		return fmt.Errorf("%w: it is no span of a view", store.ErrOverlap)
	}
	var over int64
	if _, err := tx.One("over", []any{t.row}, &over); err != nil {
		return err
	}
	if sp.first < over {
		return store.ErrOver
	}
	var one int
	if found, err := tx.One("view-closed", []any{t.row, number, sp.first, sp.last}, &one); err != nil || !found {
		return err
	}
	return store.ErrOverlap
}

// viewed is what a selection of a task with views needs besides.
type viewed struct {
	number int
	fresh  uint64       // reports of which this is the first release
	closed []batchRow   // the batches that were released in another view, with reports
	open   []batchRow   // those that were not, with reports
	boxes  []sealedSum  // by closed
	kept   []sealedSum  // by open: what stays of them, for as long as a view waits
	drawn  map[int]spot // by view: the spans that were released
}

type sealedSum struct {
	key uint64
	box []byte
}

// spot are first units of spans.
type spot map[int64]bool

func (x *selected) addViewed(r batchRow) error {
	if !r.closed {
		if r.verified > 0 {
			x.views.open = append(x.views.open, r)
			x.views.fresh += r.verified
		}
		return x.add(r)
	}
	if r.verified == 0 {
		return nil
	}
	x.views.closed = append(x.views.closed, r)
	r.closed = false
	before := len(x.rows)
	err := x.add(r)
	x.rows = x.rows[:before] // it is closed already
	x.shares = x.shares[:len(x.shares)-1]
	return err
}

// findSums reads what is kept of batches that were released in another view, and which
// views were released of all of them.
func (t *task) findSums(tx *database.Tx, sp span, x *selected) (err error) {
	var ok bool
	if x.views.number, ok = store.ViewOf(t.Views, uint64(sp.first), uint64(sp.last)); !ok {
		return fmt.Errorf("%w: it is no span of a view", store.ErrOverlap)
	}
	x.views.boxes = make([]sealedSum, len(x.views.closed))
	for i, r := range x.views.closed {
		b := &x.views.boxes[i]
		found, err := tx.One("find-sum", []any{r.id}, &b.key, &b.box)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("%w: task %v: the sum of bucket %d is gone", database.ErrDamaged, t.ID, r.bucket)
		}
	}
	x.views.drawn = map[int]spot{x.views.number: {sp.first: true}}
	return tx.Each("drawn", []any{t.row, sp.first, sp.last}, func(r database.Row) error {
		var view int
		var first int64
		err := r.Scan(&view, &first)
		if x.views.drawn[view] == nil {
			x.views.drawn[view] = make(spot)
		}
		x.views.drawn[view][first] = true
		return err
	})
}

// waits says whether a batch bucket has a view that was not released of it.
func (x *viewed) waits(t *task, bucket uint64) bool {
	for number, units := range t.Views {
		if !x.drawn[number][int64(bucket-bucket%units)] {
			return true
		}
	}
	return false
}

// sumAAD says which sum it is that lies under a data key.
func (t *task) sumAAD(r *batchRow) []byte {
	b := append([]byte(domainSum), t.ID[:]...)
	for _, n := range []uint64{r.bucket, r.verified, r.first, r.last} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return append(b, r.checksum...)
}

// openSums adds the sums that are kept to the shares of a selection, and seals those of
// batches that close.
func (t *task) openSums(sums store.Sums, x *selected) error {
	if sums == nil {
		return errors.New("a task with views needs keys for its sums")
	}
	for i := range x.views.closed {
		r, b := &x.views.closed[i], &x.views.boxes[i]
		share, err := sums.OpenSum(b.key, t.sumAAD(r), b.box)
		if err != nil {
			return fmt.Errorf("the sum of bucket %d: %w", r.bucket, err)
		}
		x.shares = append(x.shares, share)
	}
	for i := range x.views.open {
		r, b := &x.views.open[i], sealedSum{}
		if x.views.waits(t, r.bucket) {
			var err error
			if b.key, b.box, err = sums.SealSum(dap.Time(r.bucket), t.sumAAD(r), r.share); err != nil {
				return fmt.Errorf("the sum of bucket %d: %w", r.bucket, err)
			}
		}
		x.views.kept = append(x.views.kept, b)
	}
	return nil
}

// keepSums keeps the sums of batches for the views that wait, and drops those for which none
// does. The batches of the release are closed.
func (t *task) keepSums(tx *database.Tx, x *selected) error {
	for i, b := range x.views.kept {
		if b.box == nil {
			continue
		}
		if _, err := tx.Insert("put-sum", x.views.open[i].id, b.key, b.box); err != nil {
			return err
		}
	}
	for _, r := range x.views.closed {
		if x.views.waits(t, r.bucket) {
			continue
		}
		if _, err := tx.Exec("drop-sum", r.id); err != nil {
			return err
		}
	}
	return nil
}

// EndViews implements [store.Releases].
func (s *Store) EndViews(ctx context.Context, id dap.TaskID, before dap.Time) error {
	t, err := s.live(id)
	if err != nil {
		return err
	}
	if len(t.Views) == 0 {
		return errors.New("store: end views: the task has none")
	}
	end := int64(min(before, math.MaxInt64))
	t.mu.RLock()
	done := end <= t.gone
	t.mu.RUnlock()
	if done {
		return nil
	}
	t.gate.Lock() // no commit is under way, and none begins before the mark is seen
	defer t.gate.Unlock()
	err = s.update(ctx, "end-views", func(tx *database.Tx) error {
		var one int
		if held, err := tx.One("held-before", []any{t.row, end}, &one); err != nil {
			return err
		} else if held {
			return fmt.Errorf("%w: a collection is under way", store.ErrBusy)
		}
		left, err := tx.One("left-before", []any{t.row, end}, &one)
		if err != nil {
			return err
		}
		if left {
			tx.Erase() // the sums
		}
		if err := t.rejectLate(tx, span{0, end - 1}); err != nil {
			return err
		}
		for _, statement := range []string{"close-before", "drop-sums-before", "end-views"} {
			if _, err := tx.Exec(statement, t.row, end); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone = end
	return nil
}

// Viewed implements [store.Releases].
func (s *Store) Viewed(context.Context) (ids []dap.TaskID, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for id, t := range s.tasks {
		if len(t.Views) > 0 && !t.isRetired() {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b dap.TaskID) int { return bytes.Compare(a[:], b[:]) })
	return ids, nil
}
