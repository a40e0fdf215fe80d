package agreement

import (
	"context"
	"strings"
	"time"
	"unicode"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// A ClosingState says how far a task is closed at an aggregator.
type ClosingState uint8

// States of a closing. A helper is in the state in which its leader says that it is, once
// the task is closed at both: so the two differ, and tell one another, until they do not.
const (
	Live     ClosingState = iota
	Draining              // closed, and the leader may yet bring jobs of reports that it has acknowledged
	Drained               // closed, and no report waits at the leader

	closings
)

// A Closing is what an aggregator says of a task that was closed: for good, so that a side
// which takes it back later is not heard.
type Closing struct {
	State ClosingState
	Why   string // for the other's operator; who closed it is not told
}

// maxWhy is the length of the longest reason, in bytes.
const maxWhy = 1024

// said is a text of the other's for a terminal: without what moves a cursor, and short.
func said(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if short := []rune(text); len(short) > 300 {
		text = string(short[:300])
	}
	return strings.TrimSpace(text)
}

// A Closer closes tasks here that the other aggregator has closed. The zero value closes
// none.
type Closer struct {
	// Close is called for a task that is live here, with the other's reason. Again is
	// harmless.
	Close func(ctx context.Context, task dap.TaskID, why string) error
	// Waits says whether acknowledged reports of a task wait, at a leader.
	Waits func(ctx context.Context, task dap.TaskID) (bool, error)
}

// closing is that of a task here, by what the store says of it.
func (b *Book) closing(ctx context.Context, l *leaf, state store.TaskState) (c Closing, err error) {
	if state.Closed.IsZero() {
		return Closing{}, nil
	}
	l.mu.Lock()
	c = Closing{Draining, l.why}
	drained := l.other == Drained
	l.mu.Unlock()
	if c.Why == "" {
		r, err := b.store.Registration(ctx, l.id)
		if err != nil {
			return c, err
		}
		if r.Closed != nil { // else the store closed it since
			c.Why = r.Closed.Why[:min(len(r.Closed.Why), maxWhy)]
		}
		l.mu.Lock()
		l.why = c.Why
		l.mu.Unlock()
	}
	if b.role == dap.RoleLeader {
		waits, err := b.closer.Waits(ctx, l.id)
		if err != nil {
			return c, err
		}
		drained = !waits
	}
	if drained {
		c.State = Drained
	}
	return c, nil
}

// heard notes what the other says of the closing of a task, and closes it here too where it
// is live. mine is what was said of it here.
func (b *Book) heard(ctx context.Context, l *leaf, mine, other Closing) error {
	l.mu.Lock()
	l.other = other.State
	l.mu.Unlock()
	if other.State == Live || mine.State != Live {
		return nil
	}
	why := said(other.Why)
	if why == "" {
		why = "no reason was given"
	}
	return b.closer.Close(ctx, l.id, why)
}

// Takes says whether a helper takes new jobs of a task that was closed then: until its leader
// says that no acknowledged report waits, and of a leader that says nothing, for as long as
// it may take to come with them.
func (b *Book) Takes(id dap.TaskID, closed, now time.Time, delay time.Duration) bool {
	l := b.page(id)
	if l == nil {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.other {
	case Live: // or nothing was said
		return now.Before(closed.Add(delay))
	case Drained:
		return false
	}
	return true
}
