package mend

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// Why a run stays damaged although the peer gave what it has.
var (
	ErrOrder = errors.New("the peer gives ids out of order or out of the range that was asked for")
	ErrMany  = errors.New("the peer holds more report ids than the file had, and which are of the file cannot be proved; it is tried again, since jobs may be under way")
	ErrFew   = errors.New("the peer does not hold all report ids of the file: its replay protection is damaged too, or it is another peer")
	ErrProof = errors.New("the report ids that the peer gives are not those of the file: their SHA-256 is another")
	ErrLarge = fmt.Errorf("more than %d report ids are lost at once, more than are mended", maxIDs)
)

// maxIDs is how many report ids are mended at once: they are in memory, 16 bytes each.
const maxIDs = 4 * segment.RangeIDs

func compare(a, b dap.ReportID) int { return bytes.Compare(a[:], b[:]) }

// Uncommitted says which of a peer's marked ids we know not to have aggregated.
type Uncommitted func(ctx context.Context, ids []dap.ReportID) ([]bool, error)

// A Run is a damaged run in the making. It is not safe for concurrent use.
type Run struct {
	store   store.Replay
	task    dap.TaskID
	damaged store.Damaged

	next    dap.ReportID
	ids     []dap.ReportID
	skipped int // marked ids left out, which the peer may make up
}

// NewRun begins to make a damaged run.
func NewRun(s store.Replay, task dap.TaskID, d store.Damaged) *Run {
	return &Run{store: s, task: task, damaged: d, next: d.Low}
}

// Sum is the SHA-256 of the run.
func (r *Run) Sum() [32]byte { return r.damaged.Sum }

// Next is the id from which on entries are wanted.
func (r *Run) Next() dap.ReportID { return r.next }

// High is the last id that can be of the run.
func (r *Run) High() dap.ReportID { return r.damaged.High }

// Take takes the next page of the peer's ids, which begins at Next, and says whether the
// run is whole now. After an error that matches none of this package's the same page may
// be taken again; after one that does the run has to be begun anew.
func (r *Run) Take(ctx context.Context, page []Entry, uncommitted Uncommitted) (whole bool, err error) {
	if r.damaged.IDs > maxIDs {
		return false, ErrLarge
	}
	var all, marked []dap.ReportID
	for i, e := range page {
		if compare(e.ID, r.next) < 0 || compare(e.ID, r.damaged.High) > 0 || i > 0 && compare(page[i-1].ID, e.ID) >= 0 {
			return false, ErrOrder
		}
		all = append(all, e.ID)
		if e.Marked {
			marked = append(marked, e.ID)
		}
	}
	absent := make(map[dap.ReportID]bool)
	if len(marked) > 0 {
		// Before the runs are looked at: what is committed in between is found there.
		un, err := uncommitted(ctx, marked)
		if err != nil {
			return false, err
		}
		for i, id := range marked {
			if un[i] {
				absent[id] = true
			}
		}
	}
	known, err := r.store.Aggregated(ctx, r.task, all)
	if err != nil {
		return false, err
	}
	for i, id := range all {
		switch {
		case known[i]:
		case absent[id]:
			r.skipped++
		default:
			r.ids = append(r.ids, id)
		}
	}
	if int64(len(r.ids)) > r.damaged.IDs || r.skipped > maxIDs {
		return false, ErrMany
	}
	end := len(page) < PageSize
	if !end {
		last := page[len(page)-1].ID
		if end = compare(last, r.damaged.High) == 0; !end {
			r.next = after(last)
		}
	}
	if !end {
		return false, nil
	}
	if int64(len(r.ids)) < r.damaged.IDs {
		return false, ErrFew
	}
	err = r.store.Mend(ctx, r.task, r.damaged.Sum, r.ids)
	switch {
	case errors.Is(err, store.ErrMismatch):
		return false, ErrProof
	case errors.Is(err, store.ErrNotFound): // somebody has put it back
		return true, nil
	}
	return err == nil, err
}

// after is the least id that comes after id, which is not the last of all.
func after(id dap.ReportID) dap.ReportID {
	for i := len(id) - 1; i >= 0; i-- {
		if id[i]++; id[i] != 0 {
			break
		}
	}
	return id
}

// Page is what we give a peer of the ids from low to high: those aggregated, and with
// them extra, ascending, which are marked. Of those aggregated mark says which to mark.
func Page(ctx context.Context, s store.Replay, task dap.TaskID, low, high dap.ReportID, extra []dap.ReportID, mark func(dap.ReportID) bool) ([]Entry, error) {
	ids, err := s.AggregatedIDs(ctx, task, low, high, PageSize)
	if err != nil {
		return nil, fmt.Errorf("mend: %w", err)
	}
	var page []Entry
	for len(page) < PageSize && (len(ids) > 0 || len(extra) > 0) {
		switch {
		case len(extra) > 0 && (compare(extra[0], low) < 0 || compare(extra[0], high) > 0):
			extra = extra[1:]
		case len(extra) == 0 || len(ids) > 0 && compare(ids[0], extra[0]) < 0:
			page = append(page, Entry{ids[0], mark(ids[0])})
			ids = ids[1:]
		case len(ids) > 0 && ids[0] == extra[0]: // aggregated, and once more in a job
			page = append(page, Entry{ID: ids[0]})
			ids, extra = ids[1:], extra[1:]
		default:
			page = append(page, Entry{extra[0], true})
			extra = extra[1:]
		}
	}
	return page, nil
}
