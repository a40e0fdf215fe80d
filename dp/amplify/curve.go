package amplify

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

// MaxCount is the largest number of users, slots or reports that is answered for.
const MaxCount = binomial.MaxCount

// largeEpsilon is the local epsilon beyond which no amplification is looked for: e^-100
// times MaxCount users is none.
const largeEpsilon = 100

// leastNormal is the least number with all its digits. Go's logarithm of a smaller one
// may be too large by 36 (on amd64).
const leastNormal = 0x1p-1022

func parameter(name string, value float64, want string) error {
	return &release.ParameterError{Parameter: name, Value: value, Want: want}
}

func checkLocal(epsilon0 float64) error {
	if !(epsilon0 > 0 && epsilon0 <= release.MaxEpsilon) {
		return parameter("local epsilon", epsilon0, "above 0 and at most 10^6")
	}
	return nil
}

func checkDelta(name string, delta float64) error {
	if !(delta >= leastNormal && delta < 1) {
		return parameter(name, delta, "between 0 and 1, both excluded, and 2^-1022 or more")
	}
	return nil
}

func checkCount(name string, n uint64) error {
	if n == 0 || n > MaxCount {
		return parameter(name, float64(n), "1 to 10^12")
	}
	return nil
}

func checkRate(name string, p float64) error {
	if !(p >= leastNormal && p <= 1) {
		return parameter(name, p, "2^-1022 to 1")
	}
	return nil
}

// A Curve is a proved bound on delta as a function of epsilon. Curves are immutable and
// may be shared.
type Curve struct {
	neighbours release.Neighbours
	theorem    string
	// upper bounds delta(epsilon) from above, for every mechanism that the theorem is
	// about. It never rises.
	upper func(epsilon float64) float64
	// lower bounds it from below for one of them; nil if none is known.
	lower func(epsilon float64) float64
	// end is an epsilon that holds with delta = 0; +Inf if none does.
	end float64
	// term says to package certificate what the curve is of; its Family is 0 if that has
	// no word for it.
	term release.Term
}

// Neighbours is the relation that the curve is about.
func (c *Curve) Neighbours() release.Neighbours { return c.neighbours }

// Theorem names the result behind the curve.
func (c *Curve) Theorem() string { return c.theorem }

// Delta returns a delta that is proved at epsilon, rounded up. DeltaLower says that some
// mechanism the theorem covers has no smaller one.
func (c *Curve) Delta(epsilon float64) (release.Guarantee, error) {
	if !(epsilon >= 0 && epsilon <= release.MaxEpsilon) {
		return release.Guarantee{}, parameter("epsilon", epsilon, "0 to 10^6")
	}
	g := c.guarantee()
	g.Epsilon = epsilon
	g.DeltaLower, g.Delta = c.Bounds(epsilon)
	return g, nil
}

// Epsilon returns the least epsilon that is proved at delta, rounded up by less than one
// part in 10^9. EpsilonLower says that some mechanism the theorem covers has no smaller
// one. It returns release.ErrNoGuarantee if there is no finite epsilon.
func (c *Curve) Epsilon(delta float64) (release.Guarantee, error) {
	if err := checkDelta("delta", delta); err != nil {
		return release.Guarantee{}, err
	}
	g := c.guarantee()
	g.Delta = delta
	_, hi, err := crossing(c.at, delta, c.end)
	if err != nil {
		return release.Guarantee{}, err
	}
	g.Epsilon = hi
	if c.lower != nil {
		if lo, _, err := crossing(c.lower, delta, hi); err == nil {
			g.EpsilonLower = min(lo, hi)
		}
	}
	return g, nil
}

