package postgres

import (
	"context"
	"math"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/rows"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// Counts is the ledger of a task's reports; see [store.Watch].
func (s *Store) Counts(ctx context.Context, task dap.TaskID) (c *store.Counts, err error) {
	err = s.view(ctx, "counts", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, task)
		if err == nil {
			err = s.spans(tx, t)
		}
		if err == nil {
			c, err = t.counts(tx)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Totals are the counts of all tasks; see [store.Watch]. Replicas ask every few seconds, and
// a sum over the tallies costs more than any other reading.
func (s *Store) Totals(ctx context.Context) (c *store.Counts, err error) {
	err = s.view(ctx, "totals", func(tx *pgdb.Tx) error {
		collected := "total-collected"
		if s.viewed.Load() {
			collected = "total-collected-of-views"
		}
		c, err = readCounts(tx, "total-counts", collected, "total-waiting")
		return err
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (t *task) counts(tx *pgdb.Tx) (*store.Counts, error) {
	collected := "collected"
	if len(t.views) > 0 {
		collected = "collected-of-views"
	}
	return readCounts(tx, "counts", collected, "waiting-in-task", t.row)
}

// readCounts reads counts by three statements: of tallies, of the ledger, of what waits.
func readCounts(tx *pgdb.Tx, tallies, collected, waiting string, args ...any) (*store.Counts, error) {
	c := &store.Counts{Rejected: make(map[dap.ReportError]uint64), Refused: make(map[dap.ReportError]uint64)}
	err := tx.Each(tallies, args, func(r pgdb.Row) error {
		var kind, code int
		var n uint64
		if err := r.Scan(&kind, &code, &n); err != nil {
			return err
		}
		switch kind {
		case tallyAcknowledged:
			c.Acknowledged = n
		case tallyAggregated:
			c.Aggregated = n
		case tallyRefused:
			c.Refused[dap.ReportError(code)] = n
		case tallyRejected:
			c.Rejected[dap.ReportError(code)] = n
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if _, err = tx.One(collected, args, &c.Collected); err == nil {
		_, err = tx.One(waiting, args, &c.Waiting)
	}
	return c, err
}

// Batches lists the n newest batches of a task that have reports, or wait for some; see
// [store.Watch].
func (s *Store) Batches(ctx context.Context, task dap.TaskID, n int) (out []store.BatchStatus, err error) {
	err = s.view(ctx, "batches", func(tx *pgdb.Tx) error {
		out = nil
		t, err := find(tx, reading, task)
		if err == nil {
			err = s.spans(tx, t)
		}
		if err != nil || n <= 0 {
			return err
		}
		at := make(map[int64]int) // index in out, of those whose parts count, or are kept
		var open, rows []int64
		err = tx.Each("newest-batches", []any{t.row, n}, func(r pgdb.Row) error {
			var row int64
			var bucket, first, last uint64
			var id, checksum []byte
			var closed, held bool
			var b store.BatchStatus
			if err := r.Scan(&row, &closed, &b.Verified, &first, &last, &checksum, &held, &bucket, &id); err != nil {
				return err
			}
			if b.Batch = batchOf(bucket, id); closed {
				b.State, b.First, b.Last, b.Checksum = store.Closed, dap.Time(first), dap.Time(last), dap.Checksum(checksum)
				if len(t.views) > 0 {
					at[row], open = len(out), append(open, row)
				}
			} else {
				at[row], open = len(out), append(open, row)
				if held {
					b.State = store.Draining
				}
			}
			out, rows = append(out, b), append(rows, row)
			return nil
		})
		if err != nil {
			return err
		}
		err = tx.Each("parts", []any{open}, func(r pgdb.Row) error {
			var p partRow
			if err := p.scan(r); err != nil {
				return err
			}
			b := &out[at[p.batch]]
			if b.State == store.Closed {
				b.Kept = true
				return nil
			}
			if b.Verified == 0 {
				b.First, b.Last = dap.Time(p.first), dap.Time(p.last)
			}
			b.First, b.Last = min(b.First, dap.Time(p.first)), max(b.Last, dap.Time(p.last))
			b.Verified += p.reports
			b.Checksum.Merge(p.checksum)
			return nil
		})
		if err == nil {
			out, err = t.waitIn(tx, out, rows, n)
		}
		return err
	})
	return out, err
}

// batchOf is the batch that a row names.
func batchOf(bucket uint64, id []byte) (b store.Batch) {
	if id != nil {
		b.ID = dap.BatchID(id)
	} else {
		b.Start = dap.Time(bucket)
	}
	return b
}

// scan reads the columns of a part up to its checksum, and those after.
func (p *partRow) scan(r pgdb.Row, after ...any) error {
	var checksum []byte
	err := r.Scan(append([]any{&p.batch, &p.reports, &p.first, &p.last, &checksum}, after...)...)
	if err == nil {
		p.checksum = dap.Checksum(checksum)
	}
	return err
}

// BatchState says whether a batch takes uploads; see [store.Leader]. It is never stale.
func (s *Store) BatchState(ctx context.Context, task dap.TaskID, b store.Batch) (state store.BatchState, err error) {
	err = s.view(ctx, "batch-state", func(tx *pgdb.Tx) error {
		t, err := live(tx, reading, task)
		if err == nil {
			err = s.spans(tx, t)
		}
		if err != nil {
			return err
		}
		state, err = t.stateOf(tx, b)
		return err
	})
	return state, err
}

func (t *task) stateOf(tx *pgdb.Tx, b store.Batch) (store.BatchState, error) {
	statement, args := "bucket-state", []any{t.row, min(uint64(b.Start), math.MaxInt64)}
	if len(t.views) > 0 {
		statement = "bucket-state-of-views"
	}
	if t.mode == dap.LeaderSelected {
		statement, args = "id-state", []any{t.row, b.ID[:]}
	}
	var closed, held bool
	_, err := tx.One(statement, args, &closed, &held)
	switch {
	case closed:
		return store.Closed, err
	case held:
		return store.Draining, err
	}
	return store.Open, err
}

// Usage implements [store.Watch]. An id takes 18 bytes in a run.
func (s *Store) Usage(ctx context.Context, now time.Time) (u store.Usage, err error) {
	err = s.view(ctx, "usage", func(tx *pgdb.Tx) error {
		u, err = rows.Usage(tx, now)
		return err
	})
	return u, err
}
