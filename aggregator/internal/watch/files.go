package watch

import (
	"context"
	"fmt"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// Damage is what Files asks of a store; see [store.Watch] and [store.Replay].
type Damage interface {
	Damages(context.Context) ([]store.Damage, error)
	Damaged(context.Context, dap.TaskID) ([]store.Damaged, error)
	DamagedTasks(context.Context) ([]dap.TaskID, error)
}

// Files counts what is lost or damaged of an aggregator's files. missing is how many data
// keys have no file.
func Files(ctx context.Context, fsys disk.FS, s Damage, missing int) (f aggregator.Files, err error) {
	set, err := lost.Status(fsys)
	if err != nil {
		return f, fmt.Errorf("watch: %w", err)
	}
	if set != nil {
		f.LostSlices, f.LostLogs, f.LostRuns = set.Slices, set.Logs, set.Runs
		f.LostOthers = set.Files - set.Slices - set.Logs - set.Runs
	}
	logs, err := s.Damages(ctx)
	if err != nil {
		return f, fmt.Errorf("watch: %w", err)
	}
	f.DamagedLogs, f.MissingDataKeys = len(logs), missing
	tasks, err := s.DamagedTasks(ctx)
	if err != nil {
		return f, fmt.Errorf("watch: %w", err)
	}
	for _, id := range tasks {
		damaged, err := s.Damaged(ctx, id)
		if err != nil {
			return f, fmt.Errorf("watch: %w", err)
		}
		f.DamagedRuns += len(damaged)
	}
	return f, nil
}

// Held fills in which tasks take nothing until a person has acted.
func Held(l *aggregator.Levels, b *permit.Board) {
	kept := b.Kept(permit.Take)
	l.HeldByHand, l.HeldApart, l.HeldRestored = kept[permit.Hold], kept[permit.Agreement], kept[permit.Restore]
}
