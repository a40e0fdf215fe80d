package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// holding is what a collection keeps for itself.
type holding struct {
	sel    store.Selection
	span   span  // time-interval
	batch  int64 // leader-selected: its row
	frozen bool
}

// held reads the hold of a collection.
func (t *task) held(tx *pgdb.Tx, resource int64) (h holding, found bool, err error) {
	var selection []byte
	found, err = tx.One("hold-of", []any{resource}, &selection, &h.span.first, &h.span.last, &h.batch, &h.frozen)
	if err == nil && found {
		h.sel, err = store.DecodeSelection(t.mode, selection)
	}
	return h, found, err
}

// waiting counts the reports that wait in what is held.
func (t *task) waiting(tx *pgdb.Tx, h *holding) (n uint64, err error) {
	if t.mode == dap.LeaderSelected {
		_, err = tx.One("waiting-in-batch", []any{h.batch}, &n)
	} else {
		_, err = tx.One("waiting-in-interval", []any{t.row, h.span.first, h.span.last}, &n)
	}
	return n, err
}

// collectable is a collection that waits for its answer.
func collectable(tx *pgdb.Tx, t *task, statement, id string) (*resourceRow, error) {
	r, err := mustResource(tx, t, store.KindCollection, statement, id)
	if err != nil {
		return nil, err
	}
	switch r.State {
	case store.Failed:
		return nil, r.Problem
	case store.Ready:
		return nil, fmt.Errorf("%w: the resource is ready", store.ErrDifferent)
	}
	return r, nil
}

// Drain prepares a collection; see [store.Leader]. It is asked over and over until a batch is
// ready, so that it takes the task's lock, which commits wait for, only to make a hold, or
// to give up one.
func (s *Store) Drain(ctx context.Context, in *store.Resource) (sel store.Selection, waiting uint64, err error) {
	var settled bool
	err = s.view(ctx, "look-at-drain", func(tx *pgdb.Tx) error {
		settled = true
		t, err := live(tx, reading, in.Task)
		if err == nil {
			err = s.spans(tx, t)
		}
		if err != nil {
			return err
		}
		r, err := collectable(tx, t, "find-resource", in.ID)
		if err != nil {
			return err
		}
		h, held, err := t.kept(tx, r)
		if err == nil && !held {
			if h, err = t.takable(tx, r); err == nil {
				settled = false
				return nil
			}
		}
		if err != nil {
			return err
		}
		if sel = h.sel; !h.frozen { // what came later is not of this batch
			waiting, err = t.waiting(tx, &h)
		}
		return err
	})
	if err == nil && !settled {
		sel, waiting, err = s.drain(ctx, in)
	}
	if err != nil {
		return store.Selection{}, 0, err
	}
	return sel, waiting, nil
}

// kept is the hold that a collection has and is to keep: a draining batch need not wait for
// a person, where another will do.
func (t *task) kept(tx *pgdb.Tx, r *resourceRow) (h holding, kept bool, err error) {
	h, kept, err = t.held(tx, r.row)
	if err != nil || !kept || h.frozen || t.mode != dap.LeaderSelected {
		return h, kept, err
	}
	var one int
	parked, err := tx.One("parked-in-batch", []any{h.batch}, &one)
	return h, !parked, err
}

// drain makes the hold of a collection.
func (s *Store) drain(ctx context.Context, in *store.Resource) (sel store.Selection, waiting uint64, err error) {
	err = s.update(ctx, "drain", func(tx *pgdb.Tx) error {
		t, r, err := s.collecting(tx, in)
		if err != nil {
			return err
		}
		h, held, err := t.kept(tx, r)
		if err != nil {
			return err
		}
		if !held {
			if _, err := tx.Exec("drop-hold", r.row); err != nil {
				return err
			}
			if h, err = t.takable(tx, r); err != nil {
				return err
			}
			if err := t.hold(tx, r, &h); err != nil {
				return err
			}
		}
		if sel, waiting = h.sel, 0; !h.frozen {
			waiting, err = t.waiting(tx, &h)
		}
		return err
	})
	return sel, waiting, err
}

// collecting takes the locks of what changes a collection's hold.
func (s *Store) collecting(tx *pgdb.Tx, in *store.Resource) (*task, *resourceRow, error) {
	t, err := live(tx, reading, in.Task)
	if err != nil {
		return nil, nil, err
	}
	r, err := collectable(tx, t, "lock-resource", in.ID)
	if err != nil {
		return nil, nil, err
	}
	if t, err = live(tx, excluding, in.Task); err == nil {
		err = s.spans(tx, t)
	}
	return t, r, err
}

