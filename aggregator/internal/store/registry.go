package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/dap"
)

// ErrEnded: the task was closed or is retired, or a restore closed it; it never opens.
var ErrEnded = errors.New("store: task has ended")

// A Registration is how a task came to the aggregator, what it is made of, and how it was
// closed. It has no secret: Terms name files of them. But for Terms, Change and Closed
// nothing in it ever changes, until a task that is retired is swept, which takes Made and
// Terms away.
type Registration struct {
	ID     dap.TaskID
	Form   aggregator.Form
	Made   []byte
	Sum    [sha256.Size]byte // SHA-256 of Made
	Terms  []byte            // what this aggregator adds; the store compares it and does not read it
	First  [sha256.Size]byte // SHA-256 of the terms that it came with; the store says
	Tenant string            // empty for the aggregator's own tasks
	Source aggregator.Source
	By     string // the person, or the peer of a task that came in band
	Added  time.Time
	Begin  time.Time // of the task's window; zero: none
	End    time.Time // of its last report, grace included, without what clocks add; zero: never
	KEM    uint16    // that devices seal to; 0: whatever is offered
	Signed bool      // its recipe names signing keys
	Change uint64    // the number of its last change, in the order in which changes were committed
	Closed *Closing  // nil while it is live
}

// A Closing is who closed a task, when, and why.
type Closing struct {
	At      time.Time
	By, Why string
}

// Limits on the rows of the registry, in bytes.
const (
	maxMade  = 1 << 20
	maxTerms = 64 << 10
	maxWords = 1 << 10 // of Tenant, By and Why
)

// Validate says what is wrong with a registration that is to be made.
func (r *Registration) Validate() error {
	switch {
	case r.Form != aggregator.RecipeFile && r.Form != aggregator.Configuration:
		return fmt.Errorf("store: registration: unknown form %d", r.Form)
	case r.Source < aggregator.Imported || r.Source > aggregator.InBand:
		return fmt.Errorf("store: registration: unknown source %d", r.Source)
	case len(r.Made) == 0 || len(r.Made) > maxMade:
		return fmt.Errorf("store: registration: made of %d bytes, want 1 to %d", len(r.Made), maxMade)
	case CheckTerms(r.Terms) != nil:
		return CheckTerms(r.Terms)
	case r.Sum != sha256.Sum256(r.Made):
		return errors.New("store: registration: the digest is not that of the bytes")
	case len(r.Tenant) > maxWords || r.By == "" || len(r.By) > maxWords:
		return errors.New("store: registration: By is required, and Tenant and By have an end")
	case r.Source == aggregator.InBand && r.End.IsZero():
		return errors.New("store: registration: a task that comes in band has an end")
	case r.Added.IsZero() || r.Closed != nil || r.Change != 0 || r.First != [sha256.Size]byte{}:
		return errors.New("store: registration: it is new: Added is required, Closed, Change and First are the store's")
	}
	return nil
}

// Again says whether what is to be registered is there already. there is nil where the task
// is known and was not registered. It fails with [ErrDifferent] where the task came
// otherwise, and with [ErrEnded] where it has ended.
func (p *Provision) Again(there *Registration, ended bool) (done bool, err error) {
	switch {
	case there != nil && there.Sum != p.Sum:
		return false, fmt.Errorf("%w: the task was made of other bytes", ErrDifferent)
	case ended:
		return false, fmt.Errorf("%w: %v", ErrEnded, p.ID)
	case there == nil:
		return false, nil
	case there.Form != p.Form || there.Tenant != p.Tenant || !bytes.Equal(there.Terms, p.Terms):
		return false, fmt.Errorf("%w: the task has other terms", ErrDifferent)
	}
	return true, nil
}

// CheckTerms says what is wrong with terms by themselves.
func CheckTerms(terms []byte) error {
	if len(terms) == 0 || len(terms) > maxTerms {
		return fmt.Errorf("store: registration: terms of %d bytes, want 1 to %d", len(terms), maxTerms)
	}
	return nil
}

// Validate says what is wrong with a closing.
func (c *Closing) Validate() error {
	if c.At.IsZero() || c.By == "" || len(c.By) > maxWords || c.Why == "" || len(c.Why) > maxWords {
		return fmt.Errorf("store: closing: At, By and Why are required, and words have %d bytes at most", maxWords)
	}
	return nil
}

// A Provision is a task with its registration, of one id. The task's VDAF may be nil, until
// [Tasks.PutTask].
type Provision struct {
	Task *Task
	Registration
	Quota *Quota // what is left for By in band; nil bounds nothing
	Most  int    // tasks of the store, whoever added them, that may be live when this is Added; 0: any number
}

// A Quota bounds what one peer brings in band: it is counted in the transaction that adds a
// task, so that it holds for all replicas together and a restart forgets none.
type Quota struct {
	Now   time.Time
	Live  int       // tasks of By that are not closed, and have not ended now
	Since time.Time // and from here on
	Added int       // tasks that By added
}

// A FullError refuses a task that is beyond its [Quota], or one more than Most of its
// [Provision]; nothing has changed.
type FullError struct {
	Task dap.TaskID
	Most int       // of the store; 0: it is the peer's quota
	Live bool      // there are too many at one time; else too many came
	Free time.Time // when the oldest of the latter no longer counts
}

func (e *FullError) Error() string {
	if e.Most > 0 {
		return fmt.Sprintf("store: %d tasks are live, and no more may be", e.Most)
	}
	if e.Live {
		return "store: as many tasks of the peer are live as may be"
	}
	return "store: as many tasks of the peer came as may come in that time"
}

// A Registry says which tasks there are.
type Registry interface {
	// Amend gives a task other terms. ErrNotFound if it is not registered, ErrEnded if it
	// is closed, retired, or was closed by a restore.
	Amend(ctx context.Context, task dap.TaskID, terms []byte) error
	// Register provisions tasks and writes down how they came, all of them or none. A task
	// that is registered with the same bytes, terms and tenant is left as it is, whoever
	// adds it and however; made counts the others. ErrDifferent if a task is there
	// otherwise, also with another configuration; ErrEnded if it is closed, retired, or was
	// closed by a restore; *[FullError] if it is beyond its quota or one too many, which one
	// that is there is not.
	Register(ctx context.Context, tasks ...Provision) (made int, err error)
	// CloseTask closes a task for good. Again is harmless: the first closing holds, and is
	// returned. ErrNotFound if the task is not registered.
	CloseTask(ctx context.Context, task dap.TaskID, c Closing) (Closing, error)
	// Registration is that of a task, whole; ErrNotFound if there is none.
	Registration(ctx context.Context, task dap.TaskID) (*Registration, error)
	// Registrations lists at most n whose last change has a number above after, by that
	// number, without Made and Terms. None has come below a number that was listed, so that
	// who has read all up to one reads on from there; one that changed meanwhile comes
	// again.
	Registrations(ctx context.Context, after uint64, n int) ([]Registration, error)
}
