package accountant

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

func (laplace) event()            {}
func (randomizedResponse) event() {}
func (poissonSample) event()      {}

// laplace is the release of one number with Laplace noise of scale Scale.
type laplace struct {
	Scale        float64
	Contribution release.Contribution
}

func (l laplace) mu(n release.Neighbours) (float64, error) {
	if !finite(l.Scale) {
		return 0, parameter("scale", l.Scale, "a positive number")
	}
	s, err := l.Contribution.Sensitivity(n)
	if err != nil {
		return 0, err
	}
	if mu := s.Max / l.Scale; mu <= release.MaxLoss {
		return mu, nil
	}
	return 0, parameter("scale", l.Scale, "at least 1/500 of the contribution")
}

func (l laplace) dominating(n release.Neighbours) (dominance, error) {
	mu, err := l.mu(n)
	if err != nil {
		return dominance{}, err
	}
	if s, _ := l.Contribution.Sensitivity(n); s.Coordinates > 1 {
		return dominance{}, fmt.Errorf("%w: continuous Laplace noise on several coordinates; use DiscreteLaplace", release.ErrUnsupported)
	}
	return dominance{pair: laplacePair{mu}, symmetric: true, attained: true}, nil
}

// randomizedResponse is one answer out of K, the true one e^Epsilon0 times as likely as
// each other: Epsilon0-DP for ReplaceOne. K = 2 is the worst pair of all Epsilon0-DP
// mechanisms, which stands for an answer against none too.
type randomizedResponse struct {
	Epsilon0 float64
	K        uint64
}

func (r randomizedResponse) check() error {
	return release.Response{Epsilon0: r.Epsilon0, Answers: r.K}.Check()
}

// answers is how many there are, in the worst pair of the relation.
func (r randomizedResponse) answers(n release.Neighbours) uint64 {
	if n == release.ReplaceOne {
		return r.K
	}
	return 2
}

func (r randomizedResponse) exact(n release.Neighbours, count float64) (curve, string, error) {
	if err := r.check(); err != nil {
		return nil, "", err
	}
	if r.answers(n) > 2 {
		return nil, "", fmt.Errorf("%w: no formula for answers out of more than two", release.ErrUnsupported)
	}
	rr, err := newResponses(r.Epsilon0, count)
	if err != nil {
		return nil, "", err
	}
	return rr.delta, "exact product of randomized responses", nil
}

func (r randomizedResponse) dominating(n release.Neighbours) (dominance, error) {
	if err := r.check(); err != nil {
		return dominance{}, err
	}
	k := r.answers(n)
	return dominance{pair: responsePair(r.Epsilon0, float64(k)), symmetric: true, attained: k == r.K}, nil
}

func (a approxDP) dominating(release.Neighbours) (dominance, error) {
	if !(a.Epsilon >= 0 && a.Epsilon <= release.MaxLoss) {
		return dominance{}, parameter("epsilon", a.Epsilon, "0 to 500")
	}
	if !(a.Delta >= 0 && a.Delta < 1) {
		return dominance{}, parameter("delta", a.Delta, "0 or more and below 1")
	}
	return dominance{pair: approxPair(a.Epsilon, a.Delta), symmetric: true, theorem: kovTheorem}, nil
}

func (g gaussian) dominating(n release.Neighbours) (dominance, error) {
	mu, err := g.mu(n, 1)
	if err != nil {
		return dominance{}, err
	}
	return dominance{pair: normalPair{mu}, symmetric: true, attained: true}, nil
}

// maxAtoms bounds the outcomes of a discrete distribution, maxSummed those of one that is
// convolved.
const (
	maxAtoms  = 1 << 21
	maxSummed = 1 << 12
)

const summedTheorem = "distribution of the servers' discrete Gaussian noise, convolved"

