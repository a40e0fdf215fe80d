package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/rows"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// Stuck lists the jobs that are failing, parked or set aside; see [store.Watch].
func (s *Store) Stuck(ctx context.Context, id dap.TaskID) (out []store.Stuck, err error) {
	err = s.view(ctx, "stuck-jobs", func(tx *pgdb.Tx) error {
		out = nil
		t, err := find(tx, reading, id)
		if err != nil {
			return err
		}
		return tx.Each("stuck-jobs", []any{t.row}, func(r pgdb.Row) error {
			x, err := rows.Stuck(r)
			out = append(out, x)
			return err
		})
	})
	return out, err
}

// Levels counts what waits and does not get on; see [store.Leader].
func (s *Store) Levels(ctx context.Context) (l store.Levels, err error) {
	err = s.view(ctx, "levels", func(tx *pgdb.Tx) error {
		if _, err := tx.One("levels", nil, &l.Failing, &l.Parked, &l.SetAside); err != nil {
			return err
		}
		var came int64
		if _, err := tx.One("oldest-acknowledgement", nil, &came); err != nil {
			return err
		}
		if l.Oldest = (time.Time{}); came > 0 {
			l.Oldest = time.Unix(came, 0)
		}
		return nil
	})
	return l, err
}

// waitIn adds to batches what waits for them, and the batch buckets that have no row yet.
// rows are those of leader-selected batches, in the order of out.
func (t *task) waitIn(tx *pgdb.Tx, out []store.BatchStatus, rows []int64, n int) ([]store.BatchStatus, error) {
	if t.mode == dap.LeaderSelected {
		at := make(map[int64]int, len(rows))
		for i, row := range rows {
			at[row] = i
		}
		return out, tx.Each("waiting-by-batch", []any{rows}, func(r pgdb.Row) error {
			var row int64
			var waiting uint64
			err := r.Scan(&row, &waiting)
			out[at[row]].Waiting = waiting
			return err
		})
	}
	at := make(map[dap.Time]int, len(out))
	for i := range out {
		at[out[i].Batch.Start] = i
	}
	err := tx.Each("waiting-by-bucket", []any{t.row, n}, func(r pgdb.Row) error {
		var bucket, waiting uint64
		if err := r.Scan(&bucket, &waiting); err != nil {
			return err
		}
		i, known := at[dap.Time(bucket)]
		if !known {
			i, out = len(out), append(out, store.BatchStatus{Batch: store.Batch{Start: dap.Time(bucket)}})
		}
		out[i].Waiting = waiting
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := len(at); i < len(out); i++ { // which have no row
		if out[i].State, err = t.stateOf(tx, out[i].Batch); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(out, func(a, b store.BatchStatus) int { return cmp.Compare(b.Batch.Start, a.Batch.Start) })
	return out[:min(n, len(out))], nil
}
