package release

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
)

// TestAllowed asks at the instant at which a batch is due and a nanosecond before, also
// where grace and skew add up to more than a duration holds, and for intervals at the end
// of all times, which are never due.
func TestAllowed(t *testing.T) {
	const hour, forever = 3600, math.MaxInt64
	for name, c := range map[string]struct {
		calendar    aggregator.Calendar
		batch       dap.Interval
		skew        time.Duration
		never, last bool // whatever the clock says: no batch; not due in the year 9998
	}{
		"a unit":                 {aggregator.Calendar{Units: 1, Alone: true}, dap.Interval{Start: 480000, Duration: 1}, 0, false, false},
		"a round":                {aggregator.Calendar{Units: 24, Alone: true, Grace: 300 * time.Second}, dap.Interval{Start: 480000, Duration: 24}, 5 * time.Minute, false, false},
		"rounds":                 {aggregator.Calendar{Units: 24, Grace: time.Nanosecond}, dap.Interval{Start: 480000, Duration: 72}, time.Nanosecond, false, false},
		"two that are alone":     {aggregator.Calendar{Units: 24, Alone: true}, dap.Interval{Start: 480000, Duration: 48}, 0, true, false},
		"a part":                 {aggregator.Calendar{Units: 24}, dap.Interval{Start: 480000, Duration: 23}, 0, true, false},
		"a straddle":             {aggregator.Calendar{Units: 24}, dap.Interval{Start: 480012, Duration: 24}, 0, true, false},
		"nothing":                {aggregator.Calendar{Units: 24}, dap.Interval{Start: 480000}, 0, true, false},
		"grace and skew":         {aggregator.Calendar{Units: 24, Grace: forever}, dap.Interval{Start: 480000, Duration: 24}, forever, false, false},
		"beyond the calendar":    {aggregator.Calendar{Units: 1}, dap.Interval{Start: 1 << 40, Duration: 1}, 0, false, true},
		"seconds beyond 2^64":    {aggregator.Calendar{Units: 1 << 60}, dap.Interval{Start: 0, Duration: 1 << 60}, 0, false, true},
		"the last of all rounds": {aggregator.Calendar{Units: 1 << 32, Alone: true}, dap.Interval{Start: math.MaxUint64 - 1<<32 + 1, Duration: 1 << 32}, 0, false, true},
	} {
		w := &task.Task{Calendar: &c.calendar, Config: &dap.TaskConfiguration{BatchMode: dap.TimeInterval, TimePrecision: hour}}
		at := func(now time.Time) error { return Allowed(w, store.Selection{Interval: c.batch}, now, c.skew) }
		end := time.Date(9998, 1, 1, 0, 0, 0, 0, time.UTC)
		if !c.last {
			last, _ := c.batch.End()
			end = time.Unix(int64(last)*hour, 0).Add(c.calendar.Grace).Add(c.skew)
		}
		var batch *aggregator.BatchError
		var early *Early
		before, then := at(end.Add(-1)), at(end)
		switch {
		case c.never:
			if !errors.As(before, &batch) || !errors.As(then, &batch) {
				t.Errorf("%s: %v, %v", name, before, then)
			}
		case !errors.As(before, &early):
			t.Errorf("%s: before it is due: %v", name, before)
		case c.last && !errors.As(then, &early), !c.last && then != nil:
			t.Errorf("%s: when it is due: %v", name, then)
		}
	}
	w := &task.Task{Config: &dap.TaskConfiguration{BatchMode: dap.TimeInterval, TimePrecision: hour}}
	if err := Allowed(w, store.Selection{Interval: dap.Interval{Start: 1 << 40, Duration: 7}}, time.Time{}, forever); err != nil {
		t.Errorf("a task without a recipe: %v", err)
	}
}
