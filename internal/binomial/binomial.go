// Package binomial brackets sums over binomial distributions: probabilities, tails and
// excesses, each with what float64 can lose of it charged outwards. A count is a float64
// that holds a whole number below 2^53.
package binomial

import (
	"math"

	"github.com/starling-agg/starling/internal/outward"
)

// stirlingErrors[n] is ln n! - ln(sqrt(2 pi n) (n/e)^n).
var stirlingErrors = func() (t [16]float64) {
	for n := 1; n < len(t); n++ {
		x, f := float64(n), 1.0
		for k := 2.0; k <= x; k++ {
			f *= k // exact: 15! < 2^53
		}
		t[n] = math.Log(f) - (x+0.5)*math.Log(x) + x - math.Log(2*math.Pi)/2
	}
	return t
}()

// stirlingError returns ln n! - ln(sqrt(2 pi n) (n/e)^n) for a whole n >= 1; the series
// is off by less than 1e-15.
func stirlingError(n float64) float64 {
	if n < float64(len(stirlingErrors)) {
		return stirlingErrors[int(n)]
	}
	n2 := n * n
	return (1./12 - (1./360-(1./1260-(1./1680-1./1188/n2)/n2)/n2)/n2) / n
}

// deviance returns x ln(x/m) + m - x without cancellation (Loader, "Fast and accurate
// computation of binomial probabilities", 2000).
func deviance(x, m float64) float64 {
	if math.Abs(x-m) > 0.1*(x+m) {
		return x*math.Log(x/m) + m - x
	}
	v := (x - m) / (x + m)
	s := (x - m) * v
	term := 2 * x * v
	for j := 3.0; ; j += 2 {
		term *= v * v
		next := s + term/j
		if next == s {
			return s
		}
		s = next
	}
}

// PMF returns P(X = x) for X ~ Bin(n, p), q = 1-p, and a bound on its relative error. It
// may underflow to 0.
func PMF(x, n, p, q float64) (value, relative float64) {
	var ln float64
	switch {
	case x < 0 || x > n:
		return 0, 0
	case x == 0 && p < 0.5:
		ln = n * math.Log1p(-p)
	case x == 0:
		ln = n * math.Log(q)
	case x == n && q < 0.5:
		ln = n * math.Log1p(-q)
	case x == n:
		ln = n * math.Log(p)
	default:
		ln = stirlingError(n) - stirlingError(x) - stirlingError(n-x) - deviance(x, n*p) - deviance(n-x, n*q) +
			math.Log(n/(2*math.Pi*x*(n-x)))/2
	}
	// deviance has a relative error below 1e-14; an error of an ulp in the mean moves it
	// by an ulp of |x - mean|.
	return math.Exp(ln), 1e-13 + 2e-14*math.Abs(ln) + 2e-15*math.Abs(x-n*p)
}

// TailRatio brackets P(X >= t)/P(X = t) for X ~ Bin(n, p) and (n+1)p - 1 < t <= n, t >= 1.
// It is the continued fraction of DiDonato and Morris ("Significant digit computation of
// the incomplete beta function ratios", 1992, equation 9), whose elements are all positive
// here, so that consecutive convergents lie on either side of the limit.
func TailRatio(t, n, p, q float64) (lower, upper float64) {
	b := n - t + 1
	lambda := t*q - b*p + 1
	f := t * lambda / (t + 1)
	c, d := f, 0.0 // Lentz, modified
	before := f
	steps := 0.0
	for m := 1.0; m < b && m < 20000; m++ {
		den := t + 2*m - 1
		num := (t + m - 1) / den * ((n + m) / den) * m * (b - m) * p * p
		bm := m + m*(b-m)*p/den + (t+m)*(lambda+m*(1+q))/(den+2)
		d = 1 / (bm + num*d)
		c = bm + num/c
		before = f
		f *= c * d
		steps++
		if math.Abs(f-before) <= 1e-15*f {
			break
		}
	}
	if steps+1 >= b {
		before = f // the fraction has ended
	}
	rel := 1e-13 + 2e-15*steps
	lo, hi := t*q/max(f, before), t*q/min(f, before)
	return lo * (1 - rel), hi * (1 + rel)
}

// Tail brackets P(X >= t) for X ~ Bin(n, p), q = 1-p, and a whole t.
func Tail(t, n, p, q float64) (lower, upper float64) {
	switch {
	case t <= 0:
		return 1, 1
	case t > n:
		return 0, 0
	case t >= (n+1)*p-0.25: // one of t and n-t+1 always is, whatever rounding does
		g, rel := PMF(t, n, p, q)
		lo, hi := TailRatio(t, n, p, q)
		return g * lo * (1 - rel), min(1, g*hi*(1+rel)+1e-300)
	}
	lo, hi := Tail(n-t+1, n, q, p) // P(n-X >= n-t+1) = P(X < t)
	return max(0, 1-hi-1e-15), min(1, 1-lo+1e-15)
}