// takable is the hold that a collection may have: its batch has the minimum and is nobody
// else's.
func (t *task) takable(tx *pgdb.Tx, r *resourceRow) (h holding, err error) {
	if t.mode == dap.LeaderSelected {
		var id []byte
		found, err := tx.One("ready-batch", []any{t.row, t.minimum()}, &h.batch, &id)
		if err == nil && !found {
			err = store.ErrTooSmall
		}
		if err == nil {
			h.sel.ID = dap.BatchID(id)
		}
		return h, err
	}
	var selection []byte
	found, err := tx.One("selection-of", []any{r.row}, &selection)
	if err = expect(found, err, "resource"); err != nil {
		return h, err
	}
	if h.sel, err = store.DecodeSelection(t.mode, selection); err != nil {
		return h, err
	}
	if err := t.refuseOverlap(tx, h.sel); err != nil {
		return h, err
	}
	if h.span, err = spanOf(h.sel.Interval); err != nil {
		return h, err
	}
	var one int
	if held, err := tx.One("interval-held", []any{t.row, h.span.first, h.span.last, r.row}, &one); err != nil {
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
	return h, nil
}

// Verified counts what an interval has; see [store.Leader].
func (s *Store) Verified(ctx context.Context, id dap.TaskID, interval dap.Interval) (verified, waiting uint64, err error) {
	sp, err := spanOf(interval)
	if err != nil {
		return 0, 0, err
	}
	err = s.view(ctx, "counts", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, id)
		if err != nil {
			return err
		}
		if _, err := tx.One("verified-in-interval", []any{t.row, sp.first, sp.last}, &verified); err != nil {
			return err
		}
		_, err = tx.One("waiting-in-interval", []any{t.row, sp.first, sp.last}, &waiting)
		return err
	})
	return verified, waiting, err
}

// hold writes a hold down.
func (t *task) hold(tx *pgdb.Tx, r *resourceRow, h *holding) error {
	var first, last, batch any = h.span.first, h.span.last, nil
	if t.mode == dap.LeaderSelected {
		first, last, batch = nil, nil, h.batch
	}
	_, err := tx.Exec("put-hold", r.row, t.row, first, last, batch, h.sel.Encode(t.mode))
	return err
}

// Freeze fixes the batch of a collection; see [store.Leader].
func (s *Store) Freeze(ctx context.Context, in *store.Resource, sel store.Selection) (out *store.Frozen, err error) {
	reopened := false
	err = s.update(ctx, "freeze", func(tx *pgdb.Tx) error {
		reopened = false
		t, r, err := s.collecting(tx, in)
		if err != nil {
			return err
		}
		h, found, err := t.held(tx, r.row)
		if err != nil {
			return err
		}
		switch {
		case !found:
			return fmt.Errorf("%w: not drained", store.ErrTooSmall)
		case !bytes.Equal(sel.Encode(t.mode), h.sel.Encode(t.mode)):
			return errors.New("not the selection that was drained")
		case h.frozen:
			out, err = frozen(tx, t, r.row)
			return err
		}
		if waiting, err := t.waiting(tx, &h); err != nil {
			return err
		} else if waiting > 0 {
			return fmt.Errorf("%w: %d reports wait", store.ErrBusy, waiting)
		}
		x, err := t.gather(tx, sel)
		if err != nil {
			return err
		}
		if reopened = x.Count < t.minimum(); reopened {
			_, err := tx.Exec("drop-hold", r.row)
			return err
		}
		last, ok := x.Span.End()
		if !ok {
			return errors.New("span of reports is out of range")
		}
		out = &x.Frozen
		_, err = tx.Exec("freeze-hold", r.row, x.Count, x.Checksum[:], uint64(x.Span.Start), uint64(last)-1, x.Fullest)
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case reopened:
		return nil, fmt.Errorf("store: freeze: %w", store.ErrTooSmall)
	}
	return out, nil
}

// forgone says whether an id was given up before its request had come: then it is counted
// as deleted with an empty body, which no collection has.
func (t *task) forgone(tx *pgdb.Tx, id string) (deleted uint64, err error) {
	digest := store.Identity(id, nil)
	var answered bool
	_, err = tx.One("generation", []any{t.row, int(store.KindCollection), digest[:]}, &deleted, &answered)
	return deleted, err
}

// Forgo has no collection come under an id; see [store.Leader]. It takes turns with Create.
func (s *Store) Forgo(ctx context.Context, task dap.TaskID, id string) error {
	return s.update(ctx, "forgo-collection", func(tx *pgdb.Tx) error {
		t, err := live(tx, inTurn, task)
		if err != nil {
			return err
		}
		_, there, err := findResource(tx, t, store.KindCollection, "find-resource", id)
		if err == nil && there {
			err = store.ErrTaken
		}
		if err != nil {
			return err
		}
		if n, err := t.forgone(tx, id); n > 0 || err != nil {
			return err
		}
		digest := store.Identity(id, nil)
		_, err = tx.Exec("count-deleted", t.row, int(store.KindCollection), digest[:], false)
		return err
	})
}

// Withdraw deletes a collection that has no answer; see [store.Leader].
func (s *Store) Withdraw(ctx context.Context, task dap.TaskID, id string) error {
	return s.drop(ctx, store.KindCollection, task, id, true)
}
