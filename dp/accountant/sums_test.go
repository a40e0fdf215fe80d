package accountant

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// sumDelta is delta(epsilon) of noise of the given law, shifted by d, with each record
// kept with probability rate: the larger of both directions.
func sumDelta(law func(z int) float64, reach, d int, rate, epsilon float64) float64 {
	up, down := 0.0, 0.0
	for z := -reach; z <= reach; z++ {
		q := law(z)
		p := (1-rate)*q + rate*law(z-d)
		up += max(0, p-math.Exp(epsilon)*q)
		down += max(0, q-math.Exp(epsilon)*p)
	}
	return max(up, down)
}

// twice is the law of the sum of two draws, by the definition.
func twice(weight func(y int) float64, reach int) func(z int) float64 {
	total := 0.0
	for y := -reach; y <= reach; y++ {
		total += weight(y)
	}
	memo := map[int]float64{}
	return func(z int) float64 {
		if p, ok := memo[z]; ok {
			return p
		}
		s := 0.0
		for y := -reach; y <= reach; y++ {
			s += weight(y) / total * weight(z-y) / total
		}
		memo[z] = s
		return s
	}
}

func TestSumsOfTwoServers(t *testing.T) {
	laplace := func(b float64) func(int) float64 {
		return func(y int) float64 { return math.Exp(-math.Abs(float64(y)) / b) }
	}
	gauss := func(s2 float64) func(int) float64 {
		return func(y int) float64 { return math.Exp(-float64(y*y) / (2 * s2)) }
	}
	for _, c := range []struct {
		e     event
		law   func(int) float64
		reach int
		d     int
	}{
		{discreteLaplaceSum{release.Rational{Num: 3, Den: 1}, release.Signed(1)}, twice(laplace(3), 150), 150, 1},
		{discreteLaplaceSum{release.Rational{Num: 5, Den: 2}, release.Signed(4)}, twice(laplace(2.5), 150), 150, 4},
		{discreteLaplaceSum{release.Rational{Num: 1, Den: 2}, release.Signed(1)}, twice(laplace(.5), 60), 60, 1},
		{discreteGaussian{Sigma2: release.Rational{Num: 1, Den: 2}, Contribution: release.Signed(1), Honest: 2}, twice(gauss(.5), 30), 30, 1},
		{discreteGaussian{Sigma2: release.Rational{Num: 2, Den: 1}, Contribution: release.Signed(3), Honest: 2}, twice(gauss(2), 60), 60, 3},
		{discreteGaussian{Sigma2: release.Rational{Num: 9, Den: 1}, Contribution: release.Signed(1), Honest: 2}, twice(gauss(9), 120), 120, 1},
	} {
		for _, rate := range []float64{1, .1} {
			for _, e := range []float64{.05, .2, .6, 1.1} {
				want := sumDelta(c.law, c.reach, c.d, rate, e)
				if want < 1e-12 {
					continue
				}
				g, err := Options{Method: PLD}.delta(poissonSample{c.e, rate}, e, release.AddRemove)
				if err != nil {
					t.Fatal(err)
				}
				if g.Delta < want*(1-1e-9) || g.DeltaLower > want*(1+1e-9) || g.Delta > want*(1+1e-6)+1e-14 {
					t.Errorf("%+v, rate %v, epsilon %v: %v to %v, by summing %v", c.e, rate, e, g.DeltaLower, g.Delta, want)
				}
			}
		}
	}
}

func TestContinuousSum(t *testing.T) {
	f := func(x float64) float64 { return (1 + math.Abs(x)) * math.Exp(-math.Abs(x)) / 4 }
	const h = 3e-4
	for _, mu := range []float64{.1, 1, 4} {
		g := laplaceSumPair{mu}
		for _, x := range []float64{-3, 0, mu / 3, mu / 2, mu, mu + 2, mu + 20} {
			if l := math.Log(f(x-mu) / f(x)); math.Abs(g.outcome(l)-x) > 1e-6*(1+x*x) {
				t.Errorf("mu %v: loss %v is at %v, want %v", mu, l, g.outcome(l), x)
			}
		}
		for _, rate := range []float64{1, .1} {
			epsilons := [...]float64{.01, .05, .3}
			var odds, up, down [len(epsilons)]float64
			for i, e := range epsilons {
				odds[i] = math.Exp(e)
			}
			for x := -40 + h/2; x < 40+mu; x += h {
				q := f(x)
				p := (1-rate)*q + rate*f(x-mu)
				for i, e := range odds {
					up[i] += h * max(0, p-e*q)
					down[i] += h * max(0, q-e*p)
				}
			}
			for i, e := range epsilons {
				want := max(up[i], down[i])
				got, err := deltaOf(poissonSample{laplaceSum{1 / mu, release.Signed(1)}, rate}, e, release.AddRemove)
				if err != nil {
					t.Fatal(err)
				}
				if got.Delta < want*(1-1e-6)-1e-12 || got.DeltaLower > want*(1+1e-6)+1e-12 || got.Delta > want*(1+1e-3)+1e-9 {
					t.Errorf("mu %v, rate %v, epsilon %v: %v to %v, by quadrature %v", mu, rate, e, got.DeltaLower, got.Delta, want)
				}
			}
		}
	}
}

// Several coordinates are at most as telling as they are one after the other, and not
// much less.
func TestSumOnCoordinates(t *testing.T) {
	for _, k := range []uint64{2, 5} {
		all := epsilon(t, poissonSample{discreteLaplaceSum{release.Rational{Num: 6, Den: 1}, release.MultiHot(k)}, .1}, 1e-6, release.AddRemove)
		one := epsilon(t, poissonSample{discreteLaplace{release.Rational{Num: 6, Den: 1}, release.Signed(float64(k))}, .1}, 1e-6, release.AddRemove)
		if !(all.Epsilon > 0 && all.Epsilon < one.Epsilon) {
			t.Errorf("%d coordinates: %v with two servers, one shift as far with one %v", k, all.Epsilon, one.Epsilon)
		}
	}
	plain := epsilon(t, discreteLaplaceSum{release.Rational{Num: 6, Den: 1}, release.MultiHot(3)}, 1e-6, release.AddRemove)
	steps := epsilon(t, selfCompose{discreteLaplaceSum{release.Rational{Num: 6, Den: 1}, release.OneHot()}, 3}, 1e-6, release.AddRemove)
	if math.Abs(plain.Epsilon/steps.Epsilon-1) > 1e-3 {
		t.Errorf("three coordinates cost %v, three releases %v", plain.Epsilon, steps.Epsilon)
	}
}
