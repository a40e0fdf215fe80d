package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// Errors to branch on; engines wrap them with what was being done.
var (
	ErrNotFound   = errors.New("store: not found")
	ErrStaleLease = errors.New("store: lease lost")                          // another worker holds the work; drop yours
	ErrOverlap    = errors.New("store: batch overlaps a collected one")      // dap batchOverlap
	ErrOver       = errors.New("store: the time of the batch is over")       // of a task with views; dap batchInvalid
	ErrTooSmall   = errors.New("store: batch below its minimum size")        // dap invalidBatchSize, or wait
	ErrMismatch   = errors.New("store: count or checksum differs")           // dap batchMismatch
	ErrBusy       = errors.New("store: batch not at rest")                   // another collection holds it, or reports of it wait: ask again later
	ErrStep       = errors.New("store: not the next step")                   // dap stepMismatch
	ErrDifferent  = errors.New("store: differs from what is recorded")       // the same thing was recorded before, otherwise; permanent
	ErrTaken      = errors.New("store: another resource has that id")        // where the peer chooses ids
	ErrDeleted    = errors.New("store: the resource of that id was deleted") // where the peer chooses ids
	ErrFull       = errors.New("store: too many collections wait")           // of a task
	// of these reports; it is mended from what the peer has
	ErrDamaged = errors.New("store: replay protection is damaged")
	// of a round, whose reports wait; the peer has other marks, so nothing mends it
	ErrMarks   = fmt.Errorf("%w: the marks of a round are not what was written", ErrDamaged)
	ErrNoRoom  = errors.New("store: no room on the disk") // nothing changed; later
	ErrAgain   = errors.New("store: not at present")      // nothing changed: a database is away, or others were faster; later
	ErrUnknown = errors.New("store: outcome unknown")     // stop, reopen, recover
	// the replica was held dead since the work began: nothing changed, begin anew
	ErrCutOff = errors.New("store: the other replicas held this one dead, and keys that the work used may be destroyed")
)

// A Task is what the store must know of one provisioned task. Config is the provisioned
// TaskConfiguration, byte for byte.
type Task struct {
	ID            dap.TaskID
	Config        []byte
	Mode          dap.BatchMode
	TimePrecision dap.TimePrecision
	MinBatch      uint64
	VDAF          vdaf.VDAF // not stored; decodes and merges aggregate shares
	End           time.Time // not stored; when its last report can have come, clock skew included; zero: never
	// Views are the spans, in units of TimePrecision, of which each batch bucket is released
	// once: rising, each a multiple of the one before. Nil: whatever interval, and each
	// one of them once. Time-interval tasks only.
	Views []uint64
}

// A Batch names what reports are summed into: a batch bucket in time-interval
// tasks, a batch id in leader-selected ones. Exactly one field counts, by the task's
// mode.
type Batch struct {
	Start dap.Time // time-interval: the batch bucket of one time_precision
	ID    dap.BatchID
}

// A Selection names what a collection takes: an interval of batch buckets or one batch
// id.
type Selection struct {
	Interval dap.Interval
	ID       dap.BatchID
}

// BatchState is where a batch stands: Open -> Draining -> Closed, with Draining -> Open
// when it fell short.
type BatchState uint8

const (
	Open     BatchState = iota
	Draining            // a collection is near: no new uploads, acknowledged reports finish
	Closed              // released, for ever
)

// TaskState is how a task stands in the store itself, whatever is configured. No field
// ever goes back.
type TaskState struct {
	Retired bool // [Tasks.Retire] was called, ever
	// ClosedIn is the restore epoch in which the task was closed for good, for what it had
	// released is not known; 0 while it is open. Its stored results are still given out.
	ClosedIn uint32
	// Closed is when the task was closed ([Registry.CloseTask]); zero while it is live.
	Closed time.Time
}

// Tasks are the tasks of an aggregator, from when they are provisioned to their end.
type Tasks interface {
	// PutTask provisions a task; again is harmless, and needed after each opening, for
	// the VDAF. ErrDifferent if the task is known with another configuration.
	PutTask(ctx context.Context, t *Task) error
	// LetGo lets go of the VDAF that PutTask was told, which tells it again before the next
	// commit or release of the task.
	LetGo(task dap.TaskID)
	Tasks(ctx context.Context) ([]dap.TaskID, error)
	// TaskState says how a task stands; ErrNotFound if it was never provisioned. It may
	// be a second old: what it lets through is refused by the transaction that comes of it.
	TaskState(ctx context.Context, task dap.TaskID) (TaskState, error)
	// Retire ends a task for good, at or after its End or its closing (else ErrBusy): from
	// now on it takes no commit and has no resources (ErrNotFound), and what is still in logs will
	// count as dropped. It cannot be undone, for with Sweep goes what tells a replay.
	// Again is harmless.
	Retire(ctx context.Context, task dap.TaskID, now time.Time) error
	// Sweep erases at most n rows of a retired task, and the files that they name, and
	// says whether there are more: slices (reports that nobody finished count as
	// dropped), jobs, replay runs, resources, batches with their shares. The task's counts and
	// the ledger of releases stay.
	Sweep(ctx context.Context, task dap.TaskID, n int) (more bool, err error)
}

// A Base is what leader and helper both need of an engine.
type Base interface {
	Tasks
	Registry
	Resources
	Releases
	Replay
	Spending
	Watch
	Files
	datakey.Book

	// KeysWereMade says whether NoteKeys was ever called.
	KeysWereMade(ctx context.Context) (bool, error)
	// NoteKeys remembers that the aggregator makes its HPKE keys by itself: without them
	// its directory is damaged.
	NoteKeys(ctx context.Context) error
	// SeenTime is the time that SaveTime saved last; zero if it never did.
	SeenTime(ctx context.Context) (time.Time, error)
	SaveTime(ctx context.Context, t time.Time) error
	// Audit checks every invariant it knows and lists the violations, in words.
	Audit(ctx context.Context) ([]string, error)
	Close() error
}

// An Engine is what leader and helper each need a part of, on one data set, and each of
// its methods is one named transaction; see the package comment for what that means. A
// caller takes the parts that it uses.
//
// An Engine is one handle. There may be several on one data set, in one process or in
// many; what one has committed the others read.
type Engine interface {
	Base
	Leader
	Helper
	segment.Committer
}
