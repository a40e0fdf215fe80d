package sqlite

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
	"github.com/starling-agg/starling/vdaf"
)

// holdRow is a row of the table hold.
type holdRow struct {
	batch  int64 // leader-selected
	span   span  // time-interval
	sel    store.Selection
	frozen *store.Frozen // nil while draining
}

func findHold(tx *database.Tx, t *task, resource int64) (h holdRow, found bool, err error) {
	var selection, checksum []byte
	var count, first, last, fullest uint64
	found, err = tx.One("find-hold", []any{resource}, &h.batch, &selection, &h.span.first, &h.span.last, &count, &checksum, &first, &last, &fullest)
	if err != nil || !found {
		return h, false, err
	}
	if h.sel, err = store.DecodeSelection(t.Mode, selection); err != nil {
		return h, false, err
	}
	if count > 0 {
		h.frozen, err = (&selected{
			count: count, checksum: dap.Checksum(checksum), first: dap.Time(first), last: dap.Time(last), fullest: fullest,
		}).frozen(h.sel)
	}
	return h, err == nil, err
}

// selected is what a selection holds, batch by batch.
type selected struct {
	rows        []int64
	count       uint64
	checksum    dap.Checksum
	first, last dap.Time
	fullest     uint64 // see store.Frozen
	shares      [][]byte
	views       viewed // of a task with views
}

func (x *selected) frozen(sel store.Selection) (*store.Frozen, error) {
	iv, ok := dap.Span(x.first, x.last)
	if !ok {
		return nil, errors.New("span of reports is reversed")
	}
	return &store.Frozen{Selection: sel, Count: x.count, Checksum: x.checksum, Span: iv, Fullest: x.fullest}, nil
}

func (x *selected) add(r batchRow) error {
	if r.closed {
		return store.ErrOverlap
	}
	x.rows = append(x.rows, r.id)
	if r.verified == 0 {
		return nil
	}
	if x.count == 0 {
		x.first, x.last = dap.Time(r.first), dap.Time(r.last)
	}
	x.first, x.last = min(x.first, dap.Time(r.first)), max(x.last, dap.Time(r.last))
	x.count += r.verified
	x.checksum.Merge(dap.Checksum(r.checksum))
	x.shares = append(x.shares, r.share)
	return nil
}

// gather reads what a selection holds; ErrOverlap if any of it was released.
func (t *task) gather(tx *database.Tx, sel store.Selection) (x selected, err error) {
	if err := t.refuseOverlap(tx, sel); err != nil {
		return x, err
	}
	if t.Mode == dap.LeaderSelected {
		row, found, err := t.batch(tx, store.Batch{ID: sel.ID})
		if err != nil || !found {
			return x, err
		}
		return x, x.add(row)
	}
	sp, err := spanOf(sel.Interval)
	if err != nil {
		return x, err
	}
	err = tx.Each("batches-in-interval", []any{t.row, sp.first, sp.last}, func(r database.Row) error {
		var row batchRow
		if err := r.Scan(row.dest()...); err != nil {
			return err
		}
		if err := t.check(&row); err != nil {
			return err
		}
		x.fullest = max(x.fullest, row.verified)
		if len(t.Views) > 0 {
			return x.addViewed(row)
		}
		return x.add(row)
	})
	if err == nil && len(t.Views) > 0 {
		err = t.findSums(tx, sp, &x)
	}
	return x, err
}

func (x *selected) sum(v vdaf.VDAF) (*vdaf.AggShare, error) {
	total := v.NewAggShare()
	for _, b := range x.shares {
		share, err := v.ReadAggShare(b)
		if err == nil {
			err = total.Merge(share)
		}
		if err != nil {
			return nil, fmt.Errorf("store: stored share: %w", err)
		}
	}
	return total, nil
}

