package store

import (
	"context"

	"github.com/starling-agg/starling/dap"
)

// Damaged are files of the replay protection that are damaged or missing, and are mended
// together: several where nobody knows which id was in which.
type Damaged struct {
	Files     int
	IDs       int64        // in all of them
	Low, High dap.ReportID // they lie between, both included
	Sum       [32]byte     // names the damage: SHA-256 of the file, or of those of the files
	Why       string
}

// Replay is the protection against replays where it was damaged.
type Replay interface {
	// Damaged lists the damage to a task's replay protection, files that cannot be read
	// or are not what was written, as far as this handle has met it: no file is read for
	// it. Ids that may be in them have no answer: Seen and the commits that ask return
	// ErrDamaged, and change nothing.
	Damaged(ctx context.Context, task dap.TaskID) ([]Damaged, error)
	// DamagedTasks lists the tasks of which Damaged says anything.
	DamagedTasks(ctx context.Context) ([]dap.TaskID, error)
	// CheckReplay reads a task's replay protection, every byte where it is not in use,
	// and what was damaged once more, and returns what Damaged says then. Of a retired
	// task there is nothing to read.
	CheckReplay(ctx context.Context, task dap.TaskID) ([]Damaged, error)
	// Aggregated is Seen without what is damaged: it says which of the ids are known to
	// be aggregated.
	Aggregated(ctx context.Context, task dap.TaskID, ids []dap.ReportID) ([]bool, error)
	// AggregatedIDs lists the ids from low to high, both included, that are known to be
	// aggregated, ascending, n at most.
	AggregatedIDs(ctx context.Context, task dap.TaskID, low, high dap.ReportID, n int) ([]dap.ReportID, error)
	// Mend puts right the damage of that Sum, from the ids of its files in ascending
	// order. ErrMismatch if they are not those, which what the rows have of the files
	// proves; ErrNotFound if there is no such damage. The jobs that wait may be
	// claimed at once.
	Mend(ctx context.Context, task dap.TaskID, sum [32]byte, ids []dap.ReportID) error
}
