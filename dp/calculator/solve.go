package calculator

import (
	"errors"
	"math"
	"sync"

	"github.com/starling-agg/starling/dp/release"
)

// solve finds the value of q.Solve, on the safe side, with the guarantee that it gives.
func (q *Question) solve() (trial, error) {
	switch q.Solve {
	case SolveSigma, SolveScale:
		return q.solveNoise()
	case SolveSampling:
		return q.solveSampling()
	}
	return q.solveSteps()
}

// A trial is the question at one value of what is looked for, the guarantee there, and
// ln(epsilon/wanted), at most 0 if it holds.
type trial struct {
	at, excess float64
	question   Question
	g          release.Guarantee
}

// searching is the effort of a trial: the upper bound is good to one part in 10^4 on grids
// on which the lower one is not yet.
var searching = effort{tolerance: 0.05}

// try returns the trial of the only release as it is at a value. A guarantee beyond what
// can be accounted for is too much, and so is one of noise so narrow that no theorem covers
// it.
func (q *Question) try(at float64, r release.Release, how effort) (trial, error) {
	x := trial{at: at, excess: math.Inf(1), question: *q}
	x.question.Releases = []release.Release{r}
	var err error
	x.g, err = x.question.guarantee(how)
	switch {
	case errors.Is(err, release.ErrNoGuarantee), q.narrow(err):
		return x, nil
	case err != nil:
		return trial{}, err
	}
	x.excess = math.Log(x.g.Epsilon / q.Epsilon)
	return x, nil
}

// narrow says whether an error is about too little noise, where the noise is looked for.
func (q *Question) narrow(err error) bool {
	return (q.Solve == SolveSigma || q.Solve == SolveScale) && (errors.Is(err, release.ErrUnsupported) || errors.Is(err, release.ErrParameter))
}

// A search brings a trial that holds and one that does not together.
type search struct {
	good, bad trial
	step      int
	width     float64 // some steps ago
}

// next is where to try: by regula falsi on ln epsilon against ln at, which is nearly a
// line, or in the middle whenever three steps have not halved the bracket.
func (s *search) next() float64 {
	a, b := math.Log(s.good.at), math.Log(s.bad.at)
	straight := !math.IsInf(s.good.excess, 0) && !math.IsInf(s.bad.excess, 0)
	if s.step%3 == 0 {
		straight = straight && (s.step == 0 || math.Abs(b-a) < s.width/2)
		s.width = math.Abs(b - a)
	}
	t := 0.5
	if straight {
		// A little to either side in turn, so that both ends move.
		aside := 1e-5 / math.Abs(b-a)
		if s.step%2 == 1 {
			aside = -aside
		}
		t = min(max(-s.good.excess/(s.bad.excess-s.good.excess)+aside, 0.001), 0.999)
	}
	s.step++
	return math.Exp(a + t*(b-a))
}

// put takes the result of a trial.
func (s *search) put(x trial) {
	if x.excess <= 0 {
		s.good = x
	} else {
		s.bad = x
	}
}

// narrow searches until the two ends differ by less than a relative tolerance.
func (s *search) narrow(tolerance float64, f func(at float64) (trial, error)) error {
	for math.Abs(math.Log(s.good.at/s.bad.at)) > tolerance && s.step < 300 {
		x, err := f(s.next())
		if err != nil {
			return err
		}
		s.put(x)
	}
	return nil
}

// precision is how closely a value is looked for, relative: where a grid is computed, no
// more than the grid is good for.
func precision(r release.Release) float64 {
	if r.Sampling != nil {
		return 3e-5
	}
	switch m := r.Mechanism.(type) {
	case release.Laplace:
		return 3e-5
	case release.DiscreteLaplace:
		if m.Honest == 2 {
			return 3e-5
		}
	}
	return 1e-9
}

// strength is what a mechanism's noise is solved for by; empty where it has none.
func strength(m release.Mechanism) Parameter {
	switch m.(type) {
	case release.Gaussian, release.DiscreteGaussian, release.CorrelatedGaussian:
		return SolveSigma
	case release.Laplace, release.DiscreteLaplace:
		return SolveScale
	}
	return ""
}

// noised returns a mechanism with another sigma or scale.
func noised(m release.Mechanism, at float64) (release.Mechanism, error) {
	var err error
	switch x := m.(type) {
	case release.Gaussian:
		x.Sigma = at
		return x, nil
	case release.Laplace:
		x.Scale = at
		return x, nil
	case release.DiscreteGaussian:
		x.Variance, err = squareBelow(at)
		return x, err
	case release.CorrelatedGaussian:
		x.Variance, err = squareBelow(at)
		return x, err
	case release.DiscreteLaplace:
		x.Scale, err = rationalBelow(at)
		return x, err
	}
	return nil, refuse("leave --solve out", "%s has no noise to solve for", m.Name())
}

