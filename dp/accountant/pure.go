package accountant

import (
	"fmt"
	"math"
	"math/big"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// A ceiled event may know how large a privacy loss can be: releases that are each
// epsilon-DP with delta 0 never lose more than the sum of their epsilons, whatever a
// numerical method finds.
type ceiled interface {
	event
	// ceiling returns the largest loss there is between neighbours, rounded up; +infinity
	// where no bound is known. The event is one that some method has accepted, so its
	// parameters are in range.
	ceiling(n release.Neighbours) float64
}

const ceilingTheorem = "pure differential privacy of every release, added up (Dwork and Roth 2014, theorem 3.16)"

// ceiling adds the leaves up.
func ceiling(leaves []leaf, n release.Neighbours) float64 {
	sum := 0.0
	for _, l := range leaves {
		sum += float64(l.count) * ceilingOf(l.event, n)
	}
	return outward.Up(sum)
}

func ceilingOf(e event, n release.Neighbours) float64 {
	if c, ok := e.(ceiled); ok {
		return c.ceiling(n)
	}
	return math.Inf(1)
}

// laplaceCeiling is the L1 distance of neighbours in scales. More noise on top of one
// draw is post-processing.
func laplaceCeiling(scale float64, c release.Contribution, n release.Neighbours) float64 {
	s, err := c.Sensitivity(n)
	if err != nil {
		return math.Inf(1)
	}
	return outward.Up(s.L1 / scale)
}

func (l laplace) ceiling(n release.Neighbours) float64 {
	return laplaceCeiling(l.Scale, l.Contribution, n)
}

func (l laplaceSum) ceiling(n release.Neighbours) float64 {
	return laplaceCeiling(l.Scale, l.Contribution, n)
}

func (d discreteLaplace) ceiling(n release.Neighbours) float64 {
	return laplaceCeiling(d.Scale.Float(), d.Contribution, n)
}

func (d discreteLaplaceSum) ceiling(n release.Neighbours) float64 {
	return laplaceCeiling(d.Scale.Float(), d.Contribution, n)
}

func (r randomizedResponse) ceiling(release.Neighbours) float64 { return r.Epsilon0 }

func (a approxDP) ceiling(release.Neighbours) float64 {
	if a.Delta > 0 {
		return math.Inf(1)
	}
	return a.Epsilon
}

// To hide who sent which report is post-processing.
func (s shuffled) ceiling(n release.Neighbours) float64 {
	p, err := s.premise(n)
	if err != nil {
		return math.Inf(1)
	}
	return p.Epsilon0
}

// Where a person is there at all, one slot is another's report.
func (c checkedIn) ceiling(n release.Neighbours) float64 {
	p, err := c.Report.Premise()
	if err != nil {
		return math.Inf(1)
	}
	return sampledCeiling(p.Epsilon0, c.Rate)
}

func (r rappor) ceiling(n release.Neighbours) float64 { return float64(r.bits(n)) * r.Epsilon0 }

func (s selfCompose) ceiling(n release.Neighbours) float64 {
	return float64(s.Count) * ceilingOf(s.Event, n)
}

func (c composition) ceiling(n release.Neighbours) float64 {
	sum := 0.0
	for _, e := range c {
		sum += ceilingOf(e, n)
	}
	return sum
}

// The sampled pair is ((1-r) Q + r P, Q), whose ratio is at most 1 - r + r e^x one way
// and, since (1-r+r e^x)(1-r+r e^-x) >= 1, no more the other way.
func (s poissonSample) ceiling(n release.Neighbours) float64 {
	if n == release.ReplaceOne {
		return math.Inf(1)
	}
	return sampledCeiling(ceilingOf(s.Event, n), s.Rate)
}

func (s fixedSample) ceiling(n release.Neighbours) float64 {
	return sampledCeiling(ceilingOf(s.Event, n), s.Rate)
}

func sampledCeiling(x, rate float64) float64 {
	if x > 600 {
		return x
	}
	return min(x, outward.Up(math.Log1p(rate*math.Expm1(x))))
}

// The likelihood ratio is a mean over subsets of slots, each of Picks factors between
// e^-x and e^x.
func (a allocation) ceiling(n release.Neighbours) float64 {
	return float64(a.Picks) * ceilingOf(a.Event, n)
}

// below caps an answer at the ceiling of the leaves. Truth lies below both, so lower
// bounds stay.
func below(g release.Guarantee, most float64, wantEpsilon bool) release.Guarantee {
	switch {
	case wantEpsilon && most < g.Epsilon:
		g.Epsilon, g.EpsilonLower = most, min(g.EpsilonLower, most)
	case !wantEpsilon && g.Epsilon >= most && g.Delta > 0:
		g.Delta, g.DeltaLower = 0, 0
	default:
		return g
	}
	g.Method, g.Theorem = string(ClosedForm), ceilingTheorem
	return g
}

// pureEpsilon answers at a delta of 0: the largest losses of the releases, added up
// exactly. Nothing is taken off for a sample. It refuses all that is refused at other
// deltas.
func pureEpsilon(list []release.Release, n release.Neighbours) (release.Guarantee, error) {
	if err := checkNeighbours(n); err != nil {
		return release.Guarantee{}, err
	}
	if _, err := eventOf(list); err != nil {
		return release.Guarantee{}, err
	}
	terms, err := release.Terms(list, n)
	if err != nil {
		return release.Guarantee{}, err
	}
	sum := new(big.Rat)
	for _, t := range terms {
		if err := checkSampling(t.Rate); err != nil {
			return release.Guarantee{}, err
		}
		loss, ok := t.Loss()
		if !ok || t.Dummies != 0 || t.DummyRate != 0 { // a number of dummies may tell everything
			return release.Guarantee{}, fmt.Errorf("%w: at a delta of 0, which %v releases have not", release.ErrNoGuarantee, t.Family)
		}
		sum.Add(sum, loss.Mul(loss, new(big.Rat).SetUint64(t.Count)))
	}
	g := release.Guarantee{Epsilon: outward.Rat(sum), Neighbours: n, Method: string(ClosedForm), Theorem: ceilingTheorem}
	if g.Epsilon > release.MaxEpsilon {
		return release.Guarantee{}, release.ErrNoGuarantee
	}
	return g, nil
}

// purely is the answer by the ceiling alone, where there is one.
func purely(g release.Guarantee, most float64, wantEpsilon bool) (release.Guarantee, bool) {
	if wantEpsilon {
		g.Epsilon = math.Inf(1)
	} else {
		g.Delta = 1
	}
	g = below(g, most, wantEpsilon)
	return g, g.Method != "" && g.Epsilon <= release.MaxEpsilon
}

const laplaceCurve = "exact Laplace curve (Balle, Barthe and Gaboardi 2018, section 4)"

// exact knows one release: the loss is mu - 2x for 0 <= x <= mu and +-mu outside, so for
// epsilon < mu
//
//	delta = P(x < (mu - epsilon)/2) - e^epsilon Q(the same) = 1 - e^((epsilon - mu)/2).
func (l laplace) exact(n release.Neighbours, count float64) (curve, string, error) {
	if _, err := l.dominating(n); err != nil {
		return nil, "", err
	}
	if count != 1 {
		return nil, "", fmt.Errorf("%w: no formula for several Laplace releases", release.ErrUnsupported)
	}
	mu, err := l.mu(n)
	if err != nil {
		return nil, "", err
	}
	delta := func(mu, e float64) float64 { return max(0, -math.Expm1((e-mu)/2)) }
	return func(e float64) (lower, upper float64) {
		return outward.Down(delta(mu*(1-3*outward.Formula), e)), outward.Up(delta(mu*(1+outward.Formula), e))
	}, laplaceCurve, nil
}
