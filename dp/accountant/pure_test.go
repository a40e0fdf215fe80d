package accountant

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// Laplace noise of scale b loses at most 1/b a release. At these settings the grid's ends
// fell short of the loss's by a rounding, or the window did, and another method took
// over: up to 6.4 times 1/b was answered.
func TestLaplaceAtItsEnd(t *testing.T) {
	for _, c := range []struct{ scale, delta float64 }{
		{455.2606013124985, 9.794586151944542e-10}, {3.080834740881169, 1.584e-16}, {3.5705787, 2.79e-16},
	} {
		want := 1/c.scale + 2*math.Log1p(-c.delta)
		for _, m := range []Method{Auto, PLD} {
			g, err := Options{Method: m}.epsilon(lap(c.scale), c.delta, release.AddRemove)
			if err != nil {
				t.Errorf("%+v by %q: %v", c, m, err)
				continue
			}
			if !(g.EpsilonLower <= want && want <= g.Epsilon && g.Epsilon-want <= 1e-9*want && want-g.EpsilonLower <= 1e-8*want) {
				t.Errorf("%+v by %q: [%v, %v], want %v", c, m, g.EpsilonLower, g.Epsilon, want)
			}
		}
	}
}

// At a delta of 0 a loss is rounded up, not to the nearest, which is below a third for a
// scale of 3; and what is refused at any other delta, or beyond all numbers, is refused: a
// public count with no dummies in it tells everything, and a loss below 0 would pay for
// another's.
func TestPureToTheSafeSide(t *testing.T) {
	for scale := 1.; scale < 50; scale++ {
		lap := release.Laplace{Scale: scale, Contribution: release.Interval(1)}
		g, err := Epsilon([]release.Release{release.One(lap)}, 0, release.AddRemove)
		if exact := big.NewRat(1, int64(scale)); err != nil || new(big.Rat).SetFloat64(g.Epsilon).Cmp(exact) < 0 || g.Epsilon > math.Nextafter(1/scale, 2) {
			t.Errorf("scale %v: %v, %v", scale, g.Epsilon, err)
		}
	}
	whole := release.One(release.DiscreteLaplace{Scale: release.Rational{Num: 2, Den: 1}, Contribution: release.Interval(1)})
	answer := release.One(release.Response{Epsilon0: 1, Answers: 3})
	for name, tc := range map[string]struct {
		also release.Release
		n    release.Neighbours
		want error
	}{
		"a loss below 0":            {release.One(release.LocalDP{Epsilon0: -0.5}), release.ReplaceOne, release.ErrUnsupported},
		"a bound below 0":           {release.One(release.ApproxDP{Epsilon: -0.5}), release.ReplaceOne, release.ErrParameter},
		"no bound":                  {release.One(release.ApproxDP{Epsilon: math.NaN()}), release.ReplaceOne, release.ErrParameter},
		"a delta below 0":           {release.One(release.ApproxDP{Delta: -1}), release.ReplaceOne, release.ErrParameter},
		"no neighbours":             {answer, 0, release.ErrParameter},
		"neighbours of no kind":     {answer, release.ZeroOut + 1, release.ErrParameter},
		"dummies at no rate":        {whole.Sampled(release.Poisson{Rate: 0.5, Dummies: 9}), release.AddRemove, release.ErrNoGuarantee},
		"dummies at a rate below 0": {whole.Sampled(release.Poisson{Rate: 0.5, Dummies: 9, DummyRate: -0.5}), release.AddRemove, release.ErrNoGuarantee},
		"a rate of 3":               {whole.Sampled(release.Poisson{Rate: 3}), release.AddRemove, release.ErrParameter},
		"no rate":                   {whole.Sampled(release.Poisson{Rate: math.NaN()}), release.AddRemove, release.ErrParameter},
		"a count that is public":    {whole.Sampled(release.CountedPoisson{Rate: 0.5, People: 9}), release.AddRemove, release.ErrUnsupported},
		"messages, one more or fewer": {release.One(release.Shuffled{Message: release.ResponseReport(1, 3), People: 9}), release.AddRemove,
			release.ErrUnsupported},
		"a distance over all": {release.One(release.Laplace{Scale: 1e-300, Contribution: release.Interval(1e300)}), release.AddRemove, release.ErrNoGuarantee},
		"a sum over all": {release.Times(1<<40, release.Laplace{Scale: 1e-300, Contribution: release.Interval(1)}), release.AddRemove,
			release.ErrNoGuarantee},
	} {
		for _, list := range [][]release.Release{{tc.also}, {whole, tc.also}} {
			if g, err := Epsilon(list, 0, tc.n); !errors.Is(err, tc.want) {
				t.Errorf("%s: %v, %v; want %v", name, g.Epsilon, err, tc.want)
			}
		}
	}
	if g, err := (Options{Tolerance: math.NaN()}).Epsilon([]release.Release{whole}, 0, release.AddRemove); !errors.Is(err, release.ErrParameter) {
		t.Errorf("no tolerance: %v, %v", g.Epsilon, err)
	}
}

