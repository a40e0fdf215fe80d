package accountant

import (
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// choose is C(n, k).
func choose(n, k int) float64 {
	if k < 0 || k > n {
		return 0
	}
	c := 1.0
	for i := range k {
		c = c * float64(n-i) / float64(i+1)
	}
	return c
}

// Several picks, against the sum over all outcomes of randomized responses: no claim
// below it, and no lower bound above; also where the person takes part at all with some
// probability.
func TestSeveralPicksExactly(t *testing.T) {
	for _, c := range []struct {
		e0   float64
		k, t int
	}{{1, 2, 3}, {1, 3, 5}, {.5, 4, 6}, {2, 3, 10}, {1, 2, 4}, {1, 3, 3}, {1, 7, 20}, {.3, 29, 100}} {
		for _, rate := range []float64{1, .1} {
			for _, e := range []float64{.2, .7, 1.3} {
				e *= c.e0 * rate
				up, down := 0.0, 0.0
				for j := range c.t + 1 { // answers that speak for the person
					q := choose(c.t, j) * math.Exp(float64(c.t-j)*c.e0) / math.Pow(1+math.Exp(c.e0), float64(c.t))
					ratio := 0.0
					for i := range c.k + 1 {
						ratio += choose(j, i) * choose(c.t-j, c.k-i) * math.Exp(float64(2*i-c.k)*c.e0) / choose(c.t, c.k)
					}
					ratio = 1 - rate + rate*ratio
					up += q * max(0, ratio-math.Exp(e))
					down += q * max(0, 1-math.Exp(e)*ratio)
				}
				want := max(up, down)
				event := event(allocation{Event: randomizedResponse{c.e0, 2}, Steps: uint64(c.t), Picks: uint64(c.k)})
				if rate < 1 {
					event = poissonSample{event, rate}
				}
				g, err := deltaOf(event, e, release.ZeroOut)
				if errors.Is(err, release.ErrUnsupported) && c.k == c.t && rate < 1 {
					continue // a composition
				}
				if err != nil {
					t.Fatal(err)
				}
				if g.Delta < want*(1-1e-9) || g.DeltaLower > want*(1+1e-9) || g.DeltaLower < .97*want-1e-6 {
					t.Errorf("%+v at rate %v, epsilon %v: %v to %v, exactly %v", c, rate, e, g.DeltaLower, g.Delta, want)
				}
			}
		}
	}
}

// Two of three discrete Gaussian releases, summed over all triples of outcomes.
func TestSeveralPicksOfDiscreteGaussians(t *testing.T) {
	const s2, r = 2.0, 22
	total := 0.0
	for y := -200; y <= 200; y++ {
		total += math.Exp(-float64(y*y) / (2 * s2))
	}
	p := func(y int) float64 { return math.Exp(-float64(y*y)/(2*s2)) / total }
	ratio := func(y int) float64 { return p(y-1) / p(y) }
	event := allocation{discrete(2, 1, release.Interval(1)), 3, 2}
	for _, e := range []float64{0, .3, .8, 1.6, 2.5} {
		up, down := 0.0, 0.0
		for x := -r; x <= r; x++ {
			for y := -r; y <= r; y++ {
				for z := -r; z <= r; z++ {
					q := p(x) * p(y) * p(z)
					s := (ratio(x)*ratio(y) + ratio(x)*ratio(z) + ratio(y)*ratio(z)) / 3
					up += q * max(0, s-math.Exp(e))
					down += q * max(0, 1-math.Exp(e)*s)
				}
			}
		}
		want := max(up, down)
		g, err := deltaOf(event, e, release.AddRemove)
		if err != nil {
			t.Fatal(err)
		}
		if g.Delta < want*(1-1e-9) || g.DeltaLower > want*(1+1e-9) || g.DeltaLower < .97*want || g.Delta > 2*want {
			t.Errorf("epsilon %v: [%v, %v], summed %v", e, g.DeltaLower, g.Delta, want)
		}
	}
}

// Blocks that differ in length, and a bound from below. PLD_accounting 2.0 has 3.429
// above for the first (with the same blocks, on a coarser grid), where blocks of
// floor(t/k) gave 3.576; nothing was known from below.
func TestSeveralPicksOfGaussians(t *testing.T) {
	for i, c := range []struct {
		sigma       float64
		picks, of   uint64
		runs        uint64
		delta       float64
		least, most float64
	}{
		{1.5, 3, 20, 2, 1e-6, 3.29, 3.4296},
		{3, 10, 100, 1, 1e-6, 1.473, 1.4923},
		{5, 50, 100, 1, 1e-6, 4.886, 4.92}, // below: the sum of the steps
		{1, 2, 100, 1, 1e-6, 1.51, 1.556},
	} {
		if i%2 == 1 && !patient() {
			continue
		}
		g := epsilon(t, selfCompose{allocated(c.sigma, c.picks, c.of), c.runs}, c.delta, release.AddRemove)
		if g.EpsilonLower < c.least || g.Epsilon > c.most || g.EpsilonLower > g.Epsilon {
			t.Errorf("%+v: [%v, %v]", c, g.EpsilonLower, g.Epsilon)
		}
	}
	// So many picks are accounted for from above only.
	g := epsilon(t, allocated(10, 100, 2050), 1e-6, release.AddRemove)
	long := allocation{gauss(10), 21, 1}
	short := allocation{gauss(10), 20, 1}
	blocks := epsilon(t, composition{selfCompose{long, 50}, selfCompose{short, 50}}, 1e-6, release.AddRemove)
	if g.Epsilon != blocks.Epsilon || g.EpsilonLower != 0 {
		t.Errorf("100 of 2050: [%v, %v], blocks %v", g.EpsilonLower, g.Epsilon, blocks.Epsilon)
	}
}