// Drain implements [store.Leader].
func (s *Store) Drain(ctx context.Context, in *store.Resource) (sel store.Selection, waiting uint64, err error) {
	t, err := s.live(in.Task)
	if err != nil {
		return sel, 0, err
	}
	t.gate.Lock()
	defer t.gate.Unlock()
	var row int64
	var taken span
	err = s.update(ctx, "drain", func(tx *database.Tx) error {
		r, err := pending(tx, t, store.KindCollection, in.ID)
		if err != nil {
			return err
		}
		row = r.row
		h, held, err := findHold(tx, t, r.row)
		if err != nil {
			return err
		}
		if held && h.frozen == nil && t.Mode == dap.LeaderSelected {
			// It need not wait for a person, where another batch will do.
			var one int
			parked, err := tx.One("parked-in-batch", []any{h.batch}, &one)
			if err != nil {
				return err
			}
			if parked {
				if _, err := tx.Exec("drop-hold", r.row); err != nil {
					return err
				}
				held = false
			}
		}
		if !held {
			if h, err = t.take(tx, r); err != nil {
				return err
			}
		}
		sel, taken = h.sel, h.span
		waiting, err = h.waiting(tx, t)
		if held && h.frozen != nil {
			waiting = 0 // what came later is not of this batch
		}
		return err
	})
	if err != nil {
		return store.Selection{}, 0, err
	}
	if t.Mode == dap.TimeInterval {
		t.mu.Lock()
		if _, had := t.holds[row]; !had {
			t.holds[row] = hold{span: taken}
		}
		t.mu.Unlock()
	}
	return sel, waiting, nil
}

func (h *holdRow) waiting(tx *database.Tx, t *task) (n uint64, err error) {
	if t.Mode == dap.LeaderSelected {
		_, err = tx.One("waiting-in-batch", []any{h.batch}, &n)
	} else {
		_, err = tx.One("waiting-in-interval", []any{t.row, h.span.first, h.span.last}, &n)
	}
	return n, err
}

// take makes the hold of a collection, if its batch has the minimum and is nobody else's.
func (t *task) take(tx *database.Tx, r *resourceRow) (h holdRow, err error) {
	if t.Mode == dap.LeaderSelected {
		var id []byte
		found, err := tx.One("ready-batch", []any{t.row, t.minimum()}, &h.batch, &id)
		if err != nil {
			return h, err
		}
		if !found {
			return h, store.ErrTooSmall
		}
		h.sel.ID = dap.BatchID(id)
		_, err = tx.Exec("put-hold", r.row, t.row, nil, nil, h.batch, id)
		return h, err
	}
	if h.sel, err = store.DecodeSelection(t.Mode, r.selection); err != nil {
		return h, err
	}
	if err := t.refuseOverlap(tx, h.sel); err != nil {
		return h, err
	}
	if h.span, err = spanOf(h.sel.Interval); err != nil {
		return h, err
	}
	var isFrozen bool
	if held, err := tx.One("interval-held", []any{t.row, h.span.first, h.span.last, r.row}, &isFrozen); err != nil {
		return h, err
	} else if held {
		return h, store.ErrBusy
	}
	var verified uint64
	if _, err := tx.One("verified-in-interval", []any{t.row, h.span.first, h.span.last}, &verified); err != nil {
		return h, err
	}
	if verified < t.minimum() {
		return h, store.ErrTooSmall
	}
	_, err = tx.Exec("put-hold", r.row, t.row, h.span.first, h.span.last, nil, r.selection)
	return h, err
}

// Verified implements [store.Leader].
func (s *Store) Verified(ctx context.Context, id dap.TaskID, interval dap.Interval) (verified, waiting uint64, err error) {
	t, err := s.task(id)
	if err != nil {
		return 0, 0, err
	}
	sp, err := spanOf(interval)
	if err != nil {
		return 0, 0, err
	}
	err = s.view(ctx, "counts", func(tx *database.Tx) error {
		if _, err := tx.One("verified-in-interval", []any{t.row, sp.first, sp.last}, &verified); err != nil {
			return err
		}
		_, err := tx.One("waiting-in-interval", []any{t.row, sp.first, sp.last}, &waiting)
		return err
	})
	return verified, waiting, err
}

