package accountant

import (
	"math"
	"testing"
)

// Several picks, against the sum over all outcomes of randomized responses: no claim below it, and no lower bound above.
func TestSeveralPicksExactly(t *testing.T) {
	choose := func(n, k int) float64 {
		if k < 0 || k > n {
			return 0
		}
		c := 1.0
		for i := range k {
			c = c * float64(n-i) / float64(i+1)
		}
		return c
	}
	for _, c := range []struct {
		e0   float64
		k, t int
	}{{1, 2, 3}, {1, 3, 5}, {.5, 4, 6}, {2, 3, 10}, {1, 2, 4}, {1, 3, 3}} {
		for _, e := range []float64{.2, .7, 1.3} {
			e *= c.e0
			up, down := 0.0, 0.0
			for j := range c.t + 1 { // answers that speak for the person
				q := choose(c.t, j) * math.Exp(float64(c.t-j)*c.e0) / math.Pow(1+math.Exp(c.e0), float64(c.t))
				ratio := 0.0
				for i := range c.k + 1 {
					ratio += choose(j, i) * choose(c.t-j, c.k-i) * math.Exp(float64(2*i-c.k)*c.e0) / choose(c.t, c.k)
				}
				up += q * max(0, ratio-math.Exp(e))
				down += q * max(0, 1-math.Exp(e)*ratio)
			}
			want := max(up, down)
			g, err := Delta(Allocated{Event: RandomizedResponse{c.e0, 2}, Steps: uint64(c.t), Picks: uint64(c.k), Count: CountHidden}, e, ZeroOut)
			if err != nil {
				t.Fatal(err)
			}
			if g.Delta < want*(1-1e-9) || g.DeltaLower > want*(1+1e-9) {
				t.Errorf("%+v, epsilon %v: %v to %v, exactly %v", c, e, g.DeltaLower, g.Delta, want)
			}
		}
	}
}
