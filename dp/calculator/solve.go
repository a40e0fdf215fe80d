package calculator

import (
	"errors"
	"math"

	"github.com/starling-agg/starling/dp/release"
)

// solve finds the value of q.Solve, on the safe side, puts it into q and returns the guarantee that it gives.
func (q *Question) solve() (release.Guarantee, error) {
	switch q.Solve {
	case SolveSigma, SolveScale:
		return q.solveNoise()
	case SolveSampling:
		return q.solveSampling()
	}
	return q.solveSteps()
}

// A trial is the guarantee at one value, and ln(epsilon/wanted), at most 0 if it holds.
type trial struct {
	at, excess float64
	g          release.Guarantee
}

// try answers the question as it stands. More loss than can be accounted for counts as too much, and so does noise so
// narrow that no theorem covers it.
func (q *Question) try(at float64) (trial, error) {
	// The upper bound is good to one part in 10^4 on grids on which the lower one is not yet.
	q.tolerance = 0.05
	g, err := q.guarantee()
	switch {
	case errors.Is(err, release.ErrNoGuarantee),
		(q.Solve == SolveSigma || q.Solve == SolveScale) && (errors.Is(err, release.ErrUnsupported) || errors.Is(err, release.ErrParameter)):
		return trial{at: at, excess: math.Inf(1)}, nil
	case err != nil:
		return trial{}, err
	}
	return trial{at, math.Log(g.Epsilon / q.Epsilon), g}, nil
}

// A search brings a trial that holds and one that does not together.
type search struct {
	good, bad trial
	step      int
	width     float64 // some steps ago
}

// next is where to try: by regula falsi on ln epsilon against ln at, which is nearly a line, or in the middle whenever
// three steps have not halved the bracket.
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

// precision is how closely a value is looked for, relative: where a grid is computed, no more than the grid is good for.
func (q *Question) precision() float64 {
	if q.Sampling == 0 && q.Of == 0 && q.CheckIn == 0 && q.Mechanism != Laplace && !(q.Mechanism == DiscreteLaplace && q.Honest == 2) {
		return 1e-9
	}
	return 3e-5
}

// solveNoise finds the least sigma or scale, rounded up.
func (q *Question) solveNoise() (release.Guarantee, error) {
	p := &q.Sigma
	least, most := 1e-3*q.Sensitivity, 1e12*q.Sensitivity
	if q.Solve == SolveScale {
		p = &q.Scale
	}
	switch q.Mechanism {
	case DiscreteGaussian, CorrelatedGaussian:
		least, most = 0.5, 1<<30
	case DiscreteLaplace:
		least, most = 1e-2, 1<<40
	}
	f := func(at float64) (trial, error) {
		*p = at
		return q.try(at)
	}
	// Start at what one plain release might take, and walk by doubling.
	x, err := f(min(max(q.Sensitivity*max(1, 4/q.Epsilon), least), most))
	if err != nil {
		return release.Guarantee{}, err
	}
	s := search{good: x, bad: x}
	for s.good.excess > 0 {
		if s.bad = s.good; s.bad.at >= most {
			return release.Guarantee{}, refuse("a larger --epsilon, or less of what costs it", "no %s up to %.3g is enough for epsilon %v", q.Solve, most, q.Epsilon)
		}
		if s.good, err = f(min(2*s.bad.at, most)); err != nil {
			return release.Guarantee{}, err
		}
	}
	for s.bad.excess <= 0 && s.good.at > least {
		s.good = s.bad
		if s.bad, err = f(max(s.good.at/2, least)); err != nil {
			return release.Guarantee{}, err
		}
	}
	if s.bad.excess <= 0 {
		s.good = s.bad
	} else if err := s.narrow(q.precision(), f); err != nil {
		return release.Guarantee{}, err
	}
	*p = s.good.at
	return s.good.g, nil
}

// leastRate is the smallest sampling rate that is tried.
const leastRate = 1e-9

// solveSampling finds the largest rate, rounded down.
func (q *Question) solveSampling() (release.Guarantee, error) {
	f := func(at float64) (trial, error) {
		q.Sampling = min(at, 1)
		if q.Sampling == 1 {
			q.Sampling = 0 // all take part, and the count tells nothing
			defer func() { q.Sampling = 1 }()
		}
		return q.try(at)
	}
	s := search{}
	var err error
	if s.bad, err = f(1); err != nil {
		return release.Guarantee{}, err
	}
	if s.bad.excess <= 0 {
		return s.bad.g, nil
	}
	s.good, err = f(0.01)
	for err == nil && s.good.excess > 0 {
		if s.bad = s.good; s.bad.at <= leastRate {
			return release.Guarantee{}, refuse("more noise, fewer --steps or a larger --epsilon", "no sampling rate down to %.0e is enough for epsilon %v", leastRate, q.Epsilon)
		}
		s.good, err = f(max(s.bad.at/8, leastRate))
	}
	if err == nil {
		err = s.narrow(3e-5, f)
	}
	if err != nil {
		return release.Guarantee{}, err
	}
	q.Sampling = s.good.at
	return s.good.g, nil
}

// mostSteps ends the search for a number of steps.
const mostSteps = 1_000_000_000

// solveSteps finds the largest number of steps; above a million, to one part in a million.
func (q *Question) solveSteps() (release.Guarantee, error) {
	f := func(at float64) (trial, error) {
		at = math.Round(at)
		q.Steps = uint64(at)
		return q.try(at)
	}
	good, err := f(1)
	if err != nil {
		return release.Guarantee{}, err
	}
	if good.excess > 0 {
		return release.Guarantee{}, refuse("more noise or a larger --epsilon", "one step alone costs epsilon %.6g", good.g.Epsilon)
	}
	s := search{good: good, bad: good}
	for s.bad.excess <= 0 {
		if s.good = s.bad; s.good.at >= mostSteps {
			return s.good.g, nil
		}
		if s.bad, err = f(min(8*s.good.at, mostSteps)); err != nil {
			return release.Guarantee{}, err
		}
	}
	for s.bad.at-s.good.at > max(1, 1e-6*s.good.at) {
		x, err := f(min(max(math.Round(s.next()), s.good.at+1), s.bad.at-1))
		if err != nil {
			return release.Guarantee{}, err
		}
		s.put(x)
	}
	q.Steps = uint64(s.good.at)
	return s.good.g, nil
}