// Freeze implements [store.Leader].
func (s *Store) Freeze(ctx context.Context, in *store.Resource, sel store.Selection) (*store.Frozen, error) {
	t, err := s.live(in.Task)
	if err != nil {
		return nil, err
	}
	t.gate.Lock()
	defer t.gate.Unlock()
	var row int64
	var h holdRow
	reopen := false
	err = s.update(ctx, "freeze", func(tx *database.Tx) error {
		r, err := pending(tx, t, store.KindCollection, in.ID)
		if err != nil {
			return err
		}
		row = r.row
		var held bool
		if h, held, err = findHold(tx, t, r.row); err != nil {
			return err
		}
		if !held {
			return fmt.Errorf("%w: not drained", store.ErrTooSmall)
		}
		if !bytes.Equal(sel.Encode(t.Mode), h.sel.Encode(t.Mode)) {
			return errors.New("not the selection that was drained")
		}
		if h.frozen != nil {
			return nil
		}
		if waiting, err := h.waiting(tx, t); err != nil {
			return err
		} else if waiting > 0 {
			return fmt.Errorf("%w: %d reports wait", store.ErrBusy, waiting)
		}
		x, err := t.gather(tx, sel)
		if err != nil {
			return err
		}
		if x.count < t.minimum() {
			reopen = true
			_, err := tx.Exec("drop-hold", r.row)
			return err
		}
		if h.frozen, err = x.frozen(sel); err != nil {
			return err
		}
		_, err = tx.Exec("freeze-hold", r.row, x.count, x.checksum[:], uint64(x.first), uint64(x.last), x.fullest)
		return err
	})
	if err != nil {
		return nil, err
	}
	if reopen {
		t.dropHold(row)
		return nil, fmt.Errorf("store: freeze: %w", store.ErrTooSmall)
	}
	if t.Mode == dap.TimeInterval {
		t.setHold(row, hold{h.span, true})
	}
	return h.frozen, nil
}

// Release implements [store.Releases].
func (s *Store) Release(ctx context.Context, rel *store.Release) (_ []byte, err error) {
	t, err := s.live(rel.Task)
	if err != nil {
		return nil, err
	}
	if rel.Kind != store.KindCollection && rel.Kind != store.KindShare {
		return nil, fmt.Errorf("store: release: resources of kind %d release nothing", rel.Kind)
	}
	v, err := t.getVDAF()
	if err != nil {
		return nil, err
	}
	defer s.resources.lock(resourceKey{t.row, rel.Kind, rel.Resource})()
	t.gate.Lock()
	defer t.gate.Unlock()
	var r *resourceRow
	var x selected
	var part series
	err = s.view(ctx, "release-read", func(tx *database.Tx) (err error) {
		if r, err = mustResource(tx, t, rel.Kind, rel.Resource); err != nil || r.State != store.Pending {
			return err
		}
		if x, err = t.releasable(tx, r, rel); err != nil || rel.Series == nil {
			return err
		}
		part, err = t.next(tx, rel.Series, rel.Selection)
		return err
	})
	if err != nil {
		return nil, err
	}
	switch r.State {
	case store.Ready:
		return r.Response, nil
	case store.Failed:
		return nil, r.Problem
	}
	if len(t.Views) > 0 {
		if err := t.openSums(rel.Sums, &x); err != nil {
			return nil, fmt.Errorf("store: release: %w", err)
		}
	}
	sum, err := x.sum(v)
	if err != nil {
		return nil, err
	}
	fr, err := x.frozen(rel.Selection)
	if err != nil {
		return nil, fmt.Errorf("store: release: %w", err)
	}
	var noise []int64
	if rel.Draw != nil {
		if noise, err = rel.Draw(sum, *fr); err != nil {
			return nil, fmt.Errorf("store: release: draw: %w", err)
		}
		defer clear(noise)
	}
	if rel.Series != nil {
		defer func() {
			if err != nil && !errors.Is(err, store.ErrUnknown) && part.written != nil {
				s.dropNoise(ctx, *part.written)
			}
		}()
		if noise, err = s.correlate(rel.Series, &part, noise); err != nil {
			return nil, fmt.Errorf("store: release: %w", err)
		}
		defer clear(noise)
	}
	built, kept, err := rel.Build(sum, *fr, noise)
	if err != nil {
		return nil, fmt.Errorf("store: release: build: %w", err)
	}
	response := append([]byte{}, built...)
	err = s.update(ctx, "release", func(tx *database.Tx) error {
		tx.Erase() // the aggregate share
		if err := t.release(tx, r, rel, x, response); err != nil {
			return err
		}
		if err := errors.Join(keep(tx, r, kept), part.save(tx, t)); err != nil {
			return err
		}
		return s.grow(tx, true) // before the answer leaves
	})
	if err != nil {
		return nil, err
	}
	if len(part.spent) > 0 {
		s.dropNoise(ctx, part.spent...)
	}
	t.dropHold(r.row)
	if t.Mode == dap.TimeInterval {
		sp, _ := spanOf(rel.Selection.Interval) // checked in releasable
		t.close(sp)
	}
	return response, nil
}

