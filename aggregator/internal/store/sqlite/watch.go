package sqlite

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/rows"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// AddRefused implements [store.Leader].
func (s *Store) AddRefused(ctx context.Context, task dap.TaskID, refused map[dap.ReportError]uint64) error {
	t, err := s.task(task)
	if err != nil {
		return err
	}
	return s.update(ctx, "add-refused", func(tx *database.Tx) error {
		for _, code := range slices.Sorted(maps.Keys(refused)) {
			if code == 0 {
				return errors.New("refused without a code")
			}
			if refused[code] == 0 {
				continue
			}
			if _, err := tx.Exec("count-rejected", t.row, stageUpload, int(code), refused[code]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Counts implements [store.Watch].
func (s *Store) Counts(ctx context.Context, task dap.TaskID) (c *store.Counts, err error) {
	t, err := s.task(task)
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, "counts", func(tx *database.Tx) error {
		c, err = t.counts(tx)
		return err
	})
	return c, err
}

func (t *task) counts(tx *database.Tx) (*store.Counts, error) {
	return readCounts(tx, "counts", "rejections", t.row)
}

// readCounts reads counts by two statements, of which the second has a stage, a code and a
// number a row.
func readCounts(tx *database.Tx, counts, rejections string, args ...any) (*store.Counts, error) {
	c := &store.Counts{Rejected: make(map[dap.ReportError]uint64), Refused: make(map[dap.ReportError]uint64)}
	_, err := tx.One(counts, args, &c.Acknowledged, &c.Aggregated, &c.Collected, &c.Waiting)
	if err != nil {
		return nil, err
	}
	err = tx.Each(rejections, args, func(r database.Row) error {
		var stage, code int
		var n uint64
		if err := r.Scan(&stage, &code, &n); err != nil {
			return err
		}
		if stage == stageUpload {
			c.Refused[dap.ReportError(code)] = n
		} else {
			c.Rejected[dap.ReportError(code)] = n
		}
		return nil
	})
	return c, err
}

// totals are the sums over all tasks, as of a number of transactions.
type totals struct {
	mu   sync.Mutex
	at   uint64
	sums *store.Counts // nil before the first reading; never changed once it is here
}

// Totals implements [store.Watch]. Where nothing was committed since the last call nothing
// is read, so that what is idle stays idle, whatever the number of tasks.
func (s *Store) Totals(ctx context.Context) (*store.Counts, error) {
	s.totals.mu.Lock()
	defer s.totals.mu.Unlock()
	now := s.commits.Load()
	if s.totals.sums != nil && s.totals.at == now {
		return s.totals.sums, nil
	}
	var c *store.Counts
	err := s.view(ctx, "totals", func(tx *database.Tx) (err error) {
		c, err = readCounts(tx, "totals", "total-rejections")
		return err
	})
	if err != nil {
		return nil, err
	}
	s.totals.at, s.totals.sums = now, c
	return c, nil
}

// Batches implements [store.Watch]: the newest first.
func (s *Store) Batches(ctx context.Context, task dap.TaskID, n int) (out []store.BatchStatus, err error) {
	t, err := s.task(task)
	if err != nil || n <= 0 {
		return nil, err
	}
	err = s.view(ctx, "batches", func(tx *database.Tx) error {
		out = nil
		err := tx.Each("batches", []any{t.row, n}, func(r database.Row) error {
			var b store.BatchStatus
			var bucket, first, last uint64
			var id, checksum []byte
			var closed, held bool
			if err := r.Scan(&bucket, &id, &closed, &b.Verified, &first, &last, &checksum, &b.Waiting, &held, &b.Kept); err != nil {
				return err
			}
			if id != nil {
				b.Batch.ID = dap.BatchID(id)
			} else {
				b.Batch.Start = dap.Time(bucket)
			}
			b.First, b.Last, b.Checksum = dap.Time(first), dap.Time(last), dap.Checksum(checksum)
			switch {
			case closed:
				b.State = store.Closed
			case held:
				b.State = store.Draining
			}
			out = append(out, b)
			return nil
		})
		if err != nil || t.Mode != dap.TimeInterval {
			return err
		}
		return tx.Each("new-buckets", []any{t.row, n}, func(r database.Row) error {
			var b store.BatchStatus
			var bucket uint64
			if err := r.Scan(&bucket, &b.Waiting); err != nil {
				return err
			}
			b.Batch.Start = dap.Time(bucket)
			b.State, _ = t.stateOf(b.Batch.Start)
			out = append(out, b)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	if t.Mode == dap.TimeInterval {
		slices.SortFunc(out, func(a, b store.BatchStatus) int { return cmp.Compare(b.Batch.Start, a.Batch.Start) })
	}
	return out[:min(n, len(out))], nil
}

// Stuck implements [store.Watch].
func (s *Store) Stuck(ctx context.Context, task dap.TaskID) (out []store.Stuck, err error) {
	t, err := s.task(task)
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, "stuck", func(tx *database.Tx) error {
		return tx.Each("stuck", []any{t.row}, func(r database.Row) error {
			x, err := rows.Stuck(r)
			out = append(out, x)
			return err
		})
	})
	return out, err
}

// Levels implements [store.Leader].
func (s *Store) Levels(ctx context.Context) (l store.Levels, err error) {
	err = s.view(ctx, "levels", func(tx *database.Tx) error {
		var came int64
		if _, err := tx.One("levels", nil, &l.Failing, &l.Parked, &l.SetAside, &came); err != nil {
			return err
		}
		if came > 0 {
			l.Oldest = time.Unix(came, 0)
		}
		return nil
	})
	return l, err
}

// LiveFiles implements [store.Files].
func (s *Store) LiveFiles(ctx context.Context) (names []string, err error) {
	err = s.view(ctx, "live-files", func(tx *database.Tx) error {
		names = nil
		for _, statement := range []string{"live-objects", "live-runs"} {
			err := tx.Each(statement, nil, func(r database.Row) error {
				var name string
				err := r.Scan(&name)
				names = append(names, name)
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	return names, err
}

// Usage implements [store.Watch].
func (s *Store) Usage(ctx context.Context, now time.Time) (u store.Usage, err error) {
	err = s.view(ctx, "usage", func(tx *database.Tx) error {
		u, err = rows.Usage(tx, now)
		return err
	})
	return u, err
}
