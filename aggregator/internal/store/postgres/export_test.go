package postgres

import (
	"context"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres/pgdb"
	"github.com/starling-agg/starling/dap"
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
