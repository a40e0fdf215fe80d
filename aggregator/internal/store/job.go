package store

import (
	"context"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/dap"
)

// A Job is the leader's unit of work: slices of one task and batch bucket, one aggregation
// job with the helper. Its reports are numbered through its slices, in their order.
type Job struct {
	ID     int64 // never of another job of the data set; names the helper's
	Lease  Lease
	Task   dap.TaskID
	Batch  Batch // leader-selected: assigned when the job was made
	Slices []segment.Slice
	Sent   *Sent // nil until SaveSent; from then on the slices are fixed
}

// Reports is how many reports the job has, those included whose id came before.
func (j *Job) Reports() (n int) {
	for i := range j.Slices {
		n += j.Slices[i].Count
	}
	return n
}

// Most is what a job takes, and at least one slice.
type Most struct {
	Bytes   int64 // of all slices
	Reports int
}

// JobInFlight is a job that was sent: Accepted says which of its reports, as in [Sent].
type JobInFlight struct {
	Slices   []segment.Slice
	Accepted []byte
}

// A Place is where a slice is, and where it is to be: see segment.MoveSlices.
type Place struct{ From, To segment.Slice }

// Jobs is the part of [Leader] that knows slices, in the place of its methods of segments:
// what they promise of leases, back-off, batches, counts and conduct holds of jobs alike.
//
// A slice waits, in a job or free, until its job ends. A job is made by the claim that
// first leases it, and keeps its slices until then. The transaction that takes a file's last
// slice away, by its end or by moving it, writes the tombstone.
type Jobs interface {
	// CommitLog names the slices of a sorted log, which is the file that they lie in, or
	// another where they were moved because the log is damaged. Else as
	// segment.Committer has it. Slices of closed batch buckets and of retired tasks count
	// as rejected and get no row; a log that gets none has its tombstone at once.
	CommitLog(ctx context.Context, log segment.Begun, slices []segment.Slice, lost *segment.LogDamage, others []segment.Begun) error
	// ClaimJobs leases up to n jobs: those that are due again, oldest first, and then new
	// ones, each of the oldest free slice and of the next ones of its task and batch
	// bucket, up to most. A leader-selected job takes no further slice once the reports
	// that its batch has, verified or assigned, reach the minimum with it.
	ClaimJobs(ctx context.Context, now time.Time, lease time.Duration, n int, most Most, except ...dap.TaskID) ([]*Job, error)
	// SetAside takes slices out of a job that was not sent, by their index: their reports
	// count as rejected with code, and a row with why stays for the operator. It returns the job
	// with what is left, under the same lease, and nil if that is nothing. ErrDifferent if
	// the job was sent: then it is the whole job that cannot be finished.
	SetAside(ctx context.Context, j *Job, slices []int, code dap.ReportError, why string) (*Job, error)
	// SaveSent, Shared, RetryJob, QuarantineJob, ParkJob and FinishJob are SaveSent,
	// Shared, RetrySegment, Quarantine, Park and CommitSegment. A job that is quarantined
	// lets its slices go, and keeps their number.
	SaveSent(ctx context.Context, j *Job, s *Sent, expires time.Time) error
	Shared(ctx context.Context, j *Job, location string) (bool, error)
	RetryJob(ctx context.Context, j *Job, after time.Time, why string) error
	QuarantineJob(ctx context.Context, j *Job, code dap.ReportError, why string) error
	ParkJob(ctx context.Context, j *Job, why string, now time.Time) error
	FinishJob(ctx context.Context, j *Job, c *Commit) error
	// Sent lists the jobs of a task that were sent and are not committed: the helper may
	// have their reports.
	Sent(ctx context.Context, task dap.TaskID) ([]JobInFlight, error)
	// Slices lists n slices that wait, of all tasks, in the order of their rows, after the
	// one that cursor names; it begins with 0 and ends with no slices. A key is kept for as
	// long as a report in one of them was sealed to it.
	Slices(ctx context.Context, cursor int64, n int) (slices []segment.Slice, next int64, err error)
	// Leftover lists the slices of one file that was named before a time and has slices
	// that ended: all that still wait in it, to be moved. None if there is no such file.
	Leftover(ctx context.Context, before time.Time) ([]segment.Slice, error)
	// Move names slices elsewhere. The new file is durable. Those that ended meanwhile
	// are left out, and the file has its tombstone if none is left; those that were moved
	// already are no error.
	Move(ctx context.Context, places []Place) error
}
