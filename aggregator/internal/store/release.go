package store

import (
	"context"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/vdaf"
)

// Frozen is a collection whose batch can no longer change: what the leader asks the
// helper for, and asks again after a crash.
type Frozen struct {
	Selection Selection
	Count     uint64
	Checksum  dap.Checksum
	Span      dap.Interval // tight span of report times, in whole batch buckets
	// Fullest is the most reports of any one batch bucket; 0 in leader-selected tasks,
	// where batch buckets are not kept apart.
	Fullest uint64
}

// A Release hands out one aggregate share for ever. Draw and then Build are called at
// most once per successful transaction, with the sum of the selected batches; what Build
// returns (noise added, sealed) is stored as the response in the transaction that closes
// the batch and debits the ledger, and what it keeps beside it. If the transaction fails
// nothing was released and both may run again.
type Release struct {
	Resource  string
	Task      dap.TaskID
	Kind      Kind
	Selection Selection
	Count     uint64 // expected; ErrMismatch where the store's own differ
	Checksum  dap.Checksum
	Debit     string // what the ledger records: mechanism and parameters, human readable
	// Sums seals the sums of batch buckets that are kept for other views; required for a task
	// that has some, where an engine has no shares under keys of its own.
	Sums Sums
	// Series is this release's part in noise that is correlated over releases; nil where
	// each has noise of its own.
	Series *Series
	// Draw returns the noise of this release alone for the sum, which it leaves as it is.
	// Nil where there is nothing to draw.
	Draw func(sum *vdaf.AggShare, frozen Frozen) (noise []int64, err error)
	// Build is given the noise that was drawn, or what became of it in Series. It does not
	// keep it.
	Build func(sum *vdaf.AggShare, frozen Frozen, noise []int64) (response []byte, kept *Kept, err error)
}

// Sums seal the sums of batch buckets under the data keys of their time, with aad that says
// whose they are, and open them. They write nothing through the store.
type Sums interface {
	SealSum(bucket dap.Time, aad, sum []byte) (key uint64, box []byte, err error)
	OpenSum(key uint64, aad, box []byte) (sum []byte, err error)
}

// Kept is a noised share that was released, for as long as its resource is there: it can
// be sealed again, equal in content, to another key of the collector's.
type Kept struct {
	Key   uint64   // the data key that Box is sealed under, by its serial
	Box   []byte   // the noised share
	To    [32]byte // SHA-256 of the collector's HPKE configuration that the response is sealed to
	Asked []byte   // the CollectionJobReq that the share is bound to
	Peer  string   // leader: the helper's resource of its share, where known
}

// A Reseal is a response that takes the place of another of the same content.
type Reseal struct {
	Task     dap.TaskID
	Kind     Kind
	Resource string
	Whose    Whose
	From, To [32]byte // Own: of the collector's configuration; Peers: of the helper's ciphertext
	Former   []byte   // the response so far
	Response []byte
	Now      time.Time
}

// Whose says which share of a response was sealed again.
type Whose uint8

const (
	Own   Whose = iota // this aggregator's
	Peers              // leader: the helper's
)

// Series is how the noise of a time-interval task's releases is correlated. Draws are
// then in units of 2^-k, one for each element. Release keeps what later releases need in
// the transaction that closes the batch, and refuses with a *[correlated.OrderError] what
// may not be drawn.
type Series struct {
	Rule correlated.Series
	// Units is the length of a round in units of time_precision, 1 or more.
	Units uint64
}

// Rounds are those of a run of time units, both ends included.
func (s *Series) Rounds(first, last uint64) correlated.Span {
	return correlated.Span{First: first / s.Units, Last: last / s.Units}
}

// A Ledger is how far the releases of a task are.
type Ledger struct {
	Length uint64
	// Chain digests them in the order in which this aggregator made them, with its
	// answers. It names one state of one store: one that was put back has forgotten it,
	// or has another at the same length.
	Chain releases.Digest
}

// Released is one release as the ledger has it, or one that was frozen to be released: the
// same at both aggregators.
type Released struct {
	Seq      int64  // of this store; 0 where it is frozen
	Batch    []byte // first and last unit of the interval, as uint64, or the batch id
	Count    uint64
	Checksum dap.Checksum
}

// Releases are the ledger and what was given out.
type Releases interface {
	// Order says whether correlated noise may be drawn for a selection after what was
	// released: nil, or a *[correlated.OrderError]. Release asks again.
	Order(ctx context.Context, task dap.TaskID, s *Series, sel Selection) error
	// Release closes the batch and stores the response, once; see Release. A resource
	// that is Ready returns its stored response without calling Build.
	Release(ctx context.Context, rel *Release) (response []byte, err error)
	// EndViews ends what a task with views has of batch buckets before a time: none of them
	// takes a report or is released any more, and their sums are destroyed. ErrBusy while a
	// collection holds one of them, and nothing has changed then. Again is harmless.
	EndViews(ctx context.Context, task dap.TaskID, before dap.Time) error
	// Viewed are the tasks with views that are not retired.
	Viewed(ctx context.Context) ([]dap.TaskID, error)
	// Ledger says how far the releases of a task are. It outlives the task's retirement.
	Ledger(ctx context.Context, task dap.TaskID) (Ledger, error)
	// LedgerAt is what Ledger said of the chain after a number of releases of a task, or
	// ErrNotFound where it has fewer. Nothing was released at length 0.
	LedgerAt(ctx context.Context, task dap.TaskID, length uint64) (releases.Digest, error)
	// ReleasesAfter lists the task's releases after that Seq, n at most, in the order in
	// which this store made them.
	ReleasesAfter(ctx context.Context, task dap.TaskID, after int64, n int) ([]Released, error)
	// Frozen lists the task's batches that are frozen and not yet released. One leaves
	// the list only for the ledger, where the helper has released it.
	Frozen(ctx context.Context, task dap.TaskID) ([]Released, error)
	// Kept is what a release left beside its resource; ErrNotFound if there is none.
	Kept(ctx context.Context, kind Kind, task dap.TaskID, id string) (*Kept, error)
	// Reseal replaces the response of a Ready resource and enters that in the ledger.
	// ErrDifferent if it is not Former any more, or its share is not sealed to From.
	Reseal(ctx context.Context, r *Reseal) error
	// KeptUnder is how many noised shares, and sums that are kept for views, lie under a data
	// key.
	KeptUnder(ctx context.Context, serial uint64) (n uint64, err error)
}
