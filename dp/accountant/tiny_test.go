package accountant

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// TestLowerBoundsAtTinyDeltas: what lies outside of a window is counted as infinitely
// telling above, and must not be below, where delta is of its order.
func TestLowerBoundsAtTinyDeltas(t *testing.T) {
	// holds computes delta(epsilon) of one of steps answers at e0, both ways, from all
	// numbers of ones.
	holds := func(e0, steps, epsilon float64) float64 {
		f, e := 1/(1+math.Exp(e0)), math.Exp(epsilon)
		remove, add := 0.0, 0.0
		ln := steps * math.Log1p(-f)
		for x := 0.0; x <= steps; x++ {
			s, w := (x*math.Exp(e0)+(steps-x)*math.Exp(-e0))/steps, math.Exp(ln)
			remove += w * max(0, s-e)
			add += w * max(0, 1-e*s)
			ln += math.Log((steps-x)/(x+1)) - e0
		}
		return max(remove, add)
	}
	for _, tc := range []struct {
		e0    float64
		steps uint64
		delta float64
	}{{.5, 1000, 2e-18}, {.5, 1000, 1e-16}, {2, 3000, 2e-18}, {1, 20000, 1e-17}, {1, 20000, 1e-6}} {
		e := allocation{randomizedResponse{tc.e0, 2}, tc.steps, 1}
		g, err := epsilonOf(e, tc.delta, release.AddRemove)
		if err != nil {
			t.Errorf("%+v: %v", tc, err)
			continue
		}
		if d := holds(tc.e0, float64(tc.steps), g.EpsilonLower); d < tc.delta*(1-1e-9) {
			t.Errorf("%+v: nothing below %v is said to hold, and delta is %v there", tc, g.EpsilonLower, d)
		}
		if d := holds(tc.e0, float64(tc.steps), g.Epsilon); d > tc.delta*(1+1e-9) {
			t.Errorf("%+v: epsilon %v is claimed, and delta is %v there", tc, g.Epsilon, d)
		}
	}
	// One of two releases whose losses spread widely: what is cut off of the law of their
	// mean counts as infinitely telling.
	noise := gaussianPMF(289. / 1024)
	mid := len(noise) / 2
	pair := func(epsilon float64) float64 {
		remove, add, e := 0.0, 0.0, math.Exp(epsilon)
		const d, s2 = 2, 289. / 1024
		// at y, for the shift d
		ratio := func(y int) float64 { return math.Exp((2*d*float64(y) - d*d) / (2 * s2)) }
		for x := -mid; x <= mid; x++ {
			for y := -mid; y <= mid; y++ {
				q, s := noise[x+mid]*noise[y+mid], (ratio(x)+ratio(y))/2
				remove += q * max(0, s-e)
				add += q * max(0, 1-e*s)
			}
		}
		return max(remove, add)
	}
	for _, delta := range []float64{1e-6, 1e-12, 1e-16} {
		g, err := epsilonOf(allocation{discreteGaussian{Sigma2: release.Rational{Num: 289, Den: 1024}, Contribution: release.Signed(2)}, 2, 1}, delta, release.AddRemove)
		if err != nil {
			t.Errorf("two wide releases at %v: %v", delta, err)
			continue
		}
		if lo, hi := pair(g.EpsilonLower), pair(g.Epsilon); lo < delta*(1-1e-9) || hi > delta*(1+1e-9) || g.EpsilonLower < 0.99*g.Epsilon {
			t.Errorf("two wide releases at %v: [%v, %v], where delta is %v and %v", delta, g.EpsilonLower, g.Epsilon, lo, hi)
		}
	}
	// The count of dummies: N ~ Bin(n, q) against N + 1.
	count := func(n, q, epsilon float64) float64 {
		remove, add, e := 0.0, 0.0, math.Exp(epsilon)
		last, ln := 0.0, n*math.Log1p(-q)
		for x := 0.0; x <= n+1; x++ {
			w := math.Exp(ln)
			if x > n {
				w = 0
			}
			remove += max(0, last-e*w)
			add += max(0, w-e*last)
			last = w
			ln += math.Log((n-x)/(x+1)) + math.Log(q/(1-q))
		}
		return max(remove, add)
	}
	for _, tc := range []struct {
		n     uint64
		q     float64
		delta float64
	}{{100000, .1, 2e-30}, {100000, .1, 1e-28}, {3000, .3, 2e-30}, {50, .5, 1e-9}} {
		g, err := epsilonOf(dummyCount{tc.n, tc.q}, tc.delta, release.AddRemove)
		if err != nil {
			t.Errorf("%+v: %v", tc, err)
			continue
		}
		if d := count(float64(tc.n), tc.q, g.EpsilonLower); d < tc.delta*(1-1e-6) {
			t.Errorf("%+v: nothing below %v is said to hold, and delta is %v there", tc, g.EpsilonLower, d)
		}
		if d := count(float64(tc.n), tc.q, g.Epsilon); d > tc.delta*(1+1e-6) {
			t.Errorf("%+v: epsilon %v is claimed, and delta is %v there", tc, g.Epsilon, d)
		}
	}
}
