package postgres

import (
	"context"
	"errors"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// GiveUp ends what waits of a task that was closed; see [store.Leader]. No slice comes to
// a closed task, so that those which are free are all there will be. They are locked
// before the jobs: a claim that takes some has made its job by then, and a worker that
// sends one has either written that down or finds its lease gone.
func (s *Store) GiveUp(ctx context.Context, id dap.TaskID) (reports uint64, err error) {
	err = s.update(ctx, "give-up-task", func(tx *pgdb.Tx) error {
		reports = 0
		t, err := live(tx, reading, id)
		if err != nil {
			return err
		}
		if t.closed.IsZero() {
			return errors.New("the task is not closed")
		}
		var free int64
		if _, err := tx.One("lock-free-slices", []any{t.row}, &free); err != nil {
			return err
		}
		jobs := []int64{}
		err = tx.Each("lock-unsent-jobs", []any{t.row}, func(r pgdb.Row) error {
			var row int64
			err := r.Scan(&row)
			jobs = append(jobs, row)
			return err
		})
		if err != nil {
			return err
		}
		if _, err := tx.One("give-up-slices", []any{t.row, jobs}, &reports); err != nil || reports == 0 {
			return err
		}
		if _, err := tx.Exec("give-up-jobs", jobs); err != nil { // answers of earlier steps go with them
			return err
		}
		return t.reject(tx, dap.ReportDropped, reports)
	})
	if err != nil {
		return 0, err
	}
	return reports, nil
}
