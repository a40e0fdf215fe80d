package binomial

import (
	"math"
	"testing"
)

func TestPMF(t *testing.T) {
	for _, tc := range []struct{ n, p float64 }{{1, .3}, {5, .5}, {30, .01}, {1000, .37}, {1e5, .5}} {
		from, to := Window(tc.n, tc.p, 1e-18)
		sum, mean := 0.0, 0.0
		for k := from; k <= to; k++ {
			w := PMF(tc.n, k, tc.p)
			sum += w
			mean += w * k
		}
		if math.Abs(sum-1) > 1e-12 || math.Abs(mean/(tc.n*tc.p)-1) > 1e-12 {
			t.Errorf("n = %v, p = %v: sums to %v, mean %v", tc.n, tc.p, sum, mean)
		}
	}
	if got := PMF(10, 3, .2); math.Abs(got/0.201326592-1) > 1e-13 {
		t.Errorf("P(Bin(10, 0.2) = 3) = %v", got)
	}
}
