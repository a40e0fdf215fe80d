package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// Rows is a payload store all of whose objects are rows, whatever their names.
func (s *Store) Rows() payload.Store { return objects{s: s, all: true} }

// Pass runs a transaction that does nothing, by the name of one that other engines have.
func (s *Store) Pass(ctx context.Context, name string) error {
	return s.update(ctx, name, func(*pgdb.Tx) error { return nil })
}

// CountLate counts reports that were acknowledged by a log of the suite and refused here.
func (s *Store) CountLate(ctx context.Context, id dap.TaskID, why segment.Refusal, reports int) error {
	return s.update(ctx, "count-late", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, id)
		if err != nil {
			return err
		}
		var counts tallies
		counts.add(tallyAcknowledged, 0, uint64(reports))
		counts.add(tallyRejected, dap.ReportError(why), uint64(reports))
		_, err = counts.put(tx, t)
		return err
	})
}

// Freed asks whether a migration may take something away.
var Freed = freed

// Away has a process have been away for so long since it was seen last.
func (m *Member) Away(d time.Duration) { m.seen = m.seen.Add(-d) }

// After is the number of the slice behind which the next claim looks, beside the first ones.
func (s *Store) After() int64 { return s.past.after }

// Full is the batch up to which this handle knows those of a task to be full.
func (s *Store) Full(ctx context.Context, id dap.TaskID) (row int64, err error) {
	err = s.view(ctx, "full", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, id)
		row = s.full.m[t.row]
		return err
	})
	return row, err
}

// MergeMarks merges the runs of a round where that is due.
func (s *Store) MergeMarks(ctx context.Context, id dap.TaskID, round uint64) error {
	return s.mergeRuns(ctx, marksOf(id, round))
}

// MergeIDs merges the runs of a task's ids where that is due.
func (s *Store) MergeIDs(ctx context.Context, id dap.TaskID) error {
	return s.mergeRuns(ctx, idsOf(id))
}

// LookEvery has registers that are opened until the test ends look so often.
func LookEvery(t testing.TB, every time.Duration) {
	before := lookEvery
	lookEvery = every
	t.Cleanup(func() { lookEvery = before })
}

// Seen says whether the register has seen a process that had beaten so often.
func (x *Issued) Seen(beats uint64) func() bool {
	return func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.seen.beats >= beats
	}
}
