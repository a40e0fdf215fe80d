package round

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/wire"
)

// ErrJournal is wrapped by what is wrong with a journal or with a file that it names.
var ErrJournal = errors.New("round: damaged")

// Kinds of events. An event is { uint8 kind; } and what follows of it, to the end of the
// record.
const (
	created   = 1 // { opaque session[32], state[32]; uint32 batch; }
	announced = 2 // an announcement
	collected = 3 // { uint32 index; uint64 reports; opaque sum[32]; }
	skipped   = 4 // { uint32 index; uint8 why; uint64 reports; }
	stepped   = 5 // { uint32 first, last; opaque state[32]; }
	given     = 6 // { opaque state[32]; }, of a model that comes from outside
)

// An event is one record of the journal; which fields it has, its kind says.
type event struct {
	kind        uint8
	session     session.Hash
	state       session.Hash
	batch       uint32
	announced   session.Announcement
	index, last uint32
	reports     uint64
	sum         session.Hash
	why         uint8
}

func (e *event) code(c *wire.Coder) {
	c.Uint8(&e.kind, "kind")
	switch e.kind {
	case created:
		c.Fixed(e.session[:], "session")
		c.Fixed(e.state[:], "state")
		c.Uint32(&e.batch, "batch")
	case announced:
		b := []byte(nil)
		if c.Writing() {
			b = e.announced.Append(nil)
		}
		if c.Rest(&b); !c.Writing() && c.Err() == nil {
			a, err := session.ReadAnnouncement(b)
			if err != nil {
				c.Abort(fmt.Errorf("%w: %w", ErrJournal, err))
				return
			}
			e.announced = *a
		}
	case collected:
		c.Uint32(&e.index, "index")
		c.Uint64(&e.reports, "reports")
		c.Fixed(e.sum[:], "sum")
	case skipped:
		c.Uint32(&e.index, "index")
		c.Uint8(&e.why, "reason")
		c.Check(Reason(e.why).known(), "reason is none")
		c.Uint64(&e.reports, "reports")
	case stepped:
		c.Uint32(&e.index, "first")
		c.Uint32(&e.last, "last")
		c.Fixed(e.state[:], "state")
	case given:
		c.Fixed(e.state[:], "state")
	default:
		c.Fail("an event of a kind that nobody knows")
	}
}

// apply moves what the journal says of the training on by one event, or says why that
// cannot have happened.
func (b *book) apply(e *event) error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: journal: "+format, append([]any{ErrJournal}, args...)...)
	}
	if (e.kind == created) != !b.created {
		return wrong("it begins with what it is about, and says that once")
	}
	switch e.kind {
	case created:
		if e.session != b.session {
			return fmt.Errorf("%w: it is of session %v, want %v: a training has a directory of its own", ErrJournal, e.session, b.session)
		}
		if e.batch < 1 {
			return wrong("batches of no round")
		}
		b.created, b.state, b.batch = true, e.state, e.batch
	case announced:
		a := e.announced
		if int(a.Index) != len(b.rounds) {
			return wrong("announcement %d after %d", a.Index, len(b.rounds))
		}
		if last := b.last(); last != nil && (a.Previous != last.Hash() || a.Round <= last.Round) {
			return wrong("announcement %d does not follow the one before it", a.Index)
		}
		b.rounds = append(b.rounds, record{Announcement: a})
	case collected, skipped:
		r := b.at(e.index)
		if r == nil || r.State != Announced {
			return wrong("round %d is collected, which is not announced, or was before", e.index)
		}
		r.Reports = e.reports
		if r.State, r.sum = Collected, e.sum; e.kind == skipped {
			r.State, r.Reason = Skipped, Reason(e.why)
		}
	case stepped:
		if int(e.index) != b.stepped || e.last < e.index || e.last-e.index >= b.batch {
			return wrong("a step of rounds %d to %d, and %d are stepped", e.index, e.last, b.stepped)
		}
		for i := e.index; i <= e.last; i++ {
			r := b.at(i)
			if r == nil || r.State != Collected && r.State != Skipped {
				return wrong("a step with round %d, which is not collected", i)
			}
			r.stepped = true
		}
		b.stepped, b.state = int(e.last)+1, e.state
	case given:
		b.state = e.state
	}
	return nil
}

// replay reads the journal, of which there may be none.
func (c *Controller) replay(ctx context.Context) error {
	return c.o.Store.Replay(ctx, func(payload []byte) error {
		e := new(event)
		if err := wire.Read(payload, ErrJournal, e.code); err != nil {
			return err
		}
		return c.book.apply(e)
	})
}

// write makes an event durable and then true.
func (c *Controller) write(ctx context.Context, e *event) error {
	b, err := wire.Append(nil, ErrJournal, e.code)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.o.Store.Append(ctx, b); err != nil {
		return fmt.Errorf("round: journal: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.book.apply(e)
}
