package store

import (
	"context"
	"math"
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

// Takes says whether a job that has some reports takes a further slice. Where reports are
// large it has [segment.LargeBytes] at most.
func (m Most) Takes(reports int, bytes int64, more int, size int64) bool {
	limit := m.Bytes
	if reports > 0 && bytes/int64(reports) >= segment.LargeReport {
		limit = min(limit, segment.LargeBytes)
	}
	return reports+more <= m.Reports && bytes+size <= limit
}

// Except is what a claim leaves to others: of a task what lies in batch buckets from From to
// To, or all of it, where To is 0.
type Except struct {
	Task     dap.TaskID
	From, To dap.Time
}

// Bounds are the first and the last batch bucket, as engines write them.
func (e Except) Bounds() (from, to int64) {
	if e.To == 0 {
		return 0, math.MaxInt64
	}
	return int64(min(e.From, math.MaxInt64)), int64(min(e.To, math.MaxInt64))
}

// JobInFlight is a job that was sent: Accepted says which of its reports, as in [Sent].
type JobInFlight struct {
	Slices   []segment.Slice
	Accepted []byte
}

// A Place is where a slice is, and where it is to be: see segment.MoveSlices.
type Place struct{ From, To segment.Slice }

// LeftoverBytes bounds what [Jobs.Leftover] lists, unless one slice alone has more.
const LeftoverBytes = 4 << 20

// Jobs are made of slices, claimed, sent and committed.
//
// A slice waits, in a job or free, until its job ends. A job is made by the claim that
// first leases it, and keeps its slices until then. The transaction that takes a file's last
// slice away, by its end or by moving it, writes the tombstone.
type Jobs interface {
	// ClaimJobs leases up to n jobs: those that are due again, oldest first, and then new
	// ones, each of the oldest free slice and of the next ones of its task and batch
	// bucket, up to most. Due is a job whose lease ran out or whose back-off is over; one
	// that ends more than Longest from now was written by another clock, and counts as over.
	// Jobs and slices in except are left where they are.
	//
	// A leader-selected job is of the oldest open batch whose verified and assigned
	// reports are below the minimum, for good, or of a new batch with an id from
	// crypto/rand. It takes no further slice once they reach the minimum with it.
	ClaimJobs(ctx context.Context, now time.Time, lease time.Duration, n int, most Most, except ...Except) ([]*Job, error)
	// SetAside takes slices out of a job that was not sent, by their index: their reports
	// count as rejected with code, and a row with why stays for the operator. It returns
	// the job with what is left, under the same lease, and nil if that is nothing.
	// ErrDifferent if the job was sent: then it is the whole job that cannot be finished.
	SetAside(ctx context.Context, j *Job, slices []int, code dap.ReportError, why string) (*Job, error)
	// SaveSent records what is about to be sent, before the first byte leaves, and
	// extends the lease to expires if that is later. Again with the same Step and Digest
	// is harmless, and so is the next Step with the answer to the one before; anything
	// else is ErrDifferent, or ErrBusy where the job of that Location is Shared.
	SaveSent(ctx context.Context, j *Job, s *Sent, expires time.Time) error
	// Shared says whether another job that waits is past the first step of the helper's
	// job of that location: jobs of the same reports make the same one there, and one of
	// them alone may go on with it.
	Shared(ctx context.Context, j *Job, location string) (bool, error)
	// RenewJob extends the lease to expires if that is later, and leaves j as it is: a worker
	// says so that it lives. It need not be durable.
	RenewJob(ctx context.Context, j *Job, expires time.Time) error
	// RetryJob gives the claim back, to be claimed again after the given time.
	RetryJob(ctx context.Context, j *Job, after time.Time, why string) error
	// QuarantineJob sets a job aside that can neither be finished nor retried; its reports
	// count as rejected with code. It lets its slices go, and the row stays, with their
	// number, for the operator.
	QuarantineJob(ctx context.Context, j *Job, code dap.ReportError, why string) error
	// ParkJob leaves a job, with its slices still waiting, until Resume: no worker claims
	// it, and no leader-selected batch that has it is drained. It counts as a job that was
	// refused as a whole, and may so hold the task.
	ParkJob(ctx context.Context, j *Job, why string, now time.Time) error
	// FinishJob commits a job and ends it, and its slices.
	FinishJob(ctx context.Context, j *Job, c *Commit) error
	// Sent lists the jobs of a task that were sent and are not committed: the helper may
	// have their reports.
	Sent(ctx context.Context, task dap.TaskID) ([]JobInFlight, error)
	// Slices lists n slices that wait, of all tasks, in the order of their rows, after the
	// one that cursor names; it begins with 0 and ends with no slices. A key is kept for as
	// long as a report in one of them was sealed to it.
	Slices(ctx context.Context, cursor int64, n int) (slices []segment.Slice, next int64, err error)
	// Leftover lists slices that wait, to be moved into one new file: of files that were
	// named before a time and have slices that ended, and of small ones where there are
	// many, the oldest first, so that a trickle keeps neither large files nor many. None of
	// a job that is leased: its worker reads them where they are.
	Leftover(ctx context.Context, before time.Time) ([]segment.Slice, error)
	// Move names slices elsewhere. The new file is durable. Those that ended meanwhile or
	// are of a job that is leased now are left out, and the file has its tombstone if none
	// is left; those that were moved already are no error.
	Move(ctx context.Context, places []Place) error
}
