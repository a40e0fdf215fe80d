package aggregator

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/starling-agg/starling/dap"
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
}

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
	}
	return nil
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
		return fmt.Sprintf("a batch of this task is exactly one round: %d units from a multiple of %d on, and nothing else is released", e.Units, e.Units)
	}
	return fmt.Sprintf("a batch of this task is whole rounds: of %d units, from a multiple of %d on", e.Units, e.Units)
}

// Check is nil, or a *[BatchError] if nothing may be released of that interval, whenever
// it is asked for. It is the one place that says which intervals are batches.
func (c *Calendar) Check(asked dap.Interval) error {
	if c == nil {
		return nil
	}
	if rounds, whole := asked.Split(c.Units); !whole || c.Alone && rounds > 1 {
		return &BatchError{asked, *c}
	}
	return nil
}
