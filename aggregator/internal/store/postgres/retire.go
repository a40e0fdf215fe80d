package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// Retire ends a task for good; see [store.Tasks].
func (s *Store) Retire(ctx context.Context, id dap.TaskID, now time.Time) error {
	err := s.update(ctx, "retire-task", func(tx *pgdb.Tx) error {
		t, err := find(tx, excluding, id) // no commit is under way, and none begins before the mark is seen
		if err != nil {
			return err
		}
		var end time.Time
		if told, err := s.told(id); err == nil {
			end = told.End
		}
		if !t.closed.IsZero() && (end.IsZero() || t.closed.Before(end)) {
			end = t.closed
		}
		if end.IsZero() || now.Before(end) {
			return fmt.Errorf("retire: %w: the task has not ended", store.ErrBusy)
		}
		if _, err := tx.Exec("retire-task", t.row, now.UnixNano()); err != nil {
			return err
		}
		// All else of it, and in backups, opens no more once the root of now has ended.
		_, err = tx.Exec("drop-task-secret", t.row)
		return err
	})
	if err == nil {
		s.cache.dropTask(id)
	}
	return err
}

// sweeps are the statements that erase rows of a retired task, at most a number of them.
// Rows that name others go before those.
var sweeps = []string{"sweep-jobs", "sweep-runs", "sweep-noise", "sweep-resources", "sweep-generations", "sweep-parts", "sweep-batches"}

// Sweep erases rows of a retired task; see [store.Tasks].
func (s *Store) Sweep(ctx context.Context, id dap.TaskID, n int) (more bool, err error) {
	err = s.update(ctx, "sweep-task", func(tx *pgdb.Tx) error {
		more = false
		// In turn with other replicas that sweep it.
		t, err := find(tx, inTurn, id)
		switch {
		case err != nil:
			return err
		case !t.retired:
			return errors.New("sweep: the task is not retired")
		case n <= 0:
			return fmt.Errorf("sweep: %d rows at a time", n)
		case t.swept:
			return nil
		}
		var slices int64
		var unfinished uint64 // reports that nobody finished count as dropped
		if _, err := tx.One("sweep-slices", []any{t.row, n}, &slices, &unfinished); err != nil {
			return err
		}
		if err := t.reject(tx, dap.ReportDropped, unfinished); err != nil {
			return err
		}
		left := int64(n) - slices
		all := sweeps
		if version, err := tx.Version(); err != nil {
			return err
		} else if version.Number >= spentSince {
			all = append([]string{"sweep-spent-runs", "sweep-spent-rounds"}, sweeps...)
		}
		for _, statement := range all {
			gone, err := tx.Exec(statement, t.row, left)
			if err != nil {
				return err
			}
			left -= gone
		}
		if more = left == 0; more {
			return nil
		}
		if _, err := tx.Exec("sweep-conduct", t.row); err != nil {
			return err
		}
		if _, err := tx.Exec("sweep-registration", t.row); err != nil {
			return err
		}
		_, err = tx.Exec("swept-task", t.row)
		return err
	})
	s.cache.dropTask(id)
	return more, err
}
