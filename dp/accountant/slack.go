package accountant

import "math"

// Answers are computed in float64 and rounded outward. By how much, and why, is said here
// alone: a value of a formula by up and down, what goes into one by above and beneath,
// and a probability, of which both errors are known, by padded.

const (
	// slack bounds the relative error of a formula: a hundred operations and functions of
	// well-behaved arguments lose 100 2^-53, and this is ninety times that.
	slack = 1e-12
	// rounding bounds the relative error of a number that went through fewer than thirty
	// operations, of 2^-53 each.
	rounding = 4e-15
	// recurring bounds what each step of a sum or of a recurrence adds to the relative
	// error: eight operations.
	recurring = 1e-15
	// underflow bounds what a sum loses of terms that are too small for float64: 10^23
	// times the least of them.
	underflow = 1e-300
)

// up returns a bound from above for an x >= 0 that is the value of a formula.
func up(x float64) float64 { return x * (1 + slack) }

// down returns a bound from below.
func down(x float64) float64 { return x * (1 - slack) }

// off bounds the absolute error of a sum of parts that were rounded: where they cancel,
// it stays relative to the largest.
func off(parts ...float64) float64 {
	sum := 0.0
	for _, x := range parts {
		sum += math.Abs(x)
	}
	return rounding * sum
}

// above returns a bound from above for an x that was rounded on its way into a formula,
// as a loss or a threshold is.
func above(x float64) float64 { return x + off(x) }

// beneath returns a bound from below.
func beneath(x float64) float64 { return x - off(x) }

// summed bounds the relative error of a sum of n positive terms, each from the one before.
func summed(n float64) float64 { return slack + n*recurring }

// padded returns bounds on a probability that was computed as p, with a relative error of
// at most relative and an absolute one of at most absolute beside it.
func padded(p, relative, absolute float64) (lower, upper float64) {
	return max(0, p*(1-relative)-absolute), min(1, p*(1+relative)+absolute)
}
