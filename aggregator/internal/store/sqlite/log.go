package sqlite

import (
	"context"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service/database"
)

const (
	stageUpload = 0 // refused at upload
	stageLater  = 1 // rejected after the acknowledgement
)

// LogFate implements [segment.Committer].
func (s *Store) LogFate(ctx context.Context, log segment.Begun) (fate segment.Fate, err error) {
	err = s.view(ctx, "log-fate", func(tx *database.Tx) error {
		fate, err = fateOf(tx, log)
		return err
	})
	return fate, err
}

func fateOf(tx *database.Tx, log segment.Begun) (segment.Fate, error) {
	fate := int(segment.Unsorted)
	_, err := tx.One("log-fate", []any{log.ID[:], log.File}, &fate)
	return segment.Fate(fate), err
}

// CommitLog implements [segment.Committer]: the reports of the log are acknowledged for
// good and wait to be claimed.
func (s *Store) CommitLog(ctx context.Context, log segment.Begun, slices []segment.Slice, lost *segment.LogDamage, others []segment.Begun) error {
	return s.update(ctx, "commit-log", func(tx *database.Tx) error {
		if fate, err := fateOf(tx, log); err != nil || fate != segment.Unsorted {
			return err
		}
		fate := segment.Named
		if lost != nil || len(slices) > 0 && slices[0].Object != log.File {
			fate = segment.Replaced
		}
		if _, err := tx.Exec("put-log", log.ID[:], log.File, int(fate)); err != nil {
			return err
		}
		if err := beginLogs(tx, others); err != nil {
			return err
		}
		if err := s.grow(tx, false); err != nil {
			return err
		}
		waiting, err := s.countSlices(tx, slices)
		if err != nil {
			return err
		}
		if err := s.putSlices(tx, waiting); err != nil {
			return err
		}
		needless := make(map[string]bool) // files
		if fate == segment.Named {
			needless[log.File] = true
		}
		for i := range slices {
			needless[slices[i].Object] = true
		}
		for _, w := range waiting {
			delete(needless, w.slice.Object)
		}
		for name := range needless {
			if _, err := tx.Exec("put-tombstone", name); err != nil {
				return err
			}
		}
		if lost == nil {
			return nil
		}
		return s.countDamage(tx, log.ID, lost)
	})
}

func beginLogs(tx *database.Tx, logs []segment.Begun) error {
	for _, log := range logs {
		if _, err := tx.Exec("begin-log", log.ID[:], log.File); err != nil {
			return err
		}
	}
	return nil
}

// BeginLogs implements [segment.Committer].
func (s *Store) BeginLogs(ctx context.Context, logs []segment.Begun) error {
	return s.update(ctx, "begin-logs", func(tx *database.Tx) error { return beginLogs(tx, logs) })
}

// BegunLogs implements [segment.Committer].
func (s *Store) BegunLogs(ctx context.Context) (logs []segment.Begun, err error) {
	err = s.view(ctx, "begun-logs", func(tx *database.Tx) error {
		logs = nil
		return tx.Each("begun-logs", nil, func(r database.Row) error {
			var id []byte
			var log segment.Begun
			if err := r.Scan(&id, &log.File); err != nil {
				return err
			}
			log.ID = disk.LogID(id)
			logs = append(logs, log)
			return nil
		})
	})
	return logs, err
}

// ForgetLog implements [segment.Committer].
func (s *Store) ForgetLog(ctx context.Context, log disk.LogID) error {
	return s.update(ctx, "forget-log", func(tx *database.Tx) error {
		_, err := tx.Exec("forget-log", log[:])
		return err
	})
}

// waitingSlice is a slice that gets a row.
type waitingSlice struct {
	task  *task
	slice *segment.Slice
}

// countSlices counts reports as acknowledged, and says which slices wait: those whose batch
// bucket was closed, or whose task was retired, while the reports were in the log are
// rejected.
func (s *Store) countSlices(tx *database.Tx, slices []segment.Slice) (waiting []waitingSlice, err error) {
	for i := range slices {
		m := &slices[i]
		t, err := s.task(m.TaskID)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", segment.ErrForeign, err)
		}
		if _, err := tx.Exec("count-acknowledged", t.row, m.Count+m.Duplicates); err != nil {
			return nil, err
		}
		if err := reject(tx, t, dap.ReportReplayed, uint64(m.Duplicates)); err != nil {
			return nil, err
		}
		code, err := t.tooLate(tx, m.Bucket)
		if err != nil {
			return nil, err
		}
		if code != 0 {
			if err := reject(tx, t, code, uint64(m.Count)); err != nil {
				return nil, err
			}
			continue
		}
		waiting = append(waiting, waitingSlice{t, m})
	}
	return waiting, nil
}

// tooLate says why reports of a batch bucket cannot wait any more; 0 if they can.
func (t *task) tooLate(tx *database.Tx, bucket uint64) (dap.ReportError, error) {
	if t.isRetired() {
		return dap.ReportDropped, nil
	}
	if t.Mode != dap.TimeInterval {
		return 0, nil
	}
	var one int
	closed, err := tx.One("interval-closed", []any{t.row, bucket, bucket}, &one)
	if closed {
		return dap.BatchCollected, err
	}
	return 0, err
}

// putSlices names slices in new files.
func (s *Store) putSlices(tx *database.Tx, list []waitingSlice) error {
	count := make(map[string]int)
	for _, w := range list {
		count[w.slice.Object]++
	}
	files := make(map[string]int64) // rows
	for _, w := range list {
		m := w.slice
		file, known := files[m.Object]
		if !known {
			var err error
			if file, err = tx.Insert("put-object", m.Object, count[m.Object], s.opt.Clock.Now().Unix()); err != nil {
				return err
			}
			files[m.Object] = file
		}
		_, err := tx.Exec("put-slice", file, m.Start(), m.Size(), m.Sum[:], w.task.row, m.Bucket, m.Count, m.Duplicates, m.Came,
			segment.AppendPieces(nil, m.Pieces))
		if err != nil {
			return err
		}
	}
	return nil
}

// reject counts reports turned away after their acknowledgement.
func reject(tx *database.Tx, t *task, code dap.ReportError, reports uint64) error {
	if reports == 0 {
		return nil
	}
	_, err := tx.Exec("count-rejected", t.row, stageLater, int(code), reports)
	return err
}