func (g discreteGaussian) dominating(n release.Neighbours) (dominance, error) {
	if err := g.check(); err != nil {
		return dominance{}, err
	}
	s, err := g.Contribution.Sensitivity(n)
	if err != nil {
		return dominance{}, err
	}
	if g.Contribution.Anywhere() {
		return g.rounded(s)
	}
	if s.Coordinates > 1<<20 || s.Max > 1<<30 || s.Max != math.Trunc(s.Max) {
		return dominance{}, fmt.Errorf("%w: no privacy loss distribution for this use of discrete Gaussian noise", release.ErrUnsupported)
	}
	k := float64(s.Coordinates)
	s2 := g.Sigma2.Float()
	if g.Honest > 1 {
		// The sum of the servers' noise is a discrete Gaussian but for a factor that is
		// no more than computed masses are off.
		if slop := k * latticeSlop(float64(g.Honest), s2); slop > massError/2 {
			if k == 1 && 80*math.Sqrt(s2)*float64(g.Honest) <= maxSummed {
				return dominance{pair: summedPair(s2, g.Honest, s.Max), symmetric: true, attained: true, theorem: summedTheorem}, nil
			}
			return dominance{}, fmt.Errorf("%w: the noise of %d servers with sigma^2 = %v", release.ErrUnsupported, g.Honest, g.Sigma2)
		}
		s2 *= float64(g.Honest)
	}
	v := k * s2
	if 30*math.Sqrt(v)+2*k*s.Max > maxAtoms {
		return dominance{}, fmt.Errorf("%w: discrete Gaussian noise of this width has too many outcomes", release.ErrUnsupported)
	}
	l := newLattice(k, s.Max, s2)
	if l.slop > massError/2 {
		return dominance{}, fmt.Errorf("%w: narrow discrete Gaussian noise on many coordinates", release.ErrUnsupported)
	}
	if l.pmf == nil {
		l.pmf = gaussianPMF(v)
	}
	return dominance{pair: l.pair(), symmetric: true, attained: true}, nil
}

const (
	// roundingVariance is what is taken off a variance to tell discrete Gaussian noise
	// from continuous noise that is rounded by a discrete Gaussian of this variance, and
	// roundingSlop bounds ln of the factor between them, for one coordinate.
	roundingVariance = 4
	roundingSlop     = 1e-33

	roundedTheorem = "discrete Gaussian noise as rounded Gaussian noise (docs/proofs/rounded-gaussians.md)"
)

// rounded is the pair of a vector of bounded norm: that of continuous Gaussian noise of a
// little less variance, which knows no direction, at the largest distance.
func (g discreteGaussian) rounded(s release.Sensitivity) (dominance, error) {
	honest, per := float64(max(1, g.Honest)), g.Sigma2.Float()
	v := honest*per - roundingVariance
	if !(v >= roundingVariance) {
		return dominance{}, fmt.Errorf("%w: rounding of noise with sigma^2 = %v", release.ErrUnsupported, g.Sigma2)
	}
	slop := roundingSlop
	if honest > 1 {
		slop += latticeSlop(honest, per)
	}
	// Computed distributions may be off by twice massError. Half of that is taken, and
	// not more even if an allocation has all steps.
	if !(float64(s.Coordinates)*slop <= massError/2/maxSteps) {
		return dominance{}, fmt.Errorf("%w: a sum of %v draws with sigma^2 = %v on %d coordinates", release.ErrUnsupported, honest, g.Sigma2, s.Coordinates)
	}
	return dominance{pair: normalPair{outward.Up(s.L2 / math.Sqrt(v))}, symmetric: true, theorem: roundedTheorem}, nil
}

func (d discreteLaplace) dominating(n release.Neighbours) (dominance, error) {
	rate, s, err := laplaceRate(d.Scale, d.Contribution, n)
	if err != nil {
		return dominance{}, err
	}
	if d.Contribution.Shape == release.ShapeSimplex && s.L1 == s.Max {
		return dominance{pair: approxPair(d.response(s), 0), symmetric: true, theorem: simplexTheorem}, nil
	}
	if s.Coordinates > 1 || s.Max > maxAtoms || d.Contribution.Shape == release.ShapeBall {
		return dominance{}, fmt.Errorf("%w: no privacy loss distribution for discrete Laplace noise on several coordinates", release.ErrUnsupported)
	}
	return dominance{pair: discreteLaplacePair(rate, s.Max), symmetric: true, attained: true}, nil
}

// laplaceRate is one over the scale of discrete Laplace noise, beside what it has to hide.
func laplaceRate(scale release.Rational, c release.Contribution, n release.Neighbours) (rate float64, s release.Sensitivity, err error) {
	if scale.Num == 0 || scale.Den == 0 {
		return 0, s, fmt.Errorf("%w: scale is %v, want a positive fraction", release.ErrParameter, scale)
	}
	if s, err = c.Sensitivity(n); err != nil {
		return 0, s, err
	}
	rate = float64(scale.Den) / float64(scale.Num)
	if s.Max != math.Trunc(s.Max) || rate*s.Max > release.MaxLoss {
		return 0, s, parameter("contribution", s.Max, "a whole number, at most 500 scales")
	}
	return rate, s, nil
}

