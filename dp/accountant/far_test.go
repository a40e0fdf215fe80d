package accountant

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// Few releases about very few people: what one of them tells in rare cases outweighs all
// else under a tilt. The answers are between dp-accounting 0.6.0's optimistic and
// pessimistic ones at an interval of 10^-5.
func TestFarLosses(t *testing.T) {
	for _, c := range []struct {
		sigma, rate float64
		n           uint64
		low, high   float64 // of dp-accounting
	}{
		{.5, 1e-5, 10, .46812140, .46814739}, {.7, 1e-4, 30, .34435229, .34450201}, {1, 1e-3, 5, .24972196, .24974725},
		{3, 1e-4, 4, .00044220, .00046276},
	} {
		g := epsilon(t, selfCompose{sampled(c.sigma, c.rate, 1), c.n}, 1e-10, release.AddRemove)
		if g.Epsilon < c.low || g.Epsilon > c.high*(1+1e-4) || g.EpsilonLower > c.high || g.EpsilonLower < .99*g.Epsilon {
			t.Errorf("%+v: %v to %v", c, g.EpsilonLower, g.Epsilon)
		}
	}
}

// Releases that single a person out once in 10,000 times, against the sum over all of
// their outcomes.
func TestFarLossesExactly(t *testing.T) {
	const e0, rate = 9.0, 1e-4
	p := 1 / (1 + math.Exp(-e0))
	for _, n := range []int{2, 3, 6} {
		exact := func(e float64, back bool) float64 {
			d := 0.0
			for k := range n + 1 { // answers of the rarer kind
				choose := 1.0
				for i := range k {
					choose *= float64(n-i) / float64(i+1)
				}
				mixed := math.Pow((1-rate)*(1-p)+rate*p, float64(k)) * math.Pow((1-rate)*p+rate*(1-p), float64(n-k))
				plain := math.Pow(1-p, float64(k)) * math.Pow(p, float64(n-k))
				if back {
					mixed, plain = plain, mixed
				}
				d += choose * max(0, mixed-math.Exp(e)*plain)
			}
			return d
		}
		for _, e := range []float64{.1, .3, .5, .55, .7, 1} {
			delta := max(exact(e, false), exact(e, true))
			if delta < 1e-14 {
				continue
			}
			g := epsilon(t, selfCompose{poissonSample{randomizedResponse{e0, 2}, rate}, uint64(n)}, delta, release.AddRemove)
			if g.Epsilon < e*(1-1e-9) || g.EpsilonLower > e*(1+1e-9) || g.Epsilon > e*(1+1e-3) {
				t.Errorf("%d releases, delta %v: %v to %v, exactly %v", n, delta, g.EpsilonLower, g.Epsilon, e)
			}
		}
	}
}
