package accountant

import (
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// zcdp is any release that is Rho-zero-concentrated DP for the relation asked about (Bun
// and Steinke 2016).
type zcdp struct{ Rho float64 }

const zcdpTheorem = "zCDP to approximate DP (Canonne, Kamath and Steinke 2020, proposition 12)"

func (z zcdp) exact(_ release.Neighbours, count float64) (curve, string, error) {
	if !(z.Rho >= 0) || math.IsInf(z.Rho, 1) {
		return nil, "", parameter("rho", z.Rho, "a number >= 0")
	}
	rho := outward.Up(z.Rho * count)
	return func(e float64) (float64, float64) { return 0, zcdpDelta(rho, e) }, zcdpTheorem, nil
}

// zcdpDelta returns the least delta that the conversion gives: for every order a > 1,
//
//	delta = exp((a-1)(a rho - epsilon)) (1-1/a)^a / (a-1).
//
// Its logarithm is convex in a; every a is valid, so the search may stop anywhere.
func zcdpDelta(rho, epsilon float64) float64 {
	if rho == 0 {
		return 0
	}
	ln := func(a float64) float64 {
		return (a-1)*(a*rho-epsilon) + a*math.Log1p(-1/a) - math.Log(a-1)
	}
	// With t = ln(a-1) the minimum lies at a-1 of the order of epsilon/(2 rho) or below.
	l := goldenMin(func(t float64) float64 { return ln(1 + math.Exp(t)) }, -40, math.Log(epsilon/(2*rho)+10/math.Sqrt(rho)+10))
	a := math.Exp(l) + 1
	v := ln(a)
	v += 3 * outward.Off(1, (a-1)*(a*rho+epsilon), l)
	return min(1, math.Exp(v))
}

// goldenMin returns a point near the minimum of a unimodal f on [a, b].
func goldenMin(f func(float64) float64, a, b float64) float64 {
	const r = 0.6180339887498949
	x, y := b-r*(b-a), a+r*(b-a)
	fx, fy := f(x), f(y)
	for range 80 {
		if fx < fy {
			b, y, fy = y, x, fx
			x = b - r*(b-a)
			fx = f(x)
		} else {
			a, x, fx = x, y, fy
			y = a + r*(b-a)
			fy = f(y)
		}
	}
	return (a + b) / 2
}

const simpleTheorem = "zCDP to approximate DP by the textbook's conversion (Bun and Steinke 2016, proposition 1.3)"

// simpleZCDP answers by rho + 2 sqrt(rho ln(1/delta)) or, the other way round,
// exp(-(epsilon - rho)^2/(4 rho)).
func simpleZCDP(rho float64, g release.Guarantee, wantEpsilon bool) (release.Guarantee, error) {
	if wantEpsilon {
		var err error
		g.Epsilon, err = SimpleZCDPEpsilon(rho, g.Delta)
		return g, err
	}
	over := g.Epsilon - rho - outward.Off(g.Epsilon, rho)
	switch {
	case !(over > 0):
		g.Delta = 1
	case rho == 0:
		g.Delta = 0
	default:
		g.Delta = min(1, math.Exp(-outward.Down(over*over/(4*rho)))+outward.Underflow)
	}
	return g, nil
}

// SimpleZCDPEpsilon returns rho + 2 sqrt(rho ln(1/delta)), rounded up: the textbook
// conversion (Bun and Steinke 2016, proposition 1.3), for comparison. Epsilon of a ZCDP
// event is never larger.
func SimpleZCDPEpsilon(rho, delta float64) (float64, error) {
	if err := checkDelta(delta); err != nil {
		return 0, err
	}
	if !(rho >= 0) || math.IsInf(rho, 1) {
		return 0, parameter("rho", rho, "a number >= 0")
	}
	epsilon := outward.Up(rho + 2*math.Sqrt(rho*-math.Log(delta)))
	if epsilon > release.MaxEpsilon {
		return 0, release.ErrNoGuarantee
	}
	return epsilon, nil
}
