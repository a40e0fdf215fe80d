package sqlite

import (
	"context"
	"errors"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// GiveUp implements [store.Leader].
func (s *Store) GiveUp(ctx context.Context, id dap.TaskID) (reports uint64, err error) {
	t, err := s.live(id)
	if err != nil {
		return 0, err
	}
	err = s.update(ctx, "give-up-task", func(tx *database.Tx) error {
		reports = 0
		r, err := readRegistration(tx, t)
		if err != nil {
			return err
		}
		if r == nil || r.Closed == nil {
			return errors.New("the task is not closed")
		}
		var jobs []leased
		err = tx.Each("unsent-jobs", []any{t.row}, func(r database.Row) error {
			var l leased
			err := r.Scan(&l.id, &l.task, &l.reports, &l.step)
			jobs = append(jobs, l)
			return err
		})
		if err != nil {
			return err
		}
		if _, err := tx.One("free-reports", []any{t.row}, &reports); err != nil {
			return err
		}
		if _, err := tx.Exec("drop-free-slices", t.row); err != nil {
			return err
		}
		for i := range jobs {
			reports += jobs[i].reports
			if err := jobs[i].end(tx, ""); err != nil {
				return err
			}
		}
		if reports == 0 {
			return nil
		}
		if err := reject(tx, t, dap.ReportDropped, reports); err != nil {
			return err
		}
		return s.grow(tx, true) // a store that was put back would verify them
	})
	if err != nil {
		return 0, err
	}
	return reports, nil
}
