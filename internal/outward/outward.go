// Package outward rounds numbers to the safe side.
//
// Privacy losses are computed in float64 and rounded outward: a bound from above up, a
// bound from below down. This package alone says by how much, and why. Up and Down take
// the value of a formula, Above and Beneath a number on its way into one, Padded a
// probability of which both errors are known, and Widened a number known less well, by an
// error that its caller names. arch_test.go at the root refuses slack that is written
// anywhere else.
//
// Package dp/certificate has its own few lines: a device's check must be readable without
// the rest of this module.
package outward

import (
	"math"
	"math/big"
)

const (
	// Formula bounds the relative error of a formula: a hundred operations and functions
	// of well-behaved arguments lose 100 2^-53, and this is ninety times that.
	Formula = 1e-12
	// Rounding bounds the relative error of a number that went through fewer than thirty
	// operations, of 2^-53 each.
	Rounding = 4e-15
	// Step bounds what each step of a sum or of a recurrence adds to the relative error:
	// eight operations.
	Step = 1e-15
	// Underflow bounds what a sum loses of terms that are too small for float64: 10^23
	// times the least of them.
	Underflow = 1e-300
)

// Up returns a bound from above for an x >= 0 that is the value of a formula.
func Up(x float64) float64 { return x * (1 + Formula) }

// Down returns a bound from below.
func Down(x float64) float64 { return x * (1 - Formula) }

// Whole returns the least whole number that is at least x, for an x >= 0 that is the
// value of a formula: one that is whole but for rounding stands for that whole number.
func Whole(x float64) float64 { return math.Ceil(Down(x)) }

// Off bounds the absolute error of a sum of parts that were rounded: where they cancel,
// it stays relative to the largest.
func Off(parts ...float64) float64 {
	sum := 0.0
	for _, x := range parts {
		sum += math.Abs(x)
	}
	return Rounding * sum
}

// Above returns a bound from above for an x that was rounded on its way into a formula,
// as a loss or a threshold is.
func Above(x float64) float64 { return x + Off(x) }

// Beneath returns a bound from below.
func Beneath(x float64) float64 { return x - Off(x) }

// Summed bounds the relative error of a sum of n positive terms, each from the one before.
func Summed(n float64) float64 { return Formula + n*Step }

// Widened returns a bound from above for an x >= 0 with a relative error of at most
// relative.
func Widened(x, relative float64) float64 { return x * (1 + relative) }

// Padded returns bounds on a probability that was computed as p, with a relative error of
// at most relative and an absolute one of at most absolute beside it.
func Padded(p, relative, absolute float64) (lower, upper float64) {
	return max(0, p*(1-relative)-absolute), min(1, Widened(p, relative)+absolute)
}

// Rat returns the least float64 that is not below a rational number: +Inf beyond all that
// are finite.
func Rat(x *big.Rat) float64 {
	f, _ := x.Float64()
	if !math.IsInf(f, 1) && new(big.Rat).SetFloat64(f).Cmp(x) < 0 {
		f = math.Nextafter(f, math.Inf(1))
	}
	return f
}
