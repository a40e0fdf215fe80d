package recipe

import (
	"encoding/json"
	"math"

	"github.com/starling-agg/starling/dp/sketch"
)

// A Cell is a number of a table, [GroupTable] or [Table]. A state leaves numbers out, which
// are NaN: all but the interval of a mean below detection, and all of a cell that is
// suppressed or none.
type Cell struct {
	State sketch.State
	// Estimate is unbiased, so it may be below 0, where the query does not say otherwise.
	Estimate float64
	// Stderr is the standard deviation of the noise in it; of what is not linear in the
	// sums, as means, to the first order.
	Stderr float64
	// Interval95 holds the exact number of the batch with probability 95 % or more, each
	// cell by itself.
	Interval95 [2]float64
}

// MarshalJSON leaves out what the state does.
func (c Cell) MarshalJSON() ([]byte, error) {
	out := struct {
		State      sketch.State `json:"state"`
		Estimate   *float64     `json:"estimate,omitempty"`
		Stderr     *float64     `json:"stderr,omitempty"`
		Interval95 *[2]float64  `json:"interval95,omitempty"`
	}{State: c.State}
	if c.Known() {
		out.Estimate, out.Stderr = &c.Estimate, &c.Stderr
	}
	if c.Bounded() {
		out.Interval95 = &c.Interval95
	}
	return json.Marshal(out)
}

// Known says whether there is an estimate.
func (c Cell) Known() bool { return !math.IsNaN(c.Estimate) }

// Bounded says whether there is an interval.
func (c Cell) Bounded() bool { return !math.IsNaN(c.Interval95[0]) }

// empty is a cell without numbers.
func empty(s sketch.State) Cell {
	n := math.NaN()
	return Cell{s, n, n, [2]float64{n, n}}
}

// cell is that of an estimate of a count, of that deviation, whose noise is of n's kind.
func cell(n Spread, count, deviation float64) Cell {
	return Cell{sketch.Detected(count, deviation, n.Deviations95()), count, deviation, interval(n, count, deviation)}
}

// interval is a 95 % interval of a whole number, from an estimate of that deviation, whose
// noise is of n's kind.
func interval(n Spread, x, deviation float64) [2]float64 {
	off := n.Deviations95() * deviation
	if off > 0 { // whole numbers lie beside what a density of that deviation covers
		off += .5
	}
	return [2]float64{x - off, x + off}
}

// deviation is that of n times the root of a variance whose unit is that of n.
func deviation(n Spread, variance float64) float64 {
	return n.Deviation * math.Sqrt(max(0, variance))
}
