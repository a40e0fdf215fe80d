package store

import (
	"context"
	"time"

	"github.com/starling-agg/starling/dap"
)

// MaxPending is how many collections of one task may wait: a collector may ask for rounds
// long before they are over.
const MaxPending = 1024

// Kind tells resources apart that share one identity scheme.
type Kind uint8

const (
	KindAggregation Kind = iota + 1 // helper
	KindCollection                  // leader
	KindShare                       // helper
)

// A Resource is a DAP resource created by POST. Its id is HMAC(task, kind, generation,
// SHA-256(body)) under a key of the store, so an identical body finds the identical
// resource; generation counts deleted ones of that body, but for refused requests for a
// share. Where peers choose ids, one of another body under the same id is another
// resource's.
type Resource struct {
	ID       string // base64url
	Task     dap.TaskID
	Kind     Kind
	Body     []byte // stored for collections and deferred jobs; nil otherwise
	Digest   [32]byte
	State    ResourceState
	Step     uint16
	Response []byte       // when Ready
	Problem  *dap.Problem // when Failed
	Frozen   *Frozen      // collections: set by Freeze
	Created  time.Time
	// Again: an aggregation job of the same bytes had its answer and was deleted. This
	// one is a duplicate that came late; its reports are replays, also those that were
	// refused before for a reason that may have passed.
	Again bool
}

type ResourceState uint8

const (
	Pending ResourceState = iota // work under way or waiting for a worker
	Ready
	Failed
)

// Resources are what peers and collectors have created: aggregation jobs and requests for
// shares at a helper, collections at a leader.
type Resources interface {
	// Create finds the live resource of this body or makes it, Pending. made says which.
	// keep stores the body too. Where the peer chose the id, it finds the live resource
	// of that id; ErrTaken if that has another body, and ErrDeleted where a collection of
	// that id and body was deleted, or [Leader.Forgo] had the id: a request that comes late
	// would take a batch for somebody who does not ask for it any more. ErrFull if it would make more than
	// MaxPending collections of the task wait. A time-interval collection or share request
	// that overlaps a closed batch is ErrOverlap.
	Create(ctx context.Context, kind Kind, task dap.TaskID, id string, body []byte, keep bool, sel *Selection, now time.Time) (r *Resource, made bool, err error)
	Resource(ctx context.Context, kind Kind, task dap.TaskID, id string) (*Resource, error)
	// Delete removes the resource from sight; replay and collected marks stay. A draining
	// collection's hold on its batch goes. One that is frozen and not yet answered is
	// ErrBusy: the helper may have closed the batch already, and without the hold reports
	// would enter a batch that it refuses.
	Delete(ctx context.Context, kind Kind, task dap.TaskID, id string) error
	// PendingResources lists resources of a kind that wait for a worker, at most n: the
	// oldest of each task, then the next of each, so that no task hides another's behind
	// its own.
	PendingResources(ctx context.Context, kind Kind, n int) ([]*Resource, error)
	// Fail ends a resource with a problem document that it answers from now on. Its hold
	// on a batch goes. Again is harmless; ErrDifferent if the resource is Ready. Of
	// refused requests for shares a task keeps the latest only.
	Fail(ctx context.Context, r *Resource, p *dap.Problem) error
}
