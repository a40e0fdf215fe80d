package task

import (
	"time"

	"github.com/starling-agg/starling/dap"
)

// forever is after every batch, within what time.Time can be compared and written as.
var forever = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// Stamped says whether a report may carry that time: in a recipe's task, the first unit
// of a round and no other.
func (t *Task) Stamped(at dap.Time) bool { return t.Calendar.First(at) == at }

// Due is when the batch of an interval may be released: the calendar's grace and the
// clock skew that reports are allowed after its end. It is zero, so always past, for
// tasks whose batches have no end to wait for.
func (t *Task) Due(batch dap.Interval, skew time.Duration) time.Time {
	if t.Calendar == nil || t.Mode() != dap.TimeInterval {
		return time.Time{}
	}
	end, ok := batch.End()
	if !ok {
		return forever
	}
	at, err := t.Precision().Begin(end)
	if err != nil {
		return forever
	}
	// not their sum, which may be more than a duration holds
	return at.Add(t.Calendar.Grace).Add(skew)
}

// Ended is the first unit of which views are released at a time, by the calendar's grace and
// the clock skew that reports are allowed: 0 for tasks without views. All before it is over.
func (t *Task) Ended(now time.Time, skew time.Duration) dap.Time {
	if t.Calendar == nil || t.Calendar.Views == nil {
		return 0
	}
	unit, err := t.Precision().At(now.Add(-skew).Add(-t.Calendar.Grace))
	if err != nil {
		return 0
	}
	return t.Calendar.Ended(unit)
}
