package aggregator

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
)

// A Calendar says which batches of a recipe's task may be released, and when: those that
// its guarantee accounts for, see docs/released.md. Leader and helper each hold every
// release to it. In a leader-selected task it only says what times reports carry. A nil
// Calendar, for a task without a recipe, leaves all to DAP.
type Calendar struct {
	// Units is the length of a round, or of a slot of donation times, in units of the
	// task's time precision. Round n begins with unit n*Units, which all of its reports
	// carry. Required, at least 1.
	Units uint64
	// Alone says that a batch is exactly one round, since one person may be in several or
	// devices are sampled in secret. Else it is any number of whole rounds. Time-interval
	// tasks only.
	Alone bool
	// Grace is how long after its end nothing of a round is released.
	Grace time.Duration
	// Views are the spans that are released besides single rounds, each once; nil where there
	// are none. Only where Alone.
	Views *Views
}

// Views are wider granularities of a task; see [recipe.Views] and docs/released.md.
type Views struct {
	// Wider are spans rising, each a multiple of the one before. Required.
	Wider []View
	// Keep is for how many rounds after the end of a span of the widest view the batches in
	// it are released. Required, at least 1.
	Keep uint64
}

// A View is one granularity: of how many rounds a batch is, 2 or more, and what noise an
// aggregator draws for one.
type View struct {
	Rounds uint64
	Noise  noise.Sampler
}

func (v *Views) widest() uint64 { return v.Wider[len(v.Wider)-1].Rounds }

// Validate says whether a task can be held to the calendar.
func (c *Calendar) Validate(cfg *dap.TaskConfiguration) error {
	switch {
	case c.Units < 1:
		return errors.New("a round of no time")
	case c.Units > math.MaxInt64:
		return errors.New("a round without end")
	case c.Grace < 0:
		return errors.New("a negative grace")
	case c.Alone && cfg.BatchMode != dap.TimeInterval:
		return errors.New("leader-selected batches hold reports of any rounds: not where one person may be in several, or devices toss coins")
	case c.Views != nil:
		return c.Views.validate(c)
	}
	return nil
}

func (v *Views) validate(c *Calendar) error {
	before := uint64(1)
	for _, w := range v.Wider {
		if w.Rounds <= before || w.Rounds%before != 0 || w.Noise == nil {
			return fmt.Errorf("a view of %d rounds after one of %d: want a larger multiple, and noise", w.Rounds, before)
		}
		before = w.Rounds
	}
	if hi, _ := bits.Mul64(before+v.Keep, c.Units); len(v.Wider) == 0 || v.Keep < 1 || v.Keep > math.MaxUint32 || hi != 0 || !c.Alone {
		return errors.New("views that are none, have no end, or of rounds that are released together")
	}
	return nil
}

// View is the view of which an interval is a batch: of one round and no noise of its own
// where it is a round. It is false for all else, and for a calendar without views.
func (c *Calendar) View(asked dap.Interval) (View, bool) {
	if c == nil || c.Views == nil {
		return View{}, false
	}
	rounds, whole := asked.Split(c.Units)
	if !whole {
		return View{}, false
	}
	for _, v := range c.Views.Wider {
		if v.Rounds == rounds && uint64(asked.Start)%(c.Units*v.Rounds) == 0 {
			return v, true
		}
	}
	return View{Rounds: 1}, rounds == 1
}

// Spans are the views' lengths in units, the round's first; nil for a calendar without any.
func (c *Calendar) Spans() []uint64 {
	if c == nil || c.Views == nil {
		return nil
	}
	list := []uint64{c.Units}
	for _, v := range c.Views.Wider {
		list = append(list, c.Units*v.Rounds)
	}
	return list
}

// Ended is the first unit of which views are released where now is the unit that runs, grace
// over: 0 for a calendar without views. All before it is over.
func (c *Calendar) Ended(now dap.Time) dap.Time {
	if c == nil || c.Views == nil {
		return 0
	}
	kept := dap.Time(c.Units * c.Views.Keep)
	if now < kept {
		return 0
	}
	return (now - kept) - (now-kept)%dap.Time(c.Units*c.Views.widest())
}

// First is the unit that a report of time unit t carries.
func (c *Calendar) First(t dap.Time) dap.Time {
	if c == nil {
		return t
	}
	return t - t%dap.Time(c.Units)
}

// A BatchError is an interval that is no batch of a calendar.
type BatchError struct {
	Asked dap.Interval
	Calendar
}

func (e *BatchError) Error() string {
	if e.Alone {
		spans := ""
		for _, n := range e.Spans() {
			if n > e.Units {
				spans += fmt.Sprintf(", or %d from a multiple of %d on", n, n)
			}
		}
		return fmt.Sprintf("a batch of this task is exactly one round: %d units from a multiple of %d on%s, and nothing else is released", e.Units, e.Units, spans)
	}
	return fmt.Sprintf("a batch of this task is whole rounds: of %d units, from a multiple of %d on", e.Units, e.Units)
}

// Check is nil, or a *[BatchError] if nothing may be released of that interval, whenever
// it is asked for. It is the one place that says which intervals are batches.
func (c *Calendar) Check(asked dap.Interval) error {
	if c == nil {
		return nil
	}
	if _, ok := c.View(asked); ok {
		return nil
	}
	if rounds, whole := asked.Split(c.Units); !whole || c.Alone && rounds > 1 {
		return &BatchError{asked, *c}
	}
	return nil
}
