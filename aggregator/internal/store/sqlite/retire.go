package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// live is task for those that are not retired.
func (s *Store) live(id dap.TaskID) (*task, error) {
	t, err := s.task(id)
	if err == nil && t.isRetired() {
		return nil, fmt.Errorf("%w: the task is retired", store.ErrNotFound)
	}
	return t, err
}

func (t *task) isRetired() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.retired
}

// TaskState implements [store.Tasks]. It is never stale.
func (s *Store) TaskState(_ context.Context, id dap.TaskID) (state store.TaskState, err error) {
	t, err := s.task(id)
	if err != nil {
		return state, err
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return store.TaskState{Retired: t.retired, ClosedIn: t.closedIn, Closed: t.shut}, nil
}

// over is when a task ended, by its closing or its window; zero for never. The caller holds
// t.mu.
func (t *task) over() time.Time {
	if !t.shut.IsZero() && (t.End.IsZero() || t.shut.Before(t.End)) {
		return t.shut
	}
	return t.End
}

// Retire implements [store.Tasks].
func (s *Store) Retire(ctx context.Context, id dap.TaskID, now time.Time) error {
	t, err := s.task(id)
	if err != nil {
		return err
	}
	t.mu.RLock()
	end := t.over()
	t.mu.RUnlock()
	if end.IsZero() || now.Before(end) {
		return fmt.Errorf("store: retire: %w: the task has not ended", store.ErrBusy)
	}
	t.gate.Lock() // no commit is under way, and none begins before the mark is seen
	defer t.gate.Unlock()
	err = s.update(ctx, "retire-task", func(tx *database.Tx) error {
		_, err := tx.Exec("retire-task", t.row, now.UnixNano())
		return err
	})
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.retired = true
	clear(t.holds)
	t.mu.Unlock()
	return nil
}

// Sweep implements [store.Tasks].
func (s *Store) Sweep(ctx context.Context, id dap.TaskID, n int) (more bool, err error) {
	t, err := s.task(id)
	switch {
	case err != nil:
		return false, err
	case !t.isRetired():
		return false, errors.New("store: sweep: the task is not retired")
	case n <= 0:
		return false, fmt.Errorf("store: sweep: %d rows at a time", n)
	case t.swept.Load():
		return false, nil
	}
	s.replay.drop(t.row)
	err = s.update(ctx, "sweep-task", func(tx *database.Tx) (err error) {
		tx.Erase() // aggregate shares and noised results among them
		left := n
		var unfinished uint64 // reports that nobody finished count as dropped
		for _, of := range []struct{ list, drop string }{
			{"sweep-slices", "drop-slice"}, {"sweep-jobs", "drop-job"}, {"sweep-runs", "sweep-run"}, {"sweep-noise", "drop-noise"},
		} {
			rows, reports, err := dropListed(tx, of.list, of.drop, t.row, left)
			if err != nil {
				return err
			}
			left -= rows
			unfinished += reports
		}
		if err := reject(tx, t, dap.ReportDropped, unfinished); err != nil {
			return err
		}
		// Rows that name others go before those.
		for _, statement := range []string{"sweep-spent-rounds", "sweep-resources", "sweep-generations", "sweep-sums", "sweep-batches"} {
			done, err := tx.Exec(statement, t.row, left)
			if err != nil {
				return err
			}
			left -= done
		}
		if more = left == 0; more {
			return nil
		}
		if _, err = tx.Exec("sweep-registration", t.row); err != nil {
			return err
		}
		_, err = tx.Exec("swept-task", t.row)
		return err
	})
	if err != nil {
		return false, err
	}
	t.swept.Store(!more)
	return more, s.Bury(ctx)
}

// drop forgets a task that nobody asks for any more.
func (r *replay) drop(task int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.damaged, task)
	for of := range r.open {
		if of.task == task {
			r.forget(of)
		}
	}
}

// forget drops runs; the last user closes them. The caller holds r.mu.
func (r *replay) forget(of runsOf) {
	if b := r.open[of]; b != nil {
		delete(r.open, of)
		if b.retired = true; b.users == 0 {
			b.Close()
		}
	}
}
