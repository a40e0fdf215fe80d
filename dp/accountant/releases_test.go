package accountant

import (
	"errors"
	"reflect"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// TestEventOfEachRelease: each mechanism and each sampling becomes the event of which the
// losses are computed, worked out by hand.
func TestEventOfEachRelease(t *testing.T) {
	three, half, c := release.Rational{Num: 3, Den: 1}, release.Rational{Num: 1, Den: 2}, release.Interval(5)
	normal := release.Gaussian{Sigma: 2, Contribution: c}
	whole := release.DiscreteGaussian{Variance: three, Contribution: c}
	bits := release.RAPPOR{Epsilon0: 1, Answers: 9}
	answer := release.Response{Epsilon0: 1, Answers: 9}
	for _, tc := range []struct {
		m    release.Mechanism
		s    release.Sampling
		want event
	}{
		{normal, nil, gaussian{2, c}},
		{whole, nil, discreteGaussian{three, c, 0}},
		{release.DiscreteGaussian{Variance: three, Contribution: c, Honest: 2}, nil, discreteGaussian{three, c, 2}},
		{release.DiscreteGaussian{Variance: three, Contribution: c, Honest: 900}, nil, discreteGaussian{three, c, 900}},
		{release.CorrelatedGaussian{Variance: three, Norm2: half, Contribution: c, Bands: 4, Rounds: 9}, nil, correlated{three, half, c}},
		{release.Laplace{Scale: 2, Contribution: c, Honest: 1}, nil, laplace{2, c}},
		{release.Laplace{Scale: 2, Contribution: c, Honest: 2}, nil, laplaceSum{2, c}},
		{release.DiscreteLaplace{Scale: half, Contribution: c}, nil, discreteLaplace{half, c}},
		{release.DiscreteLaplace{Scale: half, Contribution: c, Honest: 2}, nil, discreteLaplaceSum{half, c}},
		{answer, nil, randomizedResponse{1, 9}},
		{bits, nil, rappor{1}},
		{release.ApproxDP{Epsilon: 1, Delta: 1e-9}, nil, approxDP{1, 1e-9}},
		{release.ZCDP{Rho: 1}, nil, zcdp{1}},
		{normal, release.Poisson{Rate: .1}, poissonSample{gaussian{2, c}, .1}},
		{whole, release.Poisson{Rate: .1, Dummies: 7, DummyRate: .5}, poissonSample{composition{dummyCount{7, .5}, discreteGaussian{three, c, 0}}, .1}},
		{normal, release.Fixed{Rate: .1}, fixedSample{gaussian{2, c}, .1}},
		{answer, release.Fixed{Rate: .1}, fixedSample{randomizedResponse{1, 2}, .1}}, // against sending nothing
		{bits, release.Fixed{Rate: .1}, fixedSample{randomizedResponse{2, 2}, .1}},
		{normal, release.Allocation{Picks: 2, Of: 9, Rate: 1}, allocation{gaussian{2, c}, 9, 2}},
		{normal, release.Allocation{Picks: 2, Of: 9, Rate: .5}, poissonSample{allocation{gaussian{2, c}, 9, 2}, .5}},
		{answer, release.CheckIns{Slots: 9, Rate: .5}, checkedIn{release.ResponseReport(1, 9), 9, .5}},
		{answer, release.Shuffle{People: 50, Rate: 1}, shuffled{release.ResponseReport(1, 9), 50}},
		{bits, release.Shuffle{People: 50, Rate: 1, Columns: true}, shuffled{release.ColumnsOf(1), 50}},
		{answer, release.Shuffle{People: 50, Rate: .5}, fixedSample{shuffled{release.ResponseReport(1, 9), 50}, .5}},
	} {
		got, err := eventOf([]release.Release{{Mechanism: tc.m, Sampling: tc.s, Count: 3}})
		if want := (composition{selfCompose{tc.want, 3}}); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v%v: %+v, %v; want %+v", tc.m, tc.s, got, err, want)
		}
	}
	// Two servers' Gaussian noise has twice the variance, and no more.
	got, err := oneOf(release.One(release.Gaussian{Sigma: 3, Contribution: c, Honest: 2}))
	if g, ok := got.(gaussian); err != nil || !ok || g.Sigma*g.Sigma > 18 || g.Sigma*g.Sigma < 18*(1-1e-14) {
		t.Errorf("two servers of sigma 3 make %+v, %v", got, err)
	}
}

// TestReleasesWithoutTheorem: what nothing is known of is refused, by its type.
func TestReleasesWithoutTheorem(t *testing.T) {
	c := release.Interval(5)
	for name, r := range map[string]release.Release{
		"no mechanism":            {Count: 1},
		"no count":                {Mechanism: release.Gaussian{Sigma: 1, Contribution: c}},
		"three servers' Laplace":  release.One(release.Laplace{Scale: 1, Contribution: c, Honest: 3}),
		"any report by itself":    release.One(release.LocalDP{Epsilon0: 1}),
		"a public random size":    {Mechanism: release.Gaussian{Sigma: 1, Contribution: c}, Sampling: release.CountedPoisson{Rate: .1, People: 100}, Count: 1},
		"columns of other things": {Mechanism: release.Response{Epsilon0: 1, Answers: 2}, Sampling: release.Shuffle{People: 9, Rate: 1, Columns: true}, Count: 1},
		"averaged check-ins":      {Mechanism: release.Response{Epsilon0: 1, Answers: 2}, Sampling: release.CheckIns{Schedule: release.AveragedWindow, Slots: 9, Rate: 1, People: 9}, Count: 1},
		"a sample of any report":  {Mechanism: release.LocalDP{Epsilon0: 1}, Sampling: release.Poisson{Rate: .1}, Count: 1},
		"check-ins of approx-dp":  {Mechanism: release.ApproxDP{Epsilon: 1}, Sampling: release.CheckIns{Slots: 9, Rate: 1}, Count: 1},
	} {
		g, err := Epsilon([]release.Release{r}, 1e-6, release.AddRemove)
		if !errors.Is(err, release.ErrUnsupported) && !errors.Is(err, release.ErrParameter) {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
	if g, err := Delta(nil, 1, release.AddRemove); !errors.Is(err, release.ErrParameter) {
		t.Errorf("nothing at all: %+v, %v", g, err)
	}
}