// Noise is calibrated up to the largest loss that is accounted for; beyond, the search
// ended with an error about a scale that it tried.
func TestLeastScaleUpToTheLargestLoss(t *testing.T) {
	for _, c := range []struct{ most, epsilon float64 }{{1, 300}, {1, 499}, {1, 1000}, {7, 400}, {1 << 20, 300}} {
		m := release.DiscreteLaplace{Contribution: release.Interval(c.most)}
		scale, err := Calibrate(m, c.epsilon, 0, release.ReplaceOne, 1)
		want := c.most / min(c.epsilon, release.MaxLoss)
		if got := scale.Float(); err != nil || got < want || got > want+0x1p-16 {
			t.Errorf("%+v: scale %v, %v; want %v", c, scale, err, want)
		}
	}
}

// One Laplace release against an integral of the densities.
func TestLaplaceCurve(t *testing.T) {
	for _, mu := range []float64{.01, .5, 1, 3, 20} {
		for _, e := range []float64{0, .1 * mu, .5 * mu, .99 * mu, mu, 2 * mu} {
			want, h := 0.0, (mu+80)/2e5
			for x := -40.0; x < mu+40; x += h {
				p, q := math.Exp(-math.Abs(x+h/2))/2, math.Exp(-math.Abs(x+h/2-mu))/2
				want += h * max(0, p-math.Exp(e)*q)
			}
			g, err := Options{Method: ClosedForm}.delta(lap(1/mu), e, release.AddRemove)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(g.Delta-want) > 1e-5*mu || g.DeltaLower > g.Delta || g.Delta-g.DeltaLower > 1e-10 {
				t.Errorf("mu %v, epsilon %v: [%v, %v], integral %v", mu, e, g.DeltaLower, g.Delta, want)
			}
		}
	}
}

// No answer by any method is above the sum of the largest losses, and with that epsilon
// no delta is left.
func TestNoAnswerAboveThePureLoss(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 20261122))
	uniform := func(low, high float64) float64 { return low * math.Exp(rng.Float64()*math.Log(high/low)) }
	capped, events := 0, 30 // three of each kind
	if patient() {
		events = 100
	}
	for i := range events {
		x, q, steps := uniform(1e-3, 8), uniform(1e-4, 1), uint64(uniform(1, 60))
		scale := release.Rational{Num: uint64(math.Ceil(1e6 / x)), Den: 1_000_000}
		var e event
		most, n := x, release.AddRemove
		switch i % 10 {
		case 0:
			e = lap(1 / x)
		case 1:
			e, most = discreteLaplace{scale, release.Interval(1)}, 1/scale.Float()
		case 2:
			e, n = randomizedResponse{x, 2 + uint64(rng.IntN(9))}, release.ReplaceOne
		case 3:
			e, most, n = selfCompose{randomizedResponse{x, 2}, 2}, 2*x, release.ReplaceOne // rappor: two bits change
		case 4:
			e, most = poissonSample{lap(1 / x), q}, math.Log1p(q*math.Expm1(x))
		case 5:
			e, most = poissonSample{discreteLaplace{scale, release.Interval(1)}, q}, math.Log1p(q*math.Expm1(1/scale.Float()))
		case 6:
			e = allocation{lap(1 / x), 2 + uint64(rng.IntN(9)), 1}
		case 7:
			e, most, n = fixedSample{randomizedResponse{x, 2}, q}, math.Log1p(q*math.Expm1(x)), release.ReplaceOne
		case 8:
			e, n = shuffled{release.AnyReport(min(x, 4)), 1 + uint64(rng.IntN(50))}, release.ReplaceOne
			most = min(x, 4)
		case 9:
			e = laplaceSum{1 / x, release.Interval(1)}
		}
		if i%10 == 6 || i%10 == 8 {
			steps = min(steps, 4) // each takes a while
		}
		delta := math.Pow(10, -3-25*rng.Float64())
		whole := selfCompose{e, steps}
		most *= float64(steps) * (1 + 1e-11)
		g, err := epsilonOf(whole, delta, n)
		if err != nil {
			t.Errorf("%+v at %v: %v", whole, delta, err)
			continue
		}
		if g.Theorem == ceilingTheorem {
			capped++
		}
		if g.Epsilon > most || g.EpsilonLower > g.Epsilon {
			t.Errorf("%+v at %v: [%v, %v], and no loss is above %v", whole, delta, g.EpsilonLower, g.Epsilon, most)
		}
		if g, err = deltaOf(whole, most, n); err != nil || g.Delta != 0 || g.DeltaLower != 0 {
			t.Errorf("%+v at epsilon %v: delta %v, %v", whole, most, g.Delta, err)
		}
	}
	if capped == 0 {
		t.Error("nothing was capped, so nothing was tried")
	}
}

