package store

import (
	"context"
	"errors"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/vdaf"
)

// Errors to branch on; engines wrap them with what was being done.
var (
	ErrNotFound   = errors.New("store: not found")
	ErrStaleLease = errors.New("store: lease lost")                     // another worker holds the work; drop yours
	ErrOverlap    = errors.New("store: batch overlaps a collected one") // dap batchOverlap
	ErrTooSmall   = errors.New("store: batch below its minimum size")   // dap invalidBatchSize, or wait
	ErrMismatch   = errors.New("store: count or checksum differs")      // dap batchMismatch
	ErrBusy       = errors.New("store: batch not at rest")              // another collection holds it, or reports of it wait: ask again later
	ErrStep       = errors.New("store: not the next step")              // dap stepMismatch
	ErrDifferent  = errors.New("store: differs from what is recorded")  // the same thing was recorded before, otherwise; permanent
	ErrTaken      = errors.New("store: another resource has that id")   // where the peer chooses ids
	ErrFull       = errors.New("store: too many collections wait")      // of a task
	// of these reports; it is mended from what the peer has
	ErrDamaged = errors.New("store: replay protection is damaged")
	ErrNoRoom  = errors.New("store: no room on the disk") // nothing changed; later
	ErrUnknown = errors.New("store: outcome unknown")     // stop, reopen, recover
)