// A Sum adds floats with Neumaier's compensation.
type Sum struct{ s, c float64 }

// Add adds x.
func (a *Sum) Add(x float64) {
	t := a.s + x
	if math.Abs(a.s) >= math.Abs(x) {
		a.c += (a.s - t) + x
	} else {
		a.c += (x - t) + a.s
	}
	a.s = t
}

// Rough returns what was added without the compensation, for deciding where to stop.
func (a *Sum) Rough() float64 { return a.s }

// Value returns what was added.
func (a *Sum) Value() float64 { return a.s + a.c }

// Excess brackets E (X - xi)_+ for X ~ Bin(n, p), q = 1-p. All terms of the sum are
// positive. slip bounds the error of xi.
func Excess(xi, n, p, q, slip float64) (lower, upper float64) {
	first := max(0, math.Floor(xi)+1)
	if first > n {
		if xi-slip < n {
			g, _ := PMF(n, n, p, q)
			return 0, 2*g*slip + 1e-300
		}
		return 0, 0
	}
	if n*p*q > maxSummedVariance {
		return largeExcess(xi, n, p, q, slip)
	}
	start := max(first, math.Floor((n+1)*p))
	start = min(start, n)
	g0, rel := PMF(start, n, p, q)
	odds := p / q
	var total, mass Sum
	rest, steps := 1e-300, 0.0
	g := g0
	for x := start; ; x++ {
		total.Add(g * (x - xi))
		mass.Add(g)
		steps++
		if x >= n || g == 0 {
			break
		}
		r := (n - x) / (x + 1) * odds
		g *= r
		if r2 := (n - x - 1) / (x + 2) * odds; r2 < 1 {
			// The terms after this one fall faster than geometrically.
			left := g * ((x+1-xi)/(1-r2) + r2/((1-r2)*(1-r2)))
			if left <= 1e-15*total.s {
				rest += left
				break
			}
		}
	}
	g = g0
	for x := start; x > first; {
		g *= x / (n - x + 1) / odds
		x--
		total.Add(g * (x - xi))
		mass.Add(g)
		steps++
		if left := g * (x - xi) * (x - first); left <= 1e-17*total.s || g == 0 {
			rest += left
			break
		}
	}
	// A value of xi that is off moves the sum by its tail; the term before the first may
	// have been left out.
	edge, _ := PMF(first-1, n, p, q)
	off := slip * 2 * (mass.Value() + edge)
	rel += outward.Summed(steps)
	v := total.Value()
	return max(0, v*(1-rel)-off), v*(1+rel) + off + 2*rest
}

// maxSummedVariance is where excess goes over from sums of positive terms to differences.
const maxSummedVariance = 1 << 26

// largeExcess is excess for a large variance. With a = floor(xi)+1, g = P(X = a) and T =
// P(X >= a) it is g a q - (xi - n p) T, which loses a factor of about sigma in precision.
func largeExcess(xi, n, p, q, slip float64) (lower, upper float64) {
	mean := n * p
	slip += 2e-16 * mean
	if xi < mean {
		// E (X - xi)_+ = mean - xi + E (xi - X)_+.
		lo, hi := 0.0, 0.0
		if xi > 0 {
			lo, hi = largeExcess(n-xi, n, q, p, slip+2e-16*n)
		}
		return max(0, mean-xi-slip+lo), mean - xi + slip + hi
	}
	a := math.Floor(xi) + 1
	g, rel := PMF(a, n, p, q)
	tl, th := TailRatio(a, n, p, q)
	off := 1e-15*a*q + slip*2*(th+a*q/((n-a+1)*p))
	lower = g * (1 - rel) * max(0, a*q-(xi-mean)*th-off)
	upper = g*(1+rel)*(max(0, a*q-(xi-mean)*tl)+off) + 1e-300
	return lower, upper
}

// Radius returns a t such that a binomial of this variance is t or more above its mean,
// or below it, with probability at most miss each (Bernstein's inequality).
func Radius(variance, miss float64) float64 {
	l := -math.Log(miss)
	return math.Ceil(l/3+math.Sqrt(l*l/9+2*l*variance)) + 1
}

// MaxCount is the largest number of trials that is answered for.
const MaxCount = 1_000_000_000_000

// Fewest returns the largest b for which X ~ Bin(n, p) is below b with probability at most
// miss, where n is at most MaxCount and p and miss lie between 0 and 1.
func Fewest(n uint64, p, miss float64) uint64 {
	trials := float64(n)
	fits := func(b float64) bool { // P(X <= b-1) <= miss
		_, hi := Tail(trials-b+1, trials, 1-p, p)
		return hi <= miss
	}
	lo, hi := 0.0, trials+1 // fits(0) is P(X < 0) = 0; P(X <= n) = 1
	for hi-lo > 1 {
		if m := math.Floor(lo + (hi-lo)/2); fits(m) {
			lo = m
		} else {
			hi = m
		}
	}
	return uint64(lo)
}