// Where no other method has an answer, the sum of the losses is one; not if another
// method was asked for.
func TestPureLossAlone(t *testing.T) {
	vectors := discreteLaplace{release.Rational{Num: 50, Den: 1}, release.MultiHot(3)}
	both := composition{vectors, lap(2)}
	g := epsilon(t, both, 1e-9, release.AddRemove)
	near(t, "three coordinates and a number", g.Epsilon, .56, 1e-9)
	if _, err := (Options{Method: RDP}).epsilon(both, 1e-9, release.AddRemove); !errors.Is(err, release.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := epsilonOf(composition{vectors, zcdp{1}}, 1e-9, release.AddRemove); !errors.Is(err, release.ErrUnsupported) {
		t.Error(err)
	}
}

// The Gaussian formula answers up to epsilon 10^6; the values are of 50-digit arithmetic.
func TestGaussianUpToAMillion(t *testing.T) {
	for _, c := range []struct {
		sigma float64
		steps uint64
		delta float64
		want  float64
	}{
		{0.00252612440493484, 10, 0.01823962782735093, 786156.10933513261},
		{0.00071, 1, 0.01, 995142.24024302362},
		{0.00072, 1, 1e-12, 974275.29178760162},
		{0.000978, 1, 0.5, 522746.89750827514},
		{0.5, 490000, 1e-05, 985969.84863174959},
	} {
		g, err := Options{Method: ClosedForm}.epsilon(selfCompose{gauss(c.sigma), c.steps}, c.delta, release.AddRemove)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if !(g.EpsilonLower <= c.want && c.want <= g.Epsilon && g.Epsilon-g.EpsilonLower <= 1e-9*c.want) {
			t.Errorf("%+v: [%v, %v]", c, g.EpsilonLower, g.Epsilon)
		}
	}
	if _, err := epsilonOf(gauss(.000707), .01, release.AddRemove); !errors.Is(err, release.ErrNoGuarantee) {
		t.Error(err)
	}
}

// TestPureEpsilon: at a delta of 0 the largest losses add up exactly; what is not pure, or
// beside a count of dummies, has no epsilon there.
func TestPureEpsilon(t *testing.T) {
	noise := release.DiscreteLaplace{Scale: release.Rational{Num: 10, Den: 1}, Contribution: release.Interval(10)}
	for name, tc := range map[string]struct {
		list []release.Release
		n    release.Neighbours
		want float64 // 0 for none
	}{
		"eight rounds":        {[]release.Release{release.Times(8, noise)}, release.ReplaceOne, 8},
		"several numbers":     {[]release.Release{release.One(release.DiscreteLaplace{Scale: release.Rational{Num: 4, Den: 1}, Contribution: release.OneHot()})}, release.ReplaceOne, 0.5},
		"a list":              {[]release.Release{release.One(noise), release.Times(3, release.Response{Epsilon0: 0.25, Answers: 9})}, release.ReplaceOne, 1.75},
		"a sample":            {[]release.Release{release.One(noise).Sampled(release.Poisson{Rate: 0.5})}, release.AddRemove, 1},
		"a sample of dummies": {[]release.Release{release.One(noise).Sampled(release.Poisson{Rate: 0.5, Dummies: 100, DummyRate: 0.5})}, release.AddRemove, 0},
		"gaussian":            {[]release.Release{release.One(noise), release.One(release.Gaussian{Sigma: 1e3, Contribution: release.Signed(1)})}, release.ReplaceOne, 0},
		"approximate":         {[]release.Release{release.One(release.ApproxDP{Epsilon: 1, Delta: 1e-30})}, release.AddRemove, 0},
		"beyond what counts":  {[]release.Release{release.Times(2e6, noise)}, release.ReplaceOne, 0},
	} {
		g, err := Epsilon(tc.list, 0, tc.n)
		if tc.want == 0 {
			if !errors.Is(err, release.ErrNoGuarantee) {
				t.Errorf("%s: %v, %v", name, g, err)
			}
		} else if err != nil || g.Epsilon != tc.want || g.Delta != 0 {
			t.Errorf("%s: %v, %v; want %v", name, g, err, tc.want)
		}
	}
	if _, err := (Options{Method: PLD}).Epsilon([]release.Release{release.One(noise)}, 0, release.ReplaceOne); !errors.Is(err, release.ErrParameter) {
		t.Errorf("by distributions at a delta of 0: %v", err)
	}
	if v, err := Calibrate(noise, 2, 0, release.ReplaceOne, 8); err != nil || v != (release.Rational{Num: 40, Den: 1}) {
		t.Errorf("the least scale is %v, %v", v, err)
	}
	c, err := Certify([]release.Release{release.Times(8, noise)}, 0, release.ReplaceOne)
	if err != nil || c.Check() != nil || c.Delta != 0 || c.Epsilon > 8.1 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := Certify([]release.Release{release.One(release.Gaussian{Sigma: 1, Contribution: release.Signed(1)})}, 0, release.ReplaceOne); err == nil {
		t.Errorf("certified at a delta of 0: %+v", c)
	}
	for _, m := range []release.Mechanism{release.Gaussian{Sigma: 1, Contribution: release.Signed(1)}, release.Response{Epsilon0: 1, Answers: 2}} {
		if v, err := Calibrate(m, 1, 1e-9, release.ReplaceOne, 1); !errors.Is(err, release.ErrUnsupported) {
			t.Errorf("%v: the least parameter is %v, %v", m, v, err)
		}
	}
}
