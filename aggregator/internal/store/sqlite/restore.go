package sqlite

import (
	"math"

	"github.com/starling-agg/starling/aggregator/internal/record"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// Restoring says which tasks a restore closes beside those in the backup: what the
// aggregator is configured with, for a task that came after the backup may have released
// what the backup knows nothing of. VDAFs are not needed. Tasks that the record knows of and
// neither the backup nor the configuration does are never taken again.
type Restoring struct{ Tasks []*store.Task }

// closeAll is the part of Open that ends a restore. The ledger of each task stays, and so
// do the answers to finished collections; waiting reports cannot be opened any more, and
// count as dropped.
func (s *Store) closeAll(tx *database.Tx) error {
	if s.opt.Restoring == nil {
		return nil
	}
	for _, in := range s.opt.Restoring.Tasks {
		if s.tasks[in.ID] != nil {
			continue
		}
		t := &task{Task: *in, holds: make(map[int64]hold)}
		if err := t.put(tx); err != nil {
			return err
		}
		s.tasks[t.ID], s.rows[t.row] = t, t
	}
	known, err := record.Tasks(s.opt.Record)
	if err != nil {
		return err
	}
	for _, id := range known {
		if s.tasks[id] != nil {
			continue
		}
		if _, err := tx.Exec("forget-task", id[:]); err != nil {
			return err
		}
	}
	for _, t := range s.tasks {
		var unfinished uint64
		for _, of := range []struct{ list, drop string }{
			{"sweep-slices", "drop-slice"}, {"sweep-jobs", "drop-job"}, {"sweep-runs", "sweep-run"}, {"sweep-noise", "drop-noise"},
		} {
			_, reports, err := dropListed(tx, of.list, of.drop, t.row, math.MaxInt32)
			if err != nil {
				return err
			}
			unfinished += reports
		}
		if err := reject(tx, t, dap.ReportDropped, unfinished); err != nil {
			return err
		}
		if _, err := tx.Exec("drop-sums", t.row); err != nil { // nothing more is released of it
			return err
		}
		t.closedIn = s.id.record.Epoch
	}
	// nor marks: no backup has their files
	if _, err := tx.Exec("close-rounds"); err != nil {
		return err
	}
	// no log comes out of a backup
	if _, err := tx.Exec("forget-begun"); err != nil {
		return err
	}
	_, err = tx.Exec("close-tasks", uint64(s.id.record.Epoch))
	return err
}
