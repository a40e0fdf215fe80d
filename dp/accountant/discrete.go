package accountant

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// discreteGaussian is the release of an integer sum with noise drawn exactly from N_Z(0,
// Sigma2) in each coordinate, as dp/noise draws it. The contribution is whole numbers.
type discreteGaussian struct {
	Sigma2       release.Rational
	Contribution release.Contribution
	// Honest is how many servers, or devices, each add such noise and keep it to
	// themselves: 1 (also if 0) unless more are trusted to. At most release.MaxDraws. The
	// noise of the others is post-processing.
	Honest int
}

const (
	latticeTheorem = "exact discrete Gaussian curve (Canonne, Kamath and Steinke 2020, theorem 7)"
	productTheorem = "exact curve of a product of discrete Gaussians (docs/proofs/discrete-gaussian-sums.md)"
)

func (g discreteGaussian) check() error {
	if g.Sigma2.Num == 0 || g.Sigma2.Den == 0 {
		return fmt.Errorf("%w: sigma^2 is %v, want a positive fraction", release.ErrParameter, g.Sigma2)
	}
	if s2 := g.Sigma2.Float(); s2 < release.MinVariance || s2 > release.MaxVariance {
		return parameter("sigma^2", s2, "1/4 to 2^62")
	}
	if g.Honest < 0 || g.Honest > release.MaxDraws {
		return parameter("number of honest draws", float64(g.Honest), "1 to 2^30")
	}
	return nil
}

func (g discreteGaussian) exact(n release.Neighbours, count float64) (curve, string, error) {
	if err := g.check(); err != nil {
		return nil, "", err
	}
	s, err := g.Contribution.Sensitivity(n)
	if err != nil {
		return nil, "", err
	}
	honest := float64(max(1, g.Honest))
	s2 := g.Sigma2.Float() * honest
	slop := 0.0 // of one coordinate's sum of honest draws
	if honest > 1 {
		slop = latticeSlop(honest, g.Sigma2.Float())
	}
	k := float64(s.Coordinates) * count
	if k > maxCount {
		return nil, "", parameter("coordinates times releases", k, "at most 2*10^12")
	}
	total := k * slop
	// zCDP holds for every shape: rho = L2^2/(2 s2) (same paper, theorem 14).
	rho := outward.Up(count * s.L2 * s.L2 / (2 * s2))
	zcdp := charge(func(e float64) (float64, float64) { return 0, zcdpDelta(rho, e) }, total)
	if g.Contribution.Anywhere() {
		if total > maxSlop {
			return nil, "", fmt.Errorf("%w: the noise of %v servers with sigma^2 = %v", release.ErrUnsupported, honest, g.Sigma2)
		}
		return zcdp, zcdpTheorem, nil
	}
	if s.Max != math.Trunc(s.Max) || s.Max > 1<<50 {
		return nil, "", parameter("contribution", s.Max, "a whole number of at most 2^50")
	}
	l := newLattice(k, s.Max, s2)
	theorem := productTheorem
	if k == 1 && honest == 1 {
		theorem = latticeTheorem
	}
	if l.slop+total > maxSlop {
		// Narrow noise on very many coordinates: the smooth distribution is no good
		// approximation there.
		if total > maxSlop {
			return nil, "", fmt.Errorf("%w: the noise of %v servers with sigma^2 = %v", release.ErrUnsupported, honest, g.Sigma2)
		}
		return zcdp, zcdpTheorem, nil
	}
	return charge(l.delta, total), theorem, nil
}

// maxSlop is where a distribution is no longer taken for another one.
const maxSlop = 0.1

// charge turns the curve of a pair N, N' into bounds for a pair P, Q that is within
// e^(+-total) of it, pointwise: P <= e^total N and Q >= e^-total N', so P - e^e Q <=
// e^total (N - e^(e - 2 total) N'); and back.
func charge(c curve, total float64) curve {
	if total == 0 {
		return c
	}
	return func(e float64) (lower, upper float64) {
		_, upper = c(max(0, e-2*total))
		upper += max(0, 2*total-e) // below 0 the curve rises by at most 1 - e^(e - 2 total)
		lower, _ = c(e + 2*total)
		return lower * math.Exp(-total), min(1, upper*math.Exp(total))
	}
}

// rho returns the zCDP parameter of one release, rounded up. It is defined for one honest
// server.
func (g discreteGaussian) rho(n release.Neighbours) (float64, error) {
	if err := g.check(); err != nil {
		return 0, err
	}
	if g.Honest > 1 {
		return 0, fmt.Errorf("%w: zCDP of a sum of discrete Gaussians", release.ErrUnsupported)
	}
	s, err := g.Contribution.Sensitivity(n)
	if err != nil {
		return 0, err
	}
	return outward.Up(s.L2 * s.L2 / (2 * g.Sigma2.Float())), nil
}

