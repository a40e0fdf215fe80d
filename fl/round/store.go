package round

import (
	"context"
	"errors"
)

// Errors of a store to branch on.
var (
	// ErrHeld: another process has the journal, and lives.
	ErrHeld = errors.New("round: another process has the journal")
	// ErrLost: the journal is no longer this process's. Another one has taken it, or it is
	// not as this process left it; nothing was written, and nothing will be.
	ErrLost = errors.New("round: the journal is not this process's any more")
	// ErrAway: the store cannot be asked at present, and was tried until the caller's context
	// ended. Whether what was to be written stands, the next opening finds out.
	ErrAway = errors.New("round: the store is not to be had")
)

// A Store keeps the journal of one training, and files. One process has it at a time: that
// is made sure of when it is opened, and again by each write, so that a process which was
// taken for dead writes nothing when it wakes up.
//
// All that a call writes is durable when it returns nil; after an error it may stand or not,
// and only a new opening knows. Where the store cannot be asked for a while the calls
// wait as long as their context lasts, and fail with what wraps [ErrAway]; where it is lost
// they fail with [ErrLost]. Append is called by one goroutine at a time, and all else by
// any number.
type Store interface {
	// Replay hands each event of the journal to visit, in order, and begins a journal where
	// there is none. It is called once, before all else. An event is only valid during visit,
	// whose error ends it; a damaged journal wraps [ErrJournal].
	Replay(ctx context.Context, visit func(event []byte) error) error
	// Append adds an event, of at most 1 KiB, behind those that were replayed and appended. A
	// context that ends says nothing of whether it stands.
	Append(ctx context.Context, event []byte) error
	// Put keeps a file, of at most 32 MiB and 2 KiB, in the place of one of its name: the old
	// content is there or the new, never a mixture. A name is a directory and a number or
	// hash: "sums/3".
	Put(ctx context.Context, name string, content []byte) error
	// Get reads a file. It fails with what wraps [fs.ErrNotExist], and with [ErrJournal]
	// where the store cannot read what it kept.
	Get(ctx context.Context, name string) ([]byte, error)
	// Retain removes all files but those named.
	Retain(ctx context.Context, names map[string]bool) error
	// Lost is closed once the store is known to be lost; nil where that cannot be.
	Lost() <-chan struct{}
	// Close gives the journal up.
	Close() error
}