// noises is between which values a mechanism's sigma or scale is looked for, and the most
// that one person adds.
func noises(m release.Mechanism) (least, most, sensitivity float64) {
	switch m := m.(type) {
	case release.Gaussian:
		sensitivity = m.Contribution.Max
	case release.Laplace:
		sensitivity = m.Contribution.Max
	case release.DiscreteGaussian:
		return 0.5, 1 << 30, m.Contribution.Max
	case release.CorrelatedGaussian:
		return 0.5, 1 << 30, m.Contribution.Max
	case release.DiscreteLaplace:
		return 1e-2, 1 << 40, m.Contribution.Max
	}
	return 1e-3 * sensitivity, 1e12 * sensitivity, sensitivity
}

// solveNoise finds the least sigma or scale, rounded up.
func (q *Question) solveNoise() (trial, error) {
	r := q.Releases[0]
	least, most, sensitivity := noises(r.Mechanism)
	f := func(at float64) (trial, error) {
		m, err := noised(r.Mechanism, at)
		if q.narrow(err) {
			return trial{at: at, excess: math.Inf(1)}, nil
		} else if err != nil {
			return trial{}, err
		}
		changed := r
		changed.Mechanism = m
		return q.try(at, changed, searching)
	}
	// Start at what one plain release might take, and walk by doubling.
	x, err := f(min(max(sensitivity*max(1, 4/q.Epsilon), least), most))
	if err != nil {
		return trial{}, err
	}
	s := search{good: x, bad: x}
	for s.good.excess > 0 {
		if s.bad = s.good; s.bad.at >= most {
			return trial{}, refuse("a larger --epsilon, or less of what costs it", "no %s up to %.3g is enough for epsilon %v", q.Solve, most, q.Epsilon)
		}
		if s.good, err = f(min(2*s.bad.at, most)); err != nil {
			return trial{}, err
		}
	}
	for s.bad.excess <= 0 && s.good.at > least {
		s.good = s.bad
		if s.bad, err = f(max(s.good.at/2, least)); err != nil {
			return trial{}, err
		}
	}
	if s.bad.excess <= 0 {
		return s.bad, nil
	}
	err = s.narrow(precision(r), f)
	return s.good, err
}

// leastRate is the smallest sampling rate that is tried.
const leastRate = 1e-9

// rates says whether a sampling has a rate to look for.
func rates(s release.Sampling) bool {
	_, err := rated(s, 0.5)
	return err == nil
}

// rated returns a sampling with another rate.
func rated(s release.Sampling, at float64) (release.Sampling, error) {
	switch s := s.(type) {
	case release.Shuffle:
		s.Rate = at
		return s, nil
	case release.Allocation:
		s.Rate = at
		return s, nil
	case release.Poisson:
		if s.Rate = at; at == 1 {
			return nil, nil // all take part, and the count tells nothing
		}
		return s, nil
	case release.CountedPoisson:
		if s.Rate = at; at == 1 {
			return nil, nil
		}
		return s, nil
	case release.Fixed:
		if at == 1 {
			return nil, nil
		}
		return release.Fixed{Rate: at}, nil
	}
	return nil, refuse("leave --solve out", "nothing is sampled")
}

// solveSampling finds the largest rate, rounded down.
func (q *Question) solveSampling() (trial, error) {
	r := q.Releases[0]
	f := func(at float64) (trial, error) {
		at = min(at, 1)
		s, err := rated(r.Sampling, at)
		if err != nil {
			return trial{}, err
		}
		return q.try(at, r.Sampled(s), searching)
	}
	s := search{}
	var err error
	if s.bad, err = f(1); err != nil || s.bad.excess <= 0 {
		return s.bad, err
	}
	s.good, err = f(0.01)
	for err == nil && s.good.excess > 0 {
		if s.bad = s.good; s.bad.at <= leastRate {
			return trial{}, refuse("more noise, fewer --steps or a larger --epsilon", "no sampling rate down to %.0e is enough for epsilon %v", leastRate, q.Epsilon)
		}
		s.good, err = f(max(s.bad.at/8, leastRate))
	}
	if err == nil {
		err = s.narrow(3e-5, f)
	}
	return s.good, err
}

// mostSteps ends the search for a number of steps.
const mostSteps = 1_000_000_000

// solveSteps finds the largest number of steps; above a million, to one part in a million.
func (q *Question) solveSteps() (trial, error) {
	r, how := q.Releases[0], searching
	if q.pointwise(r) { // one step is the same, however many there are
		how.one = sync.OnceValues(func() (points, error) { return q.oneStep(r) })
	}
	f := func(at float64) (trial, error) {
		at = math.Round(at)
		r.Count = uint64(at)
		return q.try(at, r, how)
	}
	good, err := f(1)
	if err != nil {
		return trial{}, err
	}
	if good.excess > 0 {
		return trial{}, refuse("more noise or a larger --epsilon", "one step alone costs epsilon %.6g", good.g.Epsilon)
	}
	s := search{good: good, bad: good}
	for s.bad.excess <= 0 {
		if s.good = s.bad; s.good.at >= mostSteps {
			return s.good, nil
		}
		if s.bad, err = f(min(8*s.good.at, mostSteps)); err != nil {
			return trial{}, err
		}
	}
	for s.bad.at-s.good.at > max(1, 1e-6*s.good.at) {
		x, err := f(min(max(math.Round(s.next()), s.good.at+1), s.bad.at-1))
		if err != nil {
			return trial{}, err
		}
		s.put(x)
	}
	return s.good, nil
}