// CalibrateDiscreteGaussian returns the least sigma^2, rounded up by less than one part
// in 2^20, at which count releases are (epsilon, delta)-DP with the noise of one honest
// server, and the guarantee that it gives.
func CalibrateDiscreteGaussian(epsilon, delta float64, c release.Contribution, n release.Neighbours, count uint64) (release.Rational, release.Guarantee, error) {
	if err := checkDelta(delta); err != nil {
		return release.Rational{}, release.Guarantee{}, err
	}
	if !(epsilon > 0 && epsilon <= release.MaxEpsilon) {
		return release.Rational{}, release.Guarantee{}, parameter("epsilon", epsilon, "above 0 and at most 10^6")
	}
	if _, err := c.Sensitivity(n); err != nil {
		return release.Rational{}, release.Guarantee{}, err
	}
	event := func(r release.Rational) event {
		return selfCompose{discreteGaussian{Sigma2: r, Contribution: c}, count}
	}
	var failure error
	holds := func(r release.Rational) bool {
		f, _, err := discreteGaussian{Sigma2: r, Contribution: c}.exact(n, float64(count))
		if err != nil {
			failure = err
			return false
		}
		_, hi := f(epsilon)
		return hi <= delta
	}
	// Find the power of two below, then 20 more bits. Below 2^20 the denominator is 2^22.
	power := -2
	for ; !holds(dyadic(1<<22, power-22)); power++ {
		if failure != nil {
			return release.Rational{}, release.Guarantee{}, failure
		}
		if power == 61 {
			return release.Rational{}, release.Guarantee{}, release.ErrNoGuarantee
		}
	}
	r := dyadic(1<<22, power-22)
	if power > -2 {
		a, b := uint64(1)<<21, uint64(1)<<22 // in units of 2^(power-22): a fails, b holds
		for b-a > 1 {
			if m := (a + b) / 2; holds(dyadic(m, power-22)) {
				b = m
			} else {
				a = m
			}
		}
		r = dyadic(b, power-22)
	}
	g, err := Options{}.epsilon(event(r), delta, n)
	g.Epsilon = min(g.Epsilon, epsilon) // proved just now
	return r, g, err
}

// dyadic returns num 2^exponent in lowest terms; num is at most 2^22 and exponent at most
// 40.
func dyadic(num uint64, exponent int) release.Rational {
	r := release.Rational{Num: num, Den: 1}
	for ; exponent < 0; exponent++ {
		if r.Num%2 == 0 {
			r.Num /= 2
		} else {
			r.Den *= 2
		}
	}
	r.Num <<= exponent
	return r
}

// discreteLaplace is the release of an integer sum with noise of probability proportional
// to exp(-|y|/Scale) in each coordinate, as dp/noise draws it. The contribution is whole
// numbers.
type discreteLaplace struct {
	Scale        release.Rational
	Contribution release.Contribution
}

const (
	laplaceTheorem   = "exact discrete Laplace curve (Ghosh, Roughgarden and Sundararajan 2009)"
	responsesTheorem = "exact product of randomized responses, which the discrete Laplace mechanism is at distance 1"
)

func (d discreteLaplace) exact(n release.Neighbours, count float64) (curve, string, error) {
	if d.Scale.Num == 0 || d.Scale.Den == 0 {
		return nil, "", fmt.Errorf("%w: scale is %v, want a positive fraction", release.ErrParameter, d.Scale)
	}
	s, err := d.Contribution.Sensitivity(n)
	if err != nil {
		return nil, "", err
	}
	if s.Max != math.Trunc(s.Max) || s.Max > 1<<50 {
		return nil, "", parameter("contribution", s.Max, "a whole number of at most 2^50")
	}
	rate := float64(d.Scale.Den) / float64(d.Scale.Num)
	k := float64(s.Coordinates) * count
	if d.Contribution.Shape == release.ShapeSimplex {
		k = s.L1 / s.Max * count
		if s.Max > 1 {
			rr, err := newResponses(d.response(s), k)
			if err != nil {
				return nil, "", err
			}
			return func(e float64) (float64, float64) { _, hi := rr.delta(e); return 0, hi }, simplexTheorem, nil
		}
	}
	if k == 1 {
		return func(e float64) (float64, float64) { return discreteLaplaceDelta(rate, s.Max, e) }, laplaceTheorem, nil
	}
	rr, err := newResponses(outward.Above(s.Max*rate), k)
	if err != nil {
		return nil, "", err
	}
	if s.Max == 1 {
		return rr.delta, responsesTheorem, nil
	}
	return func(e float64) (float64, float64) { _, hi := rr.delta(e); return 0, hi }, kovTheorem, nil
}

const simplexTheorem = "Laplace noise on what adds up to a bound, as randomized response (docs/proofs/bounded-totals.md)"

// response is the loss of the randomized response that is at least as bad as this noise
// on a vector that adds up to Max.
func (d discreteLaplace) response(s release.Sensitivity) float64 {
	return outward.Above(s.Max * float64(d.Scale.Den) / float64(d.Scale.Num))
}

// discreteLaplaceDelta bounds delta(epsilon) for a shift d. The loss is (d - 2y) rate for
// 0 <= y <= d, so it exceeds epsilon for y <= j = ceil((d - epsilon/rate)/2) - 1, and
// delta = P(Y <= j) - e^epsilon P(Y <= j - d).
func discreteLaplaceDelta(rate, d, epsilon float64) (lower, upper float64) {
	if epsilon >= outward.Above(d*rate) {
		return 0, 0
	}
	j := math.Ceil((d-epsilon/rate)/2) - 1
	if j < 0 {
		j = 0 // only by rounding: epsilon is a hair below d rate
	}
	a := math.Exp(-rate)
	above := math.Exp(-rate*(j+1)) / (1 + a)
	below := math.Exp(epsilon-rate*(d-j)) / (1 + a)
	v := 1 - above - below
	return outward.Padded(max(0, v), 0, 3*outward.Off(1, epsilon, rate*d))
}
