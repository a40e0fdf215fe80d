package aggregator

import (
	"errors"
	"math"
	"math/bits"

	"github.com/starling-agg/starling/dap"
)

// An Expectation is how many reports may come if nobody cheats. A batch with more than
// holdFactor times as many, in all or in one round of it, is held: it is not released,
// an alarm says so, and whoever asks for it is told to ask later, since DAP has no error
// for it. Raising the expectation and starting the aggregator again releases it. The zero
// value expects nothing and holds nothing. (Feldman et al., Samplable Anonymous
// Aggregation, section 4.8.)
type Expectation struct {
	// Reports is how many come at most in each Units of time, dummies included. 0 turns
	// the check off.
	Reports uint64
	// Units is a number of the task's time units. A batch may have the reports of as many
	// Units as its own reports' times span, rounded up: whole rounds, where the task has
	// a [Calendar]. 0 lets each batch have Reports, whatever time it spans.
	Units uint64
	// HalfHonestEpsilon and HalfHonestDelta are what is left to an honest person, at
	// least, if an attacker sent half of a batch; for the text of the alarm alone.
	// Optional; an epsilon of 0 means that nobody has computed it.
	HalfHonestEpsilon, HalfHonestDelta float64
}

// holdFactor is how many times the expected number of reports a batch may have. Two
// leaves at least half of a batch to honest people, while as many of them come as are
// expected.
const holdFactor = 2

// Validate refuses what nobody can mean.
func (e Expectation) Validate() error {
	switch {
	case e.Reports == 0 && e.Units != 0:
		return errors.New("aggregator: expectation: units without reports")
	case !(e.HalfHonestEpsilon >= 0) || math.IsInf(e.HalfHonestEpsilon, 0):
		return errors.New("aggregator: expectation: the half-honest epsilon is not a finite number of 0 or more")
	case !(e.HalfHonestDelta >= 0 && e.HalfHonestDelta < 1):
		return errors.New("aggregator: expectation: the half-honest delta is not in [0, 1)")
	}
	return nil
}

// Of is how many reports are expected at most of a batch whose reports' times span that
// interval.
func (e Expectation) Of(span dap.Interval) uint64 {
	if e.Units == 0 {
		return e.Reports
	}
	times := uint64(span.Duration) / e.Units
	if uint64(span.Duration)%e.Units != 0 {
		times++
	}
	return saturated(e.Reports, max(times, 1))
}

// HoldsRound says whether a batch is held of which one time unit has that many reports:
// one round, where the task has a [Calendar]. No unit has more than Units of them may
// have, however many the batch spans. Else whoever floods one round, and puts a report
// into another far away, would have the batch measured by all rounds between.
func (e Expectation) HoldsRound(reports uint64) bool {
	return e.Reports > 0 && reports > saturated(e.Reports, holdFactor)
}

// Holds says whether a batch of a number of reports is held.
func (e Expectation) Holds(reports uint64, span dap.Interval) bool {
	return e.Reports > 0 && reports > saturated(e.Of(span), holdFactor)
}

func saturated(a, b uint64) uint64 {
	if high, low := bits.Mul64(a, b); high == 0 {
		return low
	}
	return math.MaxUint64
}
