package collector

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/recipe"
)

// Sampled is what was undone to get an estimate from a batch whose devices tossed coins
// or randomized their answers. It takes everybody who decided to have an answer.
type Sampled struct {
	// Devices is the estimated number of devices that decided, reporting or not: those
	// that Estimate is about.
	Devices float64 `json:"devices"`
	// Answers and Dummies are the estimated numbers of reports of either kind; together
	// they are the batch's reports.
	Answers float64 `json:"answers"`
	Dummies float64 `json:"dummies"`
	// Threshold is the number of reports below which nothing is released: MinBatch
	// answers and DummiesAllowed, as many dummies as may be among them.
	Threshold      uint64 `json:"threshold"`
	MinBatch       uint64 `json:"min_batch"`
	DummiesAllowed uint64 `json:"dummies_allowed"`
	// Baseline was subtracted from each released sum: what randomizers put there whatever
	// was answered. The rest was multiplied by Weight.
	Baseline float64 `json:"baseline"`
	Weight   float64 `json:"weight"`
}

// decides says whether what devices send differs from what they would answer.
func decides(r *recipe.Recipe) bool {
	return r.Sampled() || r.Randomized()
}

// estimate fills in a result of a recipe whose devices toss coins or randomize.
func (r *Result) estimate(of *recipe.Recipe) error {
	e, err := of.Estimate(r.Raw, r.ReportCount)
	if r.joined != nil {
		e, err = of.EstimateJoined(r.joined)
	}
	if err != nil {
		return fmt.Errorf("collector: %w", err)
	}
	unit := 1.0 // of an estimate, in those of the sum
	if of.Query.Averages() {
		// The number of reports goes up and down with the sum, so that the quotient is
		// surer than the sum is.
		unit = 1 / e.Devices
	}
	z := of.Blurred(r.ReportCount).Deviations95()
	r.Sampled = &Sampled{
		Devices: e.Devices, Answers: e.Answers, Dummies: math.Max(0, float64(r.ReportCount)-e.Answers),
		Threshold: of.Threshold(), MinBatch: of.MinBatch, DummiesAllowed: of.Threshold() - of.MinBatch,
		Baseline: e.Baseline, Weight: e.Weight,
	}
	n := len(e.Values) // of which there may be fewer than of sums
	r.Estimate, r.Stderr, r.Interval95 = make([]float64, n), make([]float64, n), make([][2]float64, n)
	for i, v := range e.Values {
		in := e.Interval(i, z)
		r.Estimate[i], r.Stderr[i] = v*unit, e.StdDev[i]*unit
		r.Interval95[i] = [2]float64{in[0] * unit, in[1] * unit}
	}
	return nil
}
