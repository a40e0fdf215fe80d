package store

import (
	"context"
	"time"

	"github.com/starling-agg/starling/dap"
)

// Counts are a task's ledger of reports. At rest Acknowledged = Aggregated + the sum of
// Rejected + what waits.
type Counts struct {
	Acknowledged uint64                     // reports in committed logs (duplicates included); helper: in answered jobs
	Waiting      uint64                     // in slices not yet finished
	Aggregated   uint64                     // verified, new and folded
	Collected    uint64                     // in released batches
	Rejected     map[dap.ReportError]uint64 // after the acknowledgement
	Refused      map[dap.ReportError]uint64 // at upload, before any acknowledgement
}

// BatchStatus describes one batch that has reports.
type BatchStatus struct {
	Batch    Batch
	State    BatchState
	Verified uint64
	Waiting  uint64
	Kept     bool     // closed, and its sum is kept for other views
	First    dap.Time // tight span of report times, valid when Verified > 0
	Last     dap.Time
	Checksum dap.Checksum
}

// Damage is what one log lost.
type Damage struct {
	File    string
	Bytes   int64
	Records int
	Reports int  // that were counted as dropped
	Exact   bool // else they are the least
}

// Levels are reports at the leader, over all tasks.
type Levels struct {
	Failing, Parked, SetAside uint64
	// the first acknowledgement of what waits in slices; zero: none, or not known
	Oldest time.Time
}

// A Usage is what a store has of that which a quota bounds.
type Usage struct {
	Tasks int // registered ones that are live: neither closed nor ended
	// Bytes of reports that wait and rows name, of the replay protection, of the aggregate
	// shares of open batches and, on the embedded engine, of noise: all that uploads can
	// make grow without an end.
	Bytes int64
}

// Copied says of what a copy is: whose store, and how far it had come.
type Copied struct {
	Role     dap.Role
	Party    string
	ID       string // in hexadecimal digits
	Epoch    uint32
	Releases uint64
}

// Stuck is one piece of work that keeps failing or was set aside.
type Stuck struct {
	Job         int64
	Reports     uint64
	Attempts    int
	Quarantined bool
	Parked      bool
	Why         string
	Next        time.Time
}

// Watch is for those that look on.
type Watch interface {
	// TaskState is that of [Tasks].
	TaskState(ctx context.Context, task dap.TaskID) (TaskState, error)
	// Counts is the ledger of a task's reports.
	Counts(ctx context.Context, task dap.TaskID) (*Counts, error)
	// Totals are the counts of all tasks together; they may be a few seconds old.
	Totals(ctx context.Context) (*Counts, error)
	// Usage is what there is at a time. It reads rows, no more than a few for each task,
	// file and open batch, and no reports.
	Usage(ctx context.Context, now time.Time) (Usage, error)
	// Batches lists a task's batches that have reports, or wait for some: the n newest.
	Batches(ctx context.Context, task dap.TaskID, n int) ([]BatchStatus, error)
	// Stuck lists work that is failing, with the reason last given.
	Stuck(ctx context.Context, task dap.TaskID) ([]Stuck, error)
	// Shares is how many noised shares of a task are kept, and how often one was sealed
	// again.
	Shares(ctx context.Context, task dap.TaskID) (kept, resealed uint64, err error)
	// Damages lists the logs that lost acknowledged reports, until ForgetDamage.
	Damages(ctx context.Context) ([]Damage, error)
}