// releasable reads what a release would give out, and refuses what may not be.
func (t *task) releasable(tx *database.Tx, r *resourceRow, rel *store.Release) (x selected, err error) {
	if x, err = t.gather(tx, rel.Selection); err != nil {
		return x, err
	}
	if rel.Kind == store.KindCollection {
		h, held, err := findHold(tx, t, r.row)
		if err != nil {
			return x, err
		}
		if !held || h.frozen == nil || !bytes.Equal(h.sel.Encode(t.Mode), rel.Selection.Encode(t.Mode)) {
			return x, errors.New("the selection is not frozen")
		}
		if h.frozen.Count != x.count || h.frozen.Checksum != x.checksum {
			return x, errors.New("internal error: a frozen batch changed")
		}
	}
	switch {
	case x.count < t.minimum():
		return x, store.ErrTooSmall
	case x.count != rel.Count || x.checksum != rel.Checksum:
		return x, store.ErrMismatch
	}
	return x, nil
}

// release is the transaction in which a batch closes: ledger, shares, response and
// counters change together.
func (t *task) release(tx *database.Tx, r *resourceRow, rel *store.Release, x selected, response []byte) error {
	if n, err := tx.Exec("resource-ready", r.row, response, responseSum(response)); err != nil || n != 1 {
		return errors.Join(err, missing(n))
	}
	var first, last, id any
	if t.Mode == dap.LeaderSelected {
		id = rel.Selection.ID[:]
	} else {
		sp, err := spanOf(rel.Selection.Interval)
		if err != nil {
			return err
		}
		first, last = sp.first, sp.last
	}
	l, err := t.nextRelease(tx, rel.Selection, x.count, response)
	if err != nil {
		return err
	}
	fresh := any(nil)
	if len(t.Views) > 0 {
		fresh = x.views.fresh
	}
	_, err = tx.Insert("put-release", l.seq, t.row, int(rel.Kind), rel.Resource, first, last, id, x.count, x.checksum[:], rel.Debit,
		l.position, l.answer[:], l.chain[:], l.total[:], x.views.number, fresh)
	if err != nil {
		return err
	}
	for _, row := range x.rows {
		if _, err := tx.Exec("close-batch", row); err != nil {
			return err
		}
	}
	if sp, ok := first.(int64); ok {
		if err := t.rejectLate(tx, span{sp, last.(int64)}); err != nil {
			return err
		}
	}
	if _, err := tx.Exec("drop-hold", r.row); err != nil {
		return err
	}
	collected := x.count
	if len(t.Views) > 0 {
		collected = x.views.fresh
		if err := t.keepSums(tx, &x); err != nil {
			return err
		}
	}
	_, err = tx.Exec("count-collected", t.row, collected)
	return err
}
