package store

import (
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
	// Again: an aggregation job of the same bytes had its answer and was deleted. This one is a duplicate that came late;
	// its reports are replays, also those that were refused before for a reason that may have passed.
	Again bool
}

type ResourceState uint8

const (
	Pending ResourceState = iota // work under way or waiting for a worker
	Ready
	Failed
)
