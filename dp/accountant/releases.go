package accountant

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// eventOf returns a list of releases as the event of which losses are computed.
func eventOf(list []release.Release) (event, error) {
	all := make(composition, len(list))
	for i, r := range list {
		e, err := oneOf(r)
		if err != nil {
			return nil, err
		}
		all[i] = selfCompose{e, r.Count}
	}
	return all, nil
}

// oneOf returns one of the results of a release.
func oneOf(r release.Release) (event, error) {
	switch s := r.Sampling.(type) {
	case release.CheckIns:
		if s.Schedule == release.AveragedWindow {
			return nil, fmt.Errorf("%w: averaged check-ins by a distribution of losses", release.ErrUnsupported)
		}
		return checkedIn{release.ReportOf(r.Mechanism), s.Slots, s.Rate}, nil
	case release.Shuffle:
		m, err := s.Message(r.Mechanism)
		if err != nil {
			return nil, err
		}
		e := shuffled{m, s.People}
		if s.Rate == 1 {
			return e, nil
		}
		return fixedSample{e, s.Rate}, nil
	case release.Fixed:
		e, err := mechanism(worstReport(r.Mechanism))
		return fixedSample{e, s.Rate}, err
	}
	e, err := mechanism(r.Mechanism)
	if err != nil {
		return nil, err
	}
	switch s := r.Sampling.(type) {
	case nil:
		return e, nil
	case release.Poisson:
		if s.Dummies > 0 {
			e = composition{dummyCount{s.Dummies, s.DummyRate}, e}
		}
		return poissonSample{e, s.Rate}, nil
	case release.Allocation:
		e = allocation{e, s.Of, s.Picks}
		if s.Rate == 1 {
			return e, nil
		}
		return poissonSample{e, s.Rate}, nil // a coin for each run
	}
	return nil, fmt.Errorf("%w: a sample whose size is random and public", release.ErrUnsupported)
}

// worstReport returns what dominates a report that is sampled from: among the alternatives
// to an answer is to send nothing.
func worstReport(m release.Mechanism) release.Mechanism {
	switch m := m.(type) {
	case release.Response:
		return release.Response{Epsilon0: m.Epsilon0, Answers: 2}
	case release.RAPPOR:
		return release.Response{Epsilon0: 2 * m.Epsilon0, Answers: 2}
	}
	return m
}

// mechanism returns one result about everybody.
func mechanism(m release.Mechanism) (event, error) {
	if h := release.HonestDraws(m); h > 2 {
		if _, ok := m.(release.DiscreteGaussian); !ok {
			return nil, parameter("number of honest draws", float64(h), "1 or 2")
		}
	}
	switch m := m.(type) {
	case release.Gaussian:
		if m.Honest > 1 {
			m.Sigma = outward.Beneath(m.Sigma * math.Sqrt(float64(m.Honest)))
		}
		return gaussian{m.Sigma, m.Contribution}, nil
	case release.DiscreteGaussian:
		return discreteGaussian{m.Variance, m.Contribution, m.Honest}, nil
	case release.CorrelatedGaussian:
		return correlated{m.Variance, m.Norm2, m.Contribution}, nil
	case release.Laplace:
		if m.Honest > 1 {
			return laplaceSum{m.Scale, m.Contribution}, nil
		}
		return laplace{m.Scale, m.Contribution}, nil
	case release.DiscreteLaplace:
		if m.Honest > 1 {
			return discreteLaplaceSum{m.Scale, m.Contribution}, nil
		}
		return discreteLaplace{m.Scale, m.Contribution}, nil
	case release.Response:
		return randomizedResponse{m.Epsilon0, m.Answers}, nil
	case release.RAPPOR:
		return rappor{m.Epsilon0}, nil
	case release.ApproxDP:
		return approxDP{m.Epsilon, m.Delta}, nil
	case release.ZCDP:
		return zcdp{m.Rho}, nil
	}
	if m == nil {
		return nil, fmt.Errorf("%w: no mechanism is stated", release.ErrParameter)
	}
	return nil, fmt.Errorf("%w: %s by itself", release.ErrUnsupported, m.Name())
}

// replacing returns the pair of any two inputs of a report.
func replacing(r release.Report) (dominance, error) {
	if _, _, err := r.Approx(); err != nil && r.Mechanism() == nil {
		return dominance{}, err
	}
	e, err := mechanism(r.Mechanism())
	if local, ok := r.Mechanism().(release.LocalDP); ok {
		e, err = approxDP{local.Epsilon0, local.Delta0}, nil
	}
	if err != nil {
		return dominance{}, err
	}
	d, ok := e.(dominated)
	if !ok {
		return dominance{}, fmt.Errorf("%w: a distribution of losses of %s", release.ErrUnsupported, nameOf(e))
	}
	return d.dominating(release.ReplaceOne)
}
