package accountant

import (
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// attack returns delta(epsilon) of looking at sum + C count, C = 1, when all others hold -C and one person +C: the
// person, if present and kept, moves it by 2; dummies move it by 1 each.
func attack(dummies uint64, dummyRate, sigma, rate, epsilon float64) float64 {
	const h, pad = 1. / 16, 10 // the sum over the grid converges exponentially
	n := float64(dummies)
	noise := func(x float64) float64 { return math.Exp(-x*x/(2*sigma*sigma)) / (sigma * math.Sqrt(2*math.Pi)) }
	weight := make([]float64, dummies+1)
	for d := range weight {
		k := float64(d)
		a, _ := math.Lgamma(n + 1)
		b, _ := math.Lgamma(k + 1)
		c, _ := math.Lgamma(n - k + 1)
		weight[d] = math.Exp(a - b - c + k*math.Log(dummyRate) + (n-k)*math.Log1p(-dummyRate))
	}
	density := func(x float64) float64 {
		s := 0.0
		for d, w := range weight {
			s += w * noise(x-float64(d))
		}
		return s
	}
	remove, add := 0.0, 0.0
	for x := -pad * sigma; x < n+2+pad*sigma; x += h {
		absent := density(x)
		present := (1-rate)*absent + rate*density(x-2)
		remove += h * max(0, present-math.Exp(epsilon)*absent)
		add += h * max(0, absent-math.Exp(epsilon)*present)
	}
	return max(remove, add)
}

func TestCountAttack(t *testing.T) {
	// Without dummies (a rate near zero) the attack beats what Poisson sampling would
	// claim at distance 1: so that claim is refused where the count is public, and stands
	// only together with a count that dummies hide.
	const sigma, rate = 1.0, .1
	inner := gaussian{sigma, release.Signed(1)}
	for _, e := range []float64{.3, 1.5} {
		naive, err := deltaOf(poissonSample{inner, rate}, e, release.AddRemove)
		if err != nil {
			t.Fatal(err)
		}
		if a := attack(1, 1e-9, sigma, rate, e); a < 1.2*naive.Delta {
			t.Errorf("epsilon %v: the attack reaches %v against a claim of %v: it should have won", e, a, naive.Delta)
		}
		for _, n := range []release.Neighbours{release.AddRemove, release.ZeroOut, release.ReplaceOne} {
			counted := release.One(release.Gaussian{Sigma: 2, Contribution: release.Signed(1)}).Sampled(release.CountedPoisson{Rate: rate, People: 100})
			if _, err := Delta([]release.Release{counted}, e, n); !errors.Is(err, release.ErrUnsupported) {
				t.Errorf("%v, %v: claimed, %v", counted, n, err)
			}
		}
		for _, dummies := range []struct {
			n    uint64
			rate float64
		}{{30, .5}, {100, .3}} {
			joint := poissonSample{composition{dummyCount{dummies.n, dummies.rate}, inner}, rate}
			g, err := deltaOf(joint, e, release.AddRemove)
			if err != nil {
				t.Fatal(err)
			}
			if a := attack(dummies.n, dummies.rate, sigma, rate, e); a > g.Delta {
				t.Errorf("%+v, epsilon %v: the attack reaches %v, claimed %v", dummies, e, a, g.Delta)
			}
			if g.Delta < naive.Delta {
				t.Errorf("%+v, epsilon %v: %v is below the sum alone, %v", dummies, e, g.Delta, naive.Delta)
			}
		}
		// A public count with sampling without replacement: the person is kept or not and
		// then holds +C or -C.
		fixed, err := deltaOf(fixedSample{inner, rate}, e, release.ReplaceOne)
		if err != nil {
			t.Fatal(err)
		}
		won := 0.0
		const h = 1. / 256
		pdf := func(x float64) float64 { return math.Exp(-x*x/2) / math.Sqrt(2*math.Pi) }
		for x := -14.0; x < 16; x += h {
			won += h * max(0, (1-rate)*pdf(x)+rate*pdf(x-2)-math.Exp(e)*pdf(x))
		}
		if won > fixed.Delta*(1+1e-6) {
			t.Errorf("epsilon %v: the attack reaches %v, claimed %v", e, won, fixed.Delta)
		}
		two, err := deltaOf(gaussian{sigma, release.Signed(1)}, math.Log1p(math.Expm1(e)/rate), release.ReplaceOne)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(fixed.Delta/(rate*two.Delta)-1) > 1e-3 { // the theorem: rate times the curve at the larger epsilon
			t.Errorf("epsilon %v: %v, by the theorem %v", e, fixed.Delta, rate*two.Delta)
		}
	}
}

// A count hidden by dummies of variance 50 sigma^2 costs about one per cent of epsilon.
func TestDummiesAreCheap(t *testing.T) {
	const sigma = 4.0
	inner := gaussian{sigma, release.Signed(1)}
	alone := epsilon(t, selfCompose{poissonSample{inner, .02}, 200}, 1e-6, release.AddRemove)
	both := epsilon(t, selfCompose{poissonSample{composition{inner, dummyCount{3200, .5}}, .02}, 200}, 1e-6, release.AddRemove)
	if r := both.Epsilon / alone.Epsilon; r < 1 || r > 1.03 {
		t.Errorf("with a hidden count %v, without %v", both.Epsilon, alone.Epsilon)
	}
}

func TestDummyCount(t *testing.T) {
	for _, tc := range []struct {
		n uint64
		q float64
	}{{1, .5}, {10, .3}, {300, .1}} {
		pmf := func(x int) float64 {
			if x < 0 || x > int(tc.n) {
				return 0
			}
			w := math.Pow(1-tc.q, float64(tc.n))
			for i := 1; i <= x; i++ {
				w *= float64(int(tc.n)-i+1) / float64(i) * tc.q / (1 - tc.q)
			}
			return w
		}
		for _, e := range []float64{0, .2, 1} {
			up, down := 0.0, 0.0
			for x := 0; x <= int(tc.n)+1; x++ {
				up += max(0, pmf(x-1)-math.Exp(e)*pmf(x))
				down += max(0, pmf(x)-math.Exp(e)*pmf(x-1))
			}
			g, err := deltaOf(dummyCount{tc.n, tc.q}, e, release.AddRemove)
			if err != nil {
				t.Fatal(err)
			}
			if want := max(up, down); math.Abs(g.Delta/want-1) > 1e-9 {
				t.Errorf("%+v, epsilon %v: %v, want %v", tc, e, g.Delta, want)
			}
		}
	}
	for _, d := range []dummyCount{{0, .5}, {10, 0}, {10, 1}, {10, math.NaN()}} {
		if _, err := epsilonOf(d, 1e-3, release.AddRemove); !errors.Is(err, release.ErrParameter) {
			t.Errorf("%+v: %v", d, err)
		}
	}
	for _, r := range []float64{0, 1.5, math.NaN()} {
		if _, err := epsilonOf(fixedSample{gauss(1), r}, 1e-3, release.ReplaceOne); !errors.Is(err, release.ErrParameter) {
			t.Errorf("rate %v: %v", r, err)
		}
	}
	if _, err := epsilonOf(fixedSample{gauss(1), .1}, 1e-3, release.AddRemove); !errors.Is(err, release.ErrUnsupported) {
		t.Error(err)
	}
}
