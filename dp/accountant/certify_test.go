package accountant

import (
	"errors"
	"testing"

	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/release"
)

// sum is discrete Gaussian noise of one server.
func sum(num, den uint64, c release.Contribution) release.Mechanism {
	return release.DiscreteGaussian{Variance: release.Rational{Num: num, Den: den}, Contribution: c}
}

// coin is a secret sample, with the dummies that hide its count if there are any.
func coin(rate float64, dummies uint64, dummyRate float64) release.Sampling {
	return release.Poisson{Rate: rate, Dummies: dummies, DummyRate: dummyRate}
}

func TestCertify(t *testing.T) {
	normal := func(sigma float64) release.Mechanism {
		return release.Gaussian{Sigma: sigma, Contribution: release.Signed(1)}
	}
	laplace := func(scale float64) release.Mechanism {
		return release.Laplace{Scale: scale, Contribution: release.Signed(1)}
	}
	whole := func(num, den uint64, c release.Contribution) release.Mechanism {
		return release.DiscreteLaplace{Scale: release.Rational{Num: num, Den: den}, Contribution: c}
	}
	two := func(num, den uint64, c release.Contribution) release.Mechanism {
		return release.DiscreteGaussian{Variance: release.Rational{Num: num, Den: den}, Contribution: c, Honest: 2}
	}
	answer := func(e0 float64, k uint64) release.Mechanism { return release.Response{Epsilon0: e0, Answers: k} }
	approx := func(e, delta float64) release.Mechanism { return release.ApproxDP{Epsilon: e, Delta: delta} }
	fixed := func(rate float64) release.Sampling { return release.Fixed{Rate: rate} }
	shuffle := func(people uint64) release.Sampling { return release.Shuffle{People: people, Rate: 1} }
	one := func(of uint64) release.Sampling { return release.Allocation{Picks: 1, Of: of, Rate: 1} }
	of := func(m release.Mechanism, s release.Sampling, count uint64) release.Release {
		return release.Times(count, m).Sampled(s)
	}
	type list = []release.Release
	for i, tc := range []struct {
		list  list
		delta float64
		n     release.Neighbours
	}{
		{list{of(normal(1), nil, 1)}, 1e-6, release.AddRemove},
		{list{of(normal(5), nil, 40)}, 1e-9, release.ReplaceOne},
		{list{of(normal(5.1), coin(.02, 0, 0), 2500)}, 1e-8, release.AddRemove},
		{list{of(normal(1), coin(.01, 0, 0), 1000)}, 1e-5, release.ZeroOut},
		{list{of(laplace(3), nil, 20)}, 1e-6, release.AddRemove},
		{list{of(laplace(1), coin(.1, 0, 0), 50)}, 1e-6, release.AddRemove},
		{list{of(answer(.5, 2), nil, 30)}, 1e-6, release.ReplaceOne},
		{list{of(sum(100, 1, release.OneHot()), nil, 1)}, 1e-8, release.ReplaceOne},
		{list{of(sum(25, 1, release.Interval(3)), nil, 10)}, 1e-7, release.ZeroOut},
		{list{of(normal(2), coin(.05, 0, 0), 50), of(laplace(20), nil, 5), of(approx(.1, 0), nil, 1)}, 1e-7, release.AddRemove},
		{list{of(approx(.1, 1e-9), nil, 100)}, 1e-6, release.ReplaceOne},
		{list{of(answer(1, 3), nil, 7)}, 1e-6, release.ReplaceOne},
		{list{of(answer(1, 3), nil, 3), of(answer(1, 3), nil, 4)}, 1e-6, release.ReplaceOne},
		{list{of(release.ZCDP{Rho: .1}, nil, 1), of(release.ZCDP{Rho: .01}, nil, 5)}, 1e-6, release.AddRemove},
		{list{of(sum(655360*655360, 1, release.Ball(1000, 65536)), nil, 100)}, 1e-6, release.ZeroOut},
		{list{of(sum(1<<40, 1, release.Vector(100, 1<<10)), nil, 10)}, 1e-8, release.ReplaceOne},
		{list{of(sum(1, 2, release.OneHot()), nil, 1)}, 1e-5, release.ReplaceOne},
		{list{of(two(200, 3, release.OneHot()), nil, 1)}, 1e-8, release.ReplaceOne},
		{list{of(whole(10, 1, release.Interval(7)), nil, 1)}, 1e-6, release.ReplaceOne},
		{list{of(whole(10, 1, release.OneHot()), nil, 50)}, 1e-6, release.ReplaceOne},
		{list{of(whole(30, 1, release.Simplex(9, 7)), nil, 5)}, 1e-6, release.ReplaceOne},
		{list{of(normal(3), fixed(.05), 200)}, 1e-6, release.ReplaceOne},
		{list{of(normal(1), fixed(.1), 1)}, 1e-6, release.ReplaceOne},
		{list{of(sum(100, 1, release.Interval(1)), coin(.1, 0, 0), 1)}, 1e-8, release.AddRemove},
		{list{of(sum(100, 1, release.Interval(1)), coin(.1, 0, 0), 300)}, 1e-8, release.ZeroOut},
		{list{of(answer(2, 2), coin(.1, 0, 0), 20)}, 1e-6, release.AddRemove},
		// Beside the count of dummies, of few and of many.
		{list{of(sum(9, 1, release.Interval(1)), coin(.1, 50000, .01), 1)}, 1e-6, release.AddRemove},
		{list{of(sum(16, 1, release.OneHot()), coin(.5, 25000, .05), 1)}, 1e-9, release.AddRemove},
		{list{of(sum(400, 1, release.Interval(7)), coin(.5, 1e7, .1), 1)}, 1e-9, release.ZeroOut},
		{list{of(sum(9, 1, release.OneHot()), coin(.2, 30000, .02), 30)}, 1e-8, release.AddRemove},
		{list{of(sum(900, 1, release.Interval(3)), coin(.01, 1e6, .1), 1000)}, 1e-8, release.AddRemove},
		{list{of(whole(5, 2, release.Interval(1)), coin(.3, 5000, .1), 1)}, 1e-6, release.AddRemove},
		{list{of(approx(.8, 1e-9), coin(.3, 5000, .1), 5)}, 1e-6, release.AddRemove},
		{list{of(sum(4, 1, release.Interval(1)), coin(.1, 40, .5), 1)}, 1e-3, release.AddRemove},
		{list{of(sum(2, 1, release.Vector(3, 1)), coin(.01, 50000, .01), 1)}, 1e-6, release.AddRemove},
		// That all 57 send a dummy has a probability below 10^-17, and must not get lost.
		{list{of(sum(1667, 256, release.Interval(1)), coin(.5, 57, .5), 2)}, 1e-6, release.AddRemove},
		// Vectors of bounded norm, and two servers' noise.
		{list{of(sum(10000, 1, release.Ball(1000, 100)), coin(.1, 5000, .1), 3)}, 1e-6, release.AddRemove},
		{list{of(sum(10000, 1, release.Ball(1000, 20)), fixed(.1), 30)}, 1e-6, release.ReplaceOne},
		{list{of(two(20, 1, release.MultiHot(3)), coin(.1, 0, 0), 10)}, 1e-6, release.AddRemove},
		// Shuffled.
		{list{of(release.LocalDP{Epsilon0: 4}, shuffle(1e4), 1)}, 1e-10, release.ReplaceOne},
		{list{of(answer(1, 2), shuffle(1e5), 1)}, 1e-6, release.ReplaceOne},
		{list{of(release.RAPPOR{Epsilon0: 4, Answers: 2}, release.Shuffle{People: 1e6, Rate: 1, Columns: true}, 1)}, 1e-10, release.ZeroOut},
		{list{of(answer(4, 10), shuffle(1e4), 1)}, 1e-10, release.ReplaceOne},
		{list{of(answer(2, 16), shuffle(2e4), 1)}, 1e-8, release.ReplaceOne},
		// Allocated.
		{list{of(approx(1, 0), one(1000), 1)}, 1e-6, release.AddRemove},
		{list{of(answer(.5, 2), one(100), 1)}, 1e-6, release.ZeroOut},
	} {
		if i%3 != 0 && !patient() {
			continue
		}
		c, err := Certify(tc.list, tc.delta, tc.n)
		if err != nil {
			t.Errorf("%+v: %v", tc.list, err)
			continue
		}
		want, err := Epsilon(tc.list, tc.delta, tc.n)
		if err != nil {
			t.Fatal(err)
		}
		if c.Epsilon < want.EpsilonLower || c.Epsilon > want.Epsilon*1.01+1e-6 || c.Delta != tc.delta || c.Neighbours != tc.n {
			t.Errorf("%+v: certified (%v, %v), want %v", tc.list, c.Epsilon, c.Delta, want)
		}
		// It survives the wire, and stops holding for a little less.
		b, err := c.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var back certificate.Certificate
		if err := back.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if err := back.Check(); err != nil {
			t.Errorf("%+v: after the wire: %v", tc.list, err)
		}
		back.Epsilon = want.EpsilonLower * 0.999
		var e *certificate.Error
		if err := back.Check(); !errors.As(err, &e) {
			t.Errorf("%+v: epsilon below what can be true: %v", tc.list, err)
		}
		if len(b) > 30_000 {
			t.Errorf("%+v: %d bytes", tc.list, len(b))
		}
		t.Logf("%d bytes, epsilon %.5f of %.5f", len(b), c.Epsilon, want.Epsilon)
	}
	several := release.Allocation{Picks: 3, Of: 20, Rate: 1} // has no certificate, least of all that of one pick
	for _, l := range []list{
		{of(normal(1), one(10), 1)},
		{of(answer(1, 2), several, 1)},
		{of(normal(1), release.CountedPoisson{Rate: .1, People: 100}, 1)},
		{of(release.ZCDP{Rho: .1}, nil, 1), of(laplace(1), nil, 1)},
		{of(normal(1), fixed(.1), 1)},
		{of(two(1, 2, release.OneHot()), coin(.1, 0, 0), 1)},
		{of(answer(1, 2), shuffle(100), 2)},
	} {
		if _, err := Certify(l, 1e-6, release.AddRemove); !errors.Is(err, release.ErrUnsupported) {
			t.Errorf("%+v: %v", l, err)
		}
	}
}
