package store

import (
	"context"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
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

// A SegmentJob is the leader's unit of work: one claimed segment, one aggregation job.
type SegmentJob struct {
	Lease   Lease
	Task    dap.TaskID
	Segment segment.Meta
	Batch   Batch // leader-selected: assigned at the claim
	Sent    *Sent // nil until SaveSent
}

// Sent is what makes a retry send the same bytes: which reports of the segment are in the
// job, what the helper has said so far, and the digest of the last request.
type Sent struct {
	Accepted []byte // bitmap over the segment's reports, least significant bit first
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

// InFlight is a segment that was sent: Accepted says which of its reports, as in [Sent].
type InFlight struct {
	Segment  segment.Meta
	Accepted []byte
}

// A Leader takes reports from the log to their batches, and batches to their release,
// which is one of [Releases]. Through its [segment.Committer] sorted logs name their
// segments.
type Leader interface {
	segment.Committer

	// BatchState says whether a batch takes uploads. Closed is for ever; any other answer
	// may be a second old, or stale by the time it is used: CommitLog and the commits
	// decide.
	BatchState(ctx context.Context, task dap.TaskID, b Batch) (BatchState, error)
	// AddRefused counts reports that were refused at upload.
	AddRefused(ctx context.Context, task dap.TaskID, refused map[dap.ReportError]uint64) error
	// ClaimSegments leases up to n segments (oldest first) that are unclaimed, or whose
	// lease ran out or whose back-off is over; one that ends more than Longest from now
	// was written by another clock, and counts as over. Leader-selected: each is
	// assigned, for good, to the oldest open batch whose verified and assigned reports
	// are below the minimum, or to a new batch with an id from crypto/rand. Those of the
	// tasks in except are left where they are.
	ClaimSegments(ctx context.Context, now time.Time, lease time.Duration, n int, except ...dap.TaskID) ([]*SegmentJob, error)
	// SaveSent records what is about to be sent, before the first byte leaves, and
	// extends the lease to expires if that is later. Again with the same Step and Digest
	// is harmless, and so is the next Step with the answer to the one before; anything
	// else is ErrDifferent, or ErrBusy where the job of that Location is Shared.
	SaveSent(ctx context.Context, j *SegmentJob, s *Sent, expires time.Time) error
	// Shared says whether another segment that waits is past the first step of the job of
	// that location: segments of the same reports make the same job, and one of them
	// alone may go on with it.
	Shared(ctx context.Context, j *SegmentJob, location string) (bool, error)
	// RetrySegment gives the claim back, to be claimed again after the given time.
	RetrySegment(ctx context.Context, j *SegmentJob, after time.Time, why string) error
	// Quarantine sets a segment aside that can neither be finished nor retried; its
	// reports count as rejected with code. The row stays, for the operator; nothing will
	// read its file again, which may be removed (Bury does it otherwise).
	Quarantine(ctx context.Context, j *SegmentJob, code dap.ReportError, why string) error
	// Park leaves a segment, with its file and its reports still waiting, until Resume:
	// no worker claims it, and no leader-selected batch that has it is drained. It counts
	// as a job that was refused as a whole, and may so hold the task.
	Park(ctx context.Context, j *SegmentJob, why string, now time.Time) error
	// HoldTask holds a task in the name of a person, whoever held it before.
	HoldTask(ctx context.Context, task dap.TaskID, why string, now time.Time) error
	// Holds lists the tasks that are held.
	Holds(ctx context.Context) ([]Hold, error)
	// Resume lets tasks go on: it ends their holds, forgets how the peer has answered, and
	// ends the wait of their parked segments, of how many reports it says: they may be
	// claimed again, or, with drop, are quarantined as report_dropped.
	Resume(ctx context.Context, tasks []dap.TaskID, drop bool) (reports uint64, err error)
	// CommitSegment commits and finishes the job; its file may be removed afterwards
	// (Bury does it otherwise).
	CommitSegment(ctx context.Context, j *SegmentJob, c *Commit) error
	// Seen says which of the ids are already aggregated in the task (the leader must not
	// send those).
	Seen(ctx context.Context, task dap.TaskID, ids []dap.ReportID) ([]bool, error)
	// Hurry has the segments that wait claimable at once: what they waited for is there.
	Hurry(ctx context.Context, task dap.TaskID) error
	// Sent lists the segments whose reports were sent to the helper and are not
	// committed: the helper may have them.
	Sent(ctx context.Context, task dap.TaskID) ([]InFlight, error)
	// Drain prepares a collection: picks the batch (leader-selected: the oldest open one
	// with Verified >= MinBatch), marks its batch buckets Draining if their verified
	// count reaches the minimum, and says what still waits. ErrTooSmall when it does not
	// reach it, ErrBusy when another collection holds some of it; nothing is marked then.
	// Again gives the same selection.
	Drain(ctx context.Context, r *Resource) (sel Selection, waiting uint64, err error)
	// Freeze fixes the batch if nothing in it waits (else ErrBusy: it stays draining) and
	// it still has its minimum; if not, or if it was not drained, the batch buckets are
	// open (ErrTooSmall). A frozen collection stays frozen until it is released or fails.
	// Segments that come for its batch buckets meanwhile are not claimable: the helper
	// must not see them; once the batch is closed they count as batch_collected.
	Freeze(ctx context.Context, r *Resource, sel Selection) (*Frozen, error)
	// Withdraw is Delete of a collection that has no answer; one that is Ready is ErrBusy
	// too: its batch is never released again.
	Withdraw(ctx context.Context, task dap.TaskID, id string) error
	// Levels counts what waits and does not get on, over all tasks.
	Levels(ctx context.Context) (Levels, error)
}