// A Task is what the store must know of one provisioned task. Config is the provisioned TaskConfiguration, byte for byte.
type Task struct {
	ID            dap.TaskID
	Config        []byte
	Mode          dap.BatchMode
	TimePrecision dap.TimePrecision
	MinBatch      uint64
	VDAF          vdaf.VDAF // not stored; decodes and merges aggregate shares
	End           time.Time // not stored; when its last report can have come, clock skew included; zero: never
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

// BatchState is where a batch stands: Open -> Draining -> Closed, with Draining -> Open when it fell short.
type BatchState uint8

const (
	Open     BatchState = iota
	Draining            // a collection is near: no new uploads, acknowledged reports finish
	Closed              // released, for ever
)

// Store keeps one aggregator's durable state. Every method is one named transaction: when it returns nil its effect
// survives power loss; on any error but ErrUnknown nothing changed. All methods are safe for concurrent use. Engines
// never read the wall clock: now comes from the caller.
//
// It embeds segment.Committer, through which sorted logs name their segments.
type Store interface {
	segment.Committer

	// PutTask provisions a task; again is harmless, and needed after each opening, for the VDAF. ErrDifferent if the
	// task is known with another configuration.
	PutTask(ctx context.Context, t *Task) error
	Tasks(ctx context.Context) ([]dap.TaskID, error)

	// BatchState says whether the batch bucket still takes uploads. An answer may be
	// stale by the time it is used: Commit decides.
	BatchState(ctx context.Context, task dap.TaskID, b Batch) (BatchState, error)

	// --- leader: segments to jobs

	// ClaimSegments leases up to n segments (oldest first) that are unclaimed, or whose
	// lease ran out or whose back-off is over; one that ends more than Longest from now
	// was written by another clock, and counts as over. Leader-selected: each is
	// assigned, for good, to the oldest open batch whose verified and assigned reports
	// are below the minimum, or to a new batch with an id from crypto/rand. Those of the
	// tasks in except are left where they are.
	ClaimSegments(ctx context.Context, now time.Time, lease time.Duration, n int, except ...dap.TaskID) ([]*SegmentJob, error)
	// SaveSent records what is about to be sent, before the first byte leaves, and extends the lease to expires if that is
	// later. Again with the same Step and Digest is harmless, and so is the next Step with the answer to the one before;
	// anything else is ErrDifferent, or ErrBusy where the job of that Location is Shared.
	SaveSent(ctx context.Context, j *SegmentJob, s *Sent, expires time.Time) error
	// Shared says whether another segment that waits is past the first step of the job of that location: segments of the same
	// reports make the same job, and one of them alone may go on with it.
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

	// --- replay protection that was damaged

	// Damaged lists the damage to a task's replay protection, files that cannot be read
	// or are not what was written, as far as that is known. Ids that may be in them have
	// no answer: Seen and the commits that ask return ErrDamaged, and change nothing.
	Damaged(task dap.TaskID) []Damaged
	// CheckReplay reads a task's replay protection, every byte where it is not in use,
	// and what was damaged once more.
	CheckReplay(ctx context.Context, task dap.TaskID) error
	// Aggregated is Seen without what is damaged: it says which of the ids are known to
	// be aggregated.
	Aggregated(ctx context.Context, task dap.TaskID, ids []dap.ReportID) ([]bool, error)
	// AggregatedIDs lists the ids from low to high, both included, that are known to be
	// aggregated, ascending, n at most.
	AggregatedIDs(ctx context.Context, task dap.TaskID, low, high dap.ReportID, n int) ([]dap.ReportID, error)
	// Mend puts right the damage of that Sum, from the ids of its files in ascending
	// order. ErrMismatch if they are not those, which what the rows have of the files
	// proves; ErrNotFound if there is no such damage. The segments that wait may be
	// claimed at once.
	Mend(ctx context.Context, task dap.TaskID, sum [32]byte, ids []dap.ReportID) error
	// Hurry has the segments that wait claimable at once: what they waited for is there.
	Hurry(ctx context.Context, task dap.TaskID) error
	// Sent lists the segments whose reports were sent to the helper and are not
	// committed: the helper may have them.
	Sent(ctx context.Context, task dap.TaskID) ([]InFlight, error)
	// Answers hands over the responses of the aggregation jobs that are answered and not deleted.
	Answers(ctx context.Context, task dap.TaskID, fn func(response []byte) error) error

	// --- resources

	// Create finds the live resource of this body or makes it, Pending. made says which.
	// keep stores the body too. Where the peer chose the id, it finds the live resource
	// of that id; ErrTaken if that has another body. ErrFull if it would make more than
	// MaxPending collections of the task wait. A time-interval collection or share
	// request that overlaps a closed batch is ErrOverlap.
	Create(ctx context.Context, kind Kind, task dap.TaskID, id string, body []byte, keep bool, sel *Selection, now time.Time) (r *Resource, made bool, err error)
	Resource(ctx context.Context, kind Kind, task dap.TaskID, id string) (*Resource, error)
	// Delete removes the resource from sight; replay and collected marks stay. A draining collection's hold on its batch
	// goes. One that is frozen and not yet answered is ErrBusy: the helper may have closed the batch already, and without
	// the hold reports would enter a batch that it refuses.
	Delete(ctx context.Context, kind Kind, task dap.TaskID, id string) error
	// Withdraw is Delete of a collection that has no answer; one that is Ready is ErrBusy
	// too: its batch is never released again.
	Withdraw(ctx context.Context, task dap.TaskID, id string) error
	// PendingResources lists resources of a kind that wait for a worker, at most n: the oldest of each task, then the next
	// of each, so that no task hides another's behind its own.
	PendingResources(ctx context.Context, kind Kind, n int) ([]*Resource, error)
	// Fail ends a resource with a problem document that it answers from now on. Its hold
	// on a batch goes. Again is harmless; ErrDifferent if the resource is Ready. Of
	// refused requests for shares a task keeps the latest only.
	Fail(ctx context.Context, r *Resource, p *dap.Problem) error

	// --- helper: aggregation jobs

	// CommitJob commits a job's reports and makes the resource Ready with reply(verdict) as its response, in one
	// transaction. If the resource is Ready already it returns the stored response and calls nothing.
	CommitJob(ctx context.Context, r *Resource, c *Commit, reply func(verdict []dap.ReportError) ([]byte, error)) ([]byte, error)
	// Advance stores the reply of a later step (jobs of VDAFs with more than one round), likewise once: the current step
	// with the same digest gives the stored response, the next one commits c (which may be nil), all else is ErrStep.
	Advance(ctx context.Context, r *Resource, step uint16, digest [32]byte, c *Commit, reply func(verdict []dap.ReportError) ([]byte, error)) ([]byte, error)

	// UnfinishedJobs counts the jobs that were created before an instant and from whose stored bytes reports are still to be
	// opened: those that wait for a worker, and those that wait for the leader's next step.
	UnfinishedJobs(ctx context.Context, before time.Time) (n uint64, err error)

	// --- collections

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
	// Order says whether correlated noise may be drawn for a selection after what was released: nil, or a *[correlated.OrderError].
	// Release asks again.
	Order(ctx context.Context, task dap.TaskID, s *Series, sel Selection) error
	// Release closes the batch and stores the response, once; see Release. A resource that is Ready returns its stored
	// response without calling Build.
	Release(ctx context.Context, rel *Release) (response []byte, err error)
	// Ledger says how far the releases of a task are. It outlives the task's retirement.
	Ledger(ctx context.Context, task dap.TaskID) (Ledger, error)
	// LedgerAt is what Ledger said of the chain after a number of releases of a task, or
	// ErrNotFound where it has fewer. Nothing was released at length 0.
	LedgerAt(ctx context.Context, task dap.TaskID, length uint64) (releases.Digest, error)
	// Entry is the release of a task at a length, from 1, and the chain before it; or
	// ErrNotFound.
	Entry(ctx context.Context, task dap.TaskID, length uint64) (r releases.Release, before releases.Digest, err error)
	// Released is the length of the ledger over all tasks, and its digest: a store that
	// has the same length, or a greater one, has another digest there unless it made the
	// same releases.
	Released(ctx context.Context) (length uint64, total [32]byte, err error)

	// Kept is what a release left beside its resource; ErrNotFound if there is none.
	Kept(ctx context.Context, kind Kind, task dap.TaskID, id string) (*Kept, error)
	// Reseal replaces the response of a Ready resource and enters that in the ledger.
	// ErrDifferent if it is not Former any more, or its share is not sealed to From.
	Reseal(ctx context.Context, r *Reseal) error
	// Shares is how many noised shares of a task are kept, and how often one was sealed again.
	Shares(ctx context.Context, task dap.TaskID) (kept, resealed uint64, err error)
	// KeptUnder is how many noised shares lie under a data key.
	KeptUnder(ctx context.Context, serial uint64) (n uint64, err error)
	datakey.Book
	// ReleasesAfter lists the task's releases after that Seq, n at most, in the order in
	// which this store made them.
	ReleasesAfter(ctx context.Context, task dap.TaskID, after int64, n int) ([]Released, error)
	// Frozen lists the task's batches that are frozen and not yet released. One leaves
	// the list only for the ledger, where the helper has released it.
	Frozen(ctx context.Context, task dap.TaskID) ([]Released, error)

	// --- the store itself

	// KeysWereMade says whether NoteKeys was called in an earlier life.
	KeysWereMade() bool
	// NoteKeys remembers that the aggregator makes its HPKE keys by itself: without them
	// its directory is damaged.
	NoteKeys(ctx context.Context) error

	// --- the end of a task

	// Retire ends a task for good, at or after its End (else ErrBusy): from now on it takes no commit and has no resources
	// (ErrNotFound), and what is still in logs will count as dropped. It cannot be undone, for with Sweep goes what tells a
	// replay. Again is harmless.
	Retire(ctx context.Context, task dap.TaskID, now time.Time) error
	// Retired says whether Retire was called, ever.
	Retired(task dap.TaskID) bool
	// ClosedIn is the restore epoch in which the task was closed for good, for what it had
	// released is not known; 0 while it is open. Its stored results are still given out.
	ClosedIn(task dap.TaskID) uint32
	// Sweep erases at most n rows of a retired task, and the files that they name, and says whether there are more: segments
	// (reports that nobody finished count as dropped), replay runs, resources, batches with their shares. The task's counts
	// and the ledger of releases stay.
	Sweep(ctx context.Context, task dap.TaskID, n int) (more bool, err error)

	// --- watching

	AddRefused(ctx context.Context, task dap.TaskID, refused map[dap.ReportError]uint64) error
	Counts(ctx context.Context, task dap.TaskID) (*Counts, error)
	Batches(ctx context.Context, task dap.TaskID, n int) ([]BatchStatus, error)
	// Stuck lists work that is failing, with the reason last given.
	Stuck(ctx context.Context, task dap.TaskID) ([]Stuck, error)
	// Levels counts what waits and does not get on, over all tasks.
	Levels(ctx context.Context) (Levels, error)
	// LiveFiles are the names of all files that a row names.
	LiveFiles(ctx context.Context) ([]string, error)
	// Bury removes the files that lost their last row, in whatever life, and then forgets
	// them. The transaction that takes a file its last row notes that it is needless, and
	// only so does a file of the store ever go; a file that was named nowhere is not the
	// store's to judge.
	Bury(ctx context.Context) error
	// TakeBack puts segments in as work whose rows are gone: their reports count as
	// acknowledged, and those that were aggregated before turn out as replays. They may
	// come for a closed batch, or a retired task, as in CommitLog. It says how many
	// reports wait to be claimed. The files are whole and in their place; ErrNotFound if
	// a task is not known.
	TakeBack(ctx context.Context, segments []segment.Meta) (waiting uint64, err error)
	// Damages lists the logs that lost acknowledged reports, until ForgetDamage.
	Damages(ctx context.Context) ([]Damage, error)
	ForgetDamage(ctx context.Context, file string) error
	// SeenTime is the time that SaveTime saved last; zero if it never did.
	SeenTime(ctx context.Context) (time.Time, error)
	SaveTime(ctx context.Context, t time.Time) error
	// Copy copies the database between two transactions into a file beside it, whole and
	// by itself, and says of what. Transactions wait meanwhile.
	Copy(ctx context.Context, to string) (Copied, error)
	// Audit checks every invariant it knows and lists the violations, in words.
	Audit(ctx context.Context) ([]string, error)
	Close() error
}
