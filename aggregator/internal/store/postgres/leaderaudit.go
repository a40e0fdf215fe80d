package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/pgdb"
)

// jobs checks that each job of a task under way has the reports of its slices, and that
// none waits in a batch that is frozen or closed.
func (a *auditor) jobs(tx *pgdb.Tx, t *task) error {
	err := tx.Each("audit-jobs", []any{t.row}, func(r pgdb.Row) error {
		var job int64
		var set bool
		var reports, sum uint64
		if err := r.Scan(&job, &set, &reports, &sum); err != nil {
			return err
		}
		if set && sum > 0 || !set && sum != reports {
			a.add("task %v: job %d has %d reports, its slices have %d", t.id, job, reports, sum)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return tx.Each("audit-late-slices", []any{t.row}, func(r pgdb.Row) error {
		var bucket, reports uint64
		err := r.Scan(&bucket, &reports)
		a.add("task %v: %d reports wait in bucket %d, which is frozen or closed", t.id, reports, bucket)
		return err
	})
}

// missing asks for the objects whose slices wait, outside of any transaction, for each may
// take its time.
func (s *Store) missing(ctx context.Context, problems []string) ([]string, error) {
	var names []string
	list := func(after string) error {
		return s.view(ctx, "stored-objects", func(tx *pgdb.Tx) error {
			names = nil
			return tx.Each("stored-objects", []any{after, buried}, func(r pgdb.Row) error {
				var name string
				err := r.Scan(&name)
				names = append(names, name)
				return err
			})
		})
	}
	for after := ""; ; after = names[len(names)-1] {
		if err := list(after); err != nil || len(names) == 0 {
			return problems, err
		}
		for _, name := range names {
			_, err := s.Payload().Size(ctx, name)
			if err == nil {
				continue
			}
			var still bool
			look := s.view(ctx, "still-named", func(tx *pgdb.Tx) error {
				var row int64
				var err error
				still, err = tx.One("waiting-in-object", []any{name}, &row)
				return err
			})
			switch {
			case look != nil:
				return problems, look
			case still && errors.Is(err, payload.ErrNotFound):
				problems = append(problems, fmt.Sprintf("object %s is not there, and reports wait in it", name))
			case still:
				return problems, err
			}
		}
	}
}