// poissonSample is a release about a random part of the records, each kept independently
// and secretly with probability Rate.
//
// If everyone else holds -C and one person +C, the sum and the exact count together
// single that person out, so the amplification is proved only where something hides the
// count, such as dummy reports, and is accounted as an event of its own: a
// release.CountedPoisson is refused.
type poissonSample struct {
	Event event
	Rate  float64
}

const poissonTheorem = "Poisson sampling (Zhu, Dong and Wang 2022, theorem 11)"

// exact knows one release: keeping a record with probability r turns the symmetric curve
// D of the release into
//
//	r D(ln(1 + (e^epsilon - 1)/r))                           when the record is removed,
//	(1 - a (1-r)) D(ln(a r/(1 - a (1-r)))), a = e^epsilon,   when it is added (0 once a (1-r) >= 1),
//
// by putting the mixture into the hockey-stick divergence.
func (s poissonSample) exact(n release.Neighbours, count float64) (curve, string, error) {
	d, err := s.dominating(n)
	if err != nil {
		return nil, "", err
	}
	if g, several := s.Event.(discreteGaussian); several && g.Honest > 1 {
		return nil, "", fmt.Errorf("%w: no formula as good as the distribution of several servers' noise", release.ErrUnsupported)
	}
	inner, ok := s.Event.(closed)
	if p, mixed := d.pair.(poisson); count != 1 || !ok || !mixed || p.rate != s.Rate {
		return nil, "", fmt.Errorf("%w: no formula for this sampled release", release.ErrUnsupported)
	}
	c, theorem, err := inner.exact(n, 1)
	if err != nil {
		return nil, "", err
	}
	r := s.Rate
	return func(e float64) (lower, upper float64) {
		x := unsampledLoss(e, r)
		lower, _ = c(x + 3*outward.Off(x))
		_, upper = c(x - 3*outward.Off(x))
		lower, upper = outward.Down(r*lower), outward.Up(r*upper)
		if rest := 1 - math.Exp(e)*(1-r); rest > 1e-9 {
			x := e + math.Log(r/rest)
			err := 3 * outward.Off(1, x, 1/rest)
			lo, _ := c(x + err)
			_, hi := c(max(0, x-err))
			lower = max(lower, outward.Down((rest-outward.Off(1))*lo))
			upper = max(upper, outward.Up((rest+outward.Off(1))*hi))
		} else if rest > -1e-9 {
			upper = max(upper, 2e-9) // rest times a delta of at most 1
		}
		return lower, min(1, upper)
	}, poissonTheorem + "; " + theorem, nil
}

func (s poissonSample) dominating(n release.Neighbours) (dominance, error) {
	if err := checkSampling(s.Rate); err != nil {
		return dominance{}, err
	}
	if n == release.ReplaceOne {
		g, ok := s.Event.(gaussian)
		if !ok {
			return dominance{}, fmt.Errorf("%w: Poisson sampling of %s for replace-one neighbours", release.ErrUnsupported, nameOf(s.Event))
		}
		mu, err := g.mu(release.AddRemove, 1)
		if err != nil {
			return dominance{}, err
		}
		// opposite records exist
		worst := g.Contribution.Shape == release.ShapeSigned || g.Contribution.Shape == release.ShapeBall
		return dominance{pair: normalReplace{mu, s.Rate}, symmetric: true, attained: worst, theorem: poissonTheorem}, nil
	}
	d, err := joint(s.Event, n)
	if err != nil {
		return dominance{}, err
	}
	if s.Rate == 1 {
		return d, nil
	}
	return d.sampled(s.Rate), nil
}

// sampled returns the pair of a release of which d is the pair, about a record that is
// kept with this probability.
func (d dominance) sampled(rate float64) dominance {
	out := dominance{pair: poisson{d.pair, rate}, attained: d.attained, slop: d.slop, theorem: poissonTheorem}
	if d.below != nil {
		out.below = poisson{d.below, rate}
	}
	if d.theorem != "" {
		out.theorem = d.theorem + "; " + poissonTheorem
	}
	return out
}
