package store

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dap"
)

// maxViews is what a row's number of a view holds.
const maxViews = 255

// CheckViews refuses what are no views of a task.
func CheckViews(t *Task) error {
	if len(t.Views) == 0 {
		return nil
	}
	if t.Mode != dap.TimeInterval || len(t.Views) > maxViews {
		return errors.New("views of a leader-selected task, or too many")
	}
	before := uint64(1)
	for i, units := range t.Views {
		if units == 0 || units > math.MaxInt64 || i > 0 && (units <= before || units%before != 0) {
			return fmt.Errorf("views of %v units, of which each is to be a larger multiple of the one before", t.Views)
		}
		before = units
	}
	return nil
}

// ViewOf is the number of the view of which a run of units, both ends included, is a span.
func ViewOf(views []uint64, first, last uint64) (number int, ok bool) {
	for number, units := range views {
		if first%units == 0 && last-first == units-1 {
			return number, true
		}
	}
	return 0, false
}
