package store

import (
	"context"
	"time"

	"github.com/starling-agg/starling/dap"
)

// Longest is more than any lease or back-off.
const Longest = 24 * time.Hour

// A Lease is a claim on a piece of work. Token is random and fences every later write; a
// claim whose lease has run out may be given to another worker, after which writes with
// the old token fail with ErrStaleLease.
type Lease struct {
	Token    [16]byte
	Expires  time.Time
	Attempts int // claims of this work so far, this one included
}

// Sent is what makes a job's retry send the same bytes: which reports of it are in the
// request, what the helper has said so far, and the digest of the last request.
type Sent struct {
	Accepted []byte // bitmap over the job's reports, least significant bit first
	Step     uint16 // of the last request; 0 is the init request
	Digest   [32]byte
	Location string   // the helper's job, once known
	Answers  [][]byte // the helper's, to the requests of the steps before Step
}

// Conduct is how the peer answered one aggregation job, report by report.
type Conduct struct {
	Asked uint64 // reports that it gave a verdict of
	// of these, refused for a reason that is the peer's own, and that no stranger can
	// make it say
	Refused uint64
	Now     time.Time
}

// A task is held by itself once its peer, since a person last let the task go on, has
// refused
//
//   - each of its first FirstTurned jobs as a whole, or
//   - RowTurned jobs as a whole one after the other, or
//   - over half of a window of WindowReports reports or more, for reasons of its own.
//
// A stranger's acts count nowhere: a report that does not open or does not hold is
// refused alone.
const (
	FirstTurned   = 3
	RowTurned     = 5
	WindowReports = 100
)

// A Hold keeps a task from taking uploads and running jobs until a person lets it go on.
// Nothing is lost by it.
type Hold struct {
	Task   dap.TaskID
	Since  time.Time
	Person bool // a person holds it, and it releases nothing either
	Why    string
}

// A Leader takes reports from slices, of which [Jobs] are made, to their batches, and
// batches to their release, which is one of [Releases]. Slices come through a
// [segment.Committer], where the engine has logs, or a [segment.Acknowledger].
type Leader interface {
	Jobs

	// BatchState says whether a batch takes uploads. Closed is for ever; any other answer
	// may be a second old, or stale by the time it is used: what names slices, and the
	// commits, decide.
	BatchState(ctx context.Context, task dap.TaskID, b Batch) (BatchState, error)
	// AddRefused counts reports that were refused at upload.
	AddRefused(ctx context.Context, task dap.TaskID, refused map[dap.ReportError]uint64) error
	// HoldTask holds a task in the name of a person, whoever held it before.
	HoldTask(ctx context.Context, task dap.TaskID, why string, now time.Time) error
	// Holds lists the tasks that are held.
	Holds(ctx context.Context) ([]Hold, error)
	// Resume lets tasks go on: it ends their holds, forgets how the peer has answered, and
	// ends the wait of their parked jobs, of how many reports it says: they may be
	// claimed again, or, with drop, are quarantined as report_dropped.
	Resume(ctx context.Context, tasks []dap.TaskID, drop bool) (reports uint64, err error)
	// GiveUp ends what waits of a task that was closed, but for the jobs that the peer may
	// have, which are those that were sent and are not parked; it says how many reports
	// these were. They count as rejected with report_dropped. A worker that holds such a job
	// finds its lease gone.
	GiveUp(ctx context.Context, task dap.TaskID) (reports uint64, err error)
	// Seen says which of the ids are already aggregated in the task (the leader must not
	// send those).
	Seen(ctx context.Context, task dap.TaskID, ids []dap.ReportID) ([]bool, error)
	// Hurry has the jobs that wait claimable at once: what they waited for is there.
	Hurry(ctx context.Context, task dap.TaskID) error
	// Drain prepares a collection: picks the batch (leader-selected: the oldest open one
	// with Verified >= MinBatch), marks its batch buckets Draining if their verified
	// count reaches the minimum, and says what still waits. ErrTooSmall when it does not
	// reach it, ErrBusy when another collection holds some of it; nothing is marked then.
	// Again gives the same selection.
	Drain(ctx context.Context, r *Resource) (sel Selection, waiting uint64, err error)
	// Verified counts what an interval of a task has: verified reports, and those that wait.
	Verified(ctx context.Context, task dap.TaskID, interval dap.Interval) (verified, waiting uint64, err error)
	// Freeze fixes the batch if nothing in it waits (else ErrBusy: it stays draining) and
	// it still has its minimum; if not, or if it was not drained, the batch buckets are
	// open (ErrTooSmall). A frozen collection stays frozen until it is released or fails.
	// Slices that come for its batch buckets meanwhile are not claimable: the helper
	// must not see them; once the batch is closed they count as batch_collected.
	Freeze(ctx context.Context, r *Resource, sel Selection) (*Frozen, error)
	// Withdraw is Delete of a collection that has no answer; one that is Ready is ErrBusy
	// too: its batch is never released again.
	Withdraw(ctx context.Context, task dap.TaskID, id string) error
	// Forgo has no collection come under an id that a collector chose, and gave up before
	// its request had come: Create is ErrDeleted from then on, whatever the body. ErrTaken
	// if a collection has that id, which can be deleted.
	Forgo(ctx context.Context, task dap.TaskID, id string) error
	// Levels counts what waits and does not get on, over all tasks.
	Levels(ctx context.Context) (Levels, error)
}
