package round

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/recipe"
)

// Status is how far a training is.
type Status struct {
	Recipe  recipe.ID    `json:"recipe"`
	Session session.Hash `json:"session"`
	Of      uint32       `json:"of"`        // rounds at most
	Begun   int          `json:"announced"` // that were announced
	Stepped int          `json:"stepped"`   // that the model was stepped with
	Skipped int          `json:"skipped"`   // of which nothing was released
	Clip    float64      `json:"clip"`      // norm of the next model
	Ended   string       `json:"ended,omitempty"`
	Rounds  []Round      `json:"rounds"`
}

// Round is how far one round is.
type Round struct {
	Index   uint32       `json:"index"`
	Round   uint64       `json:"round"`
	Begin   string       `json:"begin"` // RFC 3339
	End     string       `json:"end"`
	State   string       `json:"state"` // announced, collected or skipped
	Reason  string       `json:"reason,omitempty"`
	Reports uint64       `json:"reports"`
	Stepped bool         `json:"stepped"`
	Model   session.Hash `json:"model"`
}

func (c *Controller) round(r *record) Round {
	s := Round{Index: r.Index, Round: r.Announcement.Round, State: r.State.String(), Reason: r.Reason.String(), Reports: r.Reports, Stepped: r.stepped, Model: r.Model}
	if begin, err := c.time(r.Announcement.Round); err == nil {
		s.Begin, s.End = begin.UTC().Format(timeForm), begin.Add(length(c.o.Recipe)).UTC().Format(timeForm)
	}
	return s
}

// readTime is how long somebody who asks how far the training is waits for the store.
const readTime = 10 * time.Second

func reading() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), readTime)
}

const timeForm = "2006-01-02T15:04:05Z07:00"

// Status says how far the training is.
func (c *Controller) Status() (*Status, error) {
	ctx, cancel := reading()
	defer cancel()
	t, err := c.training(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &Status{Recipe: c.o.Session.Recipe, Session: c.hash, Of: c.o.Session.Terms.Rounds, Begun: len(c.book.rounds), Clip: t.clip, Ended: c.ended, Rounds: []Round{}}
	for i := range c.book.rounds {
		r := c.round(&c.book.rounds[i])
		s.Rounds = append(s.Rounds, r)
		switch {
		case r.State == Skipped.String():
			s.Skipped++
		case r.Stepped:
			s.Stepped++
		}
	}
	return s, nil
}

// Round is how far a round is, by its index. It fails with [ErrNone].
func (c *Controller) Round(index uint32) (Round, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.book.at(index)
	if r == nil {
		return Round{}, ErrNone
	}
	return c.round(r), nil
}

// Mean is the mean update of a round, by its index: of the planned cohort, noise included.
// It fails with [ErrNone] where there is none, yet or any more.
func (c *Controller) Mean(index uint32) ([]float32, error) {
	c.mu.Lock()
	r := c.book.at(index)
	if r == nil || r.State != Collected {
		c.mu.Unlock()
		return nil, ErrNone
	}
	of := *r
	c.mu.Unlock()
	ctx, cancel := reading()
	defer cancel()
	mean := make([]float64, c.o.Session.Terms.Dimension())
	if _, err := c.mean(ctx, mean, &of); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: it was kept for a while only", ErrNone)
	} else if err != nil {
		return nil, err
	}
	return narrow(mean), nil
}

// Parameters are those of the newest model, whether it is announced or not, and the
// clipping norm that goes with it.
func (c *Controller) Parameters() (parameters []float32, clip float64, err error) {
	ctx, cancel := reading()
	defer cancel()
	t, err := c.training(ctx)
	if err != nil {
		return nil, 0, err
	}
	return narrow(t.parameters), t.clip, nil
}

// Average is the mean of the models after the last steps ([Options.Average]). It fails with
// [ErrNone] where there was no such step yet.
func (c *Controller) Average() ([]float32, error) {
	ctx, cancel := reading()
	defer cancel()
	t, err := c.training(ctx)
	if err != nil {
		return nil, err
	}
	if t.averaged == 0 {
		return nil, fmt.Errorf("%w of those that are averaged", ErrNone)
	}
	return narrow(t.mean), nil
}

func narrow(list []float64) []float32 {
	out := make([]float32, len(list))
	for i, x := range list {
		out[i] = float32(x)
	}
	return out
}

// Session is the session's bytes.
func (c *Controller) Session() []byte { return c.bytes }

// Announcement is the newest announcement that is published; nil before the first.
func (c *Controller) Announcement() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shown
}

// Model is the blob of a model that was announced, as long as it is kept. It fails with
// [ErrNone].
func (c *Controller) Model(h session.Hash) ([]byte, error) {
	c.mu.Lock()
	found, newest := false, []byte(nil)
	for i := range c.book.rounds {
		found = found || c.book.rounds[i].Model == h
	}
	if c.blobName == h {
		newest = c.blob
	}
	c.mu.Unlock()
	switch {
	case !found:
		return nil, ErrNone
	case newest != nil:
		return newest, nil
	}
	ctx, cancel := reading()
	defer cancel()
	b, err := c.read(ctx, modelsDir, h)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	return b, err
}