// Certify returns a certificate of what Epsilon proves at delta, within one part in a
// thousand, for package certificate to check. It returns release.ErrUnsupported for
// curves other than those of Shuffle, Allocation and CheckIn, for local epsilons outside
// 0.01 to 32, and for more than 2^20 answers.
func (c *Curve) Certify(delta float64) (*certificate.Certificate, error) {
	g, err := c.Epsilon(delta)
	if err != nil {
		return nil, err
	}
	t := c.term
	t.Count, t.Rate = 1, 1
	t.Reports = min(t.Reports, release.MaxReports) // fewer prove less
	proof := &certificate.Certificate{Claim: certificate.Claim{Delta: delta, Neighbours: release.Neighbours(c.neighbours)}}
	for _, room := range []float64{3e-4, 1e-3} { // the checker counts in blocks
		t.Mu, t.Fail = outward.Widened(g.Epsilon, room)+certificate.Room, delta*(1-certificate.Room)
		proof.Epsilon, proof.Terms = outward.Widened(t.Mu, certificate.Room)+outward.Rounding, []release.Term{t}
		if err = proof.Check(); err == nil {
			return proof, nil
		}
	}
	return nil, fmt.Errorf("%w: no certificate was found: %w", release.ErrUnsupported, err)
}

// Bounds brackets delta at an epsilon from 0 on; lower is 0 where nothing is known, and
// else attained by some mechanism that the theorem covers.
func (c *Curve) Bounds(epsilon float64) (lower, upper float64) {
	upper = c.at(epsilon)
	if c.lower != nil {
		lower = min(upper, c.lower(epsilon))
	}
	return lower, upper
}

func (c *Curve) at(epsilon float64) float64 {
	if epsilon >= c.end {
		return 0
	}
	return min(1, c.upper(epsilon))
}

func (c *Curve) guarantee() release.Guarantee {
	return release.Guarantee{Neighbours: c.neighbours, Method: "closed-form", Theorem: c.theorem}
}

// crossing brackets where f falls to delta or below: f(lo) > delta (or lo = 0) and f(hi)
// <= delta. f(end) <= delta is taken for granted; an infinite end is searched for.
func crossing(f func(float64) float64, delta, end float64) (lo, hi float64, err error) {
	// g is what is above 0 before the crossing; its logarithm is nearly a parabola in
	// epsilon.
	g := func(e float64) float64 {
		if v := f(e); v > 0 {
			return math.Log(v / delta)
		}
		return math.Inf(-1)
	}
	glo := g(0)
	if glo <= 0 {
		return 0, 0, nil
	}
	ghi := math.Inf(-1)
	if hi = end; math.IsInf(end, 1) {
		for hi = 1; ; hi *= 2 {
			if ghi = g(hi); ghi <= 0 {
				break
			}
			if lo, glo = hi, ghi; hi > release.MaxEpsilon {
				return 0, 0, release.ErrNoGuarantee
			}
		}
	}
	for i := 0; i < 200 && hi-lo > 1e-10*hi; i++ {
		m := lo + (hi-lo)/2
		if i%3 != 2 && !math.IsInf(ghi, -1) { // two steps of the secant to each halving
			if s := lo + (hi-lo)*glo/(glo-ghi); s > lo && s < hi {
				w := 0.02 * (hi - lo)
				if i%3 == 1 {
					w = 1e-11 * hi
				}
				if m = s + w; i%6 >= 3 {
					m = s - w
				}
			}
		} else if math.IsInf(ghi, -1) && lo == 0 {
			m = hi / 16
		}
		if m <= lo || m >= hi {
			m = lo + (hi-lo)/2
		}
		if m <= lo || m >= hi {
			break
		}
		if v := g(m); v <= 0 {
			hi, ghi = m, v
		} else {
			lo, glo = m, v
		}
	}
	return lo, hi, nil
}

// PureDP is the curve of any epsilon-DP mechanism for the relation n: that of binary
// randomized response.
func PureDP(epsilon float64, n release.Neighbours) (*Curve, error) {
	if err := checkLocal(epsilon); err != nil {
		return nil, err
	}
	if n < release.AddRemove || n > release.ZeroOut {
		return nil, parameter("neighbours", float64(n), "AddRemove, ReplaceOne or ZeroOut")
	}
	// (e^e0 - e^e)/(1 + e^e0)
	f := func(e float64) float64 { return -math.Expm1(e-epsilon) / (1 + math.Exp(-epsilon)) }
	return &Curve{
		neighbours: n,
		theorem:    fmt.Sprintf("pure DP at epsilon %v (Kairouz, Oh and Viswanath 2015)", epsilon),
		end:        epsilon,
		upper:      func(e float64) float64 { return outward.Up(f(e)) + outward.Off(epsilon) },
		lower:      func(e float64) float64 { return max(0, outward.Down(f(e))-outward.Off(epsilon)) },
	}, nil
}
