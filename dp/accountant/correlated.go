package accountant

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// correlated is one participation of a device in a series of releases whose noise is
// correlated over rounds, as package dp/correlated draws it: everything that all releases
// of the series tell about that one contribution. A device's participations are at least
// as many rounds apart as the strategy has bands; selfCompose counts them. How many
// rounds there are, or how often others take part, does not matter.
type correlated struct {
	// Sigma2 is the variance parameter of the independent draws behind the noise, in
	// squared units of the sum.
	Sigma2 release.Rational
	// Norm2 is the squared norm of a column of the strategy, 1 or more
	// (correlated.Strategy.Norm2).
	Norm2 release.Rational
	// Contribution is whole numbers.
	Contribution release.Contribution
}

const correlatedTheorem = "zCDP of banded correlated noise (docs/proofs/correlated-noise.md), to approximate DP (Canonne, Kamath and Steinke 2020, " +
	"proposition 12)"

func (correlated) event() {}

// rho returns the zCDP parameter of one participation, Norm2 L2^2/(2 Sigma2), rounded up.
func (c correlated) rho(n release.Neighbours) (float64, error) {
	for _, x := range []release.Rational{c.Sigma2, c.Norm2} {
		if x.Num == 0 || x.Den == 0 {
			return 0, fmt.Errorf("%w: sigma^2 is %v and the squared norm %v, want positive fractions", release.ErrParameter, c.Sigma2, c.Norm2)
		}
	}
	if s2 := c.Sigma2.Float(); s2 < 0x1p-34 || s2 > release.MaxVariance {
		return 0, parameter("sigma^2", s2, "2^-34 to 2^62")
	}
	if c.Norm2.Num < c.Norm2.Den {
		return 0, parameter("squared norm of the strategy", c.Norm2.Float(), "1 or more")
	}
	s, err := c.Contribution.Sensitivity(n)
	if err != nil {
		return 0, err
	}
	if s.Max != math.Trunc(s.Max) && c.Contribution.Shape != release.ShapeBall {
		return 0, parameter("contribution", s.Max, "a whole number")
	}
	return outward.Up(c.Norm2.Float() * s.L2 * s.L2 / (2 * c.Sigma2.Float())), nil
}

func (c correlated) exact(n release.Neighbours, count float64) (curve, string, error) {
	rho, err := c.rho(n)
	if err != nil {
		return nil, "", err
	}
	f, _, err := zcdp{rho}.exact(n, count)
	return f, correlatedTheorem, err
}

func (c correlated) divergence(n release.Neighbours) (func(float64) float64, error) {
	rho, err := c.rho(n)
	return func(a float64) float64 { return a * rho }, err
}

// CalibrateCorrelated returns the least Sigma2, rounded up by less than one part in 2^20,
// at which count participations are (epsilon, delta)-DP, and the guarantee that it gives.
func CalibrateCorrelated(epsilon, delta float64, norm2 release.Rational, c release.Contribution, n release.Neighbours, count uint64) (release.Rational, release.Guarantee, error) {
	if err := checkDelta(delta); err != nil {
		return release.Rational{}, release.Guarantee{}, err
	}
	if !(epsilon > 0 && epsilon <= release.MaxEpsilon) {
		return release.Rational{}, release.Guarantee{}, parameter("epsilon", epsilon, "above 0 and at most 10^6")
	}
	if count == 0 || count > maxCount {
		return release.Rational{}, release.Guarantee{}, parameter("number of participations", float64(count), "1 to 2*10^12")
	}
	at := func(r release.Rational) correlated { return correlated{Sigma2: r, Norm2: norm2, Contribution: c} }
	one, err := at(release.Rational{Num: 1, Den: 1}).rho(n)
	if err != nil {
		return release.Rational{}, release.Guarantee{}, err
	}
	// Every rho falls as 1/sigma^2; the least sigma^2 is one/rho for the largest rho that
	// holds.
	sigma, err := leastSigma(func(sigma float64) bool {
		return zcdpDelta(outward.Up(one*float64(count)/(sigma*sigma)), epsilon) <= delta
	})
	if err != nil {
		return release.Rational{}, release.Guarantee{}, err
	}
	frac, exponent := math.Frexp(outward.Up(sigma * sigma))
	if exponent > 60 || exponent < -16 {
		return release.Rational{}, release.Guarantee{}, release.ErrNoGuarantee
	}
	r := dyadic(uint64(math.Ceil(frac*(1<<21))), exponent-21)
	g, err := Options{}.epsilon(selfCompose{at(r), count}, delta, n)
	g.Epsilon = min(g.Epsilon, epsilon) // proved just now
	return r, g, err
}
