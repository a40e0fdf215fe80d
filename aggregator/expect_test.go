package aggregator

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dap"
)

func TestExpectation(t *testing.T) {
	day := Expectation{Reports: 100, Units: 24}
	for _, c := range []struct {
		e       Expectation
		reports uint64
		units   dap.Duration
		of      uint64
		held    bool
	}{
		{Expectation{}, math.MaxUint64, 1, 0, false},
		{Expectation{Reports: 10}, 20, 1, 10, false},
		{Expectation{Reports: 10}, 21, 1, 10, true},
		{Expectation{Reports: 10}, 21, 1000, 10, true},
		{day, 200, 1, 100, false},
		{day, 201, 24, 100, true},
		{day, 201, 25, 200, false},
		{day, 401, 48, 200, true},
		{day, 1, 0, 100, false},
		{Expectation{Reports: math.MaxUint64 / 2, Units: 1}, math.MaxUint64, 5, math.MaxUint64, false},
		{Expectation{Reports: math.MaxUint64, Units: 1}, math.MaxUint64, math.MaxUint64, math.MaxUint64, false},
	} {
		span := dap.Interval{Start: 7, Duration: c.units}
		if got := c.e.Of(span); got != c.of {
			t.Errorf("%+v over %d units: %d, want %d", c.e, c.units, got, c.of)
		}
		if got := c.e.Holds(c.reports, span); got != c.held {
			t.Errorf("%+v over %d units holds %d: %v", c.e, c.units, c.reports, got)
		}
	}
	for _, bad := range []Expectation{
		{Units: 1},
		{Reports: 1, HalfHonestEpsilon: -1},
		{Reports: 1, HalfHonestEpsilon: math.NaN()},
		{Reports: 1, HalfHonestEpsilon: math.Inf(1)},
		{Reports: 1, HalfHonestDelta: 1},
		{Reports: 1, HalfHonestDelta: math.NaN()},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v passes", bad)
		}
	}
}
