package binomial

import (
	"math"
	"testing"
)

func TestMassAndWindow(t *testing.T) {
	for _, tc := range []struct{ n, p float64 }{{1, .3}, {5, .5}, {30, .01}, {1000, .37}, {1e5, .5}} {
		from, to := Window(tc.n, tc.p, 1e-18)
		sum, mean := 0.0, 0.0
		for k := from; k <= to; k++ {
			w := Mass(tc.n, k, tc.p)
			sum += w
			mean += w * k
		}
		if math.Abs(sum-1) > 1e-12 || math.Abs(mean/(tc.n*tc.p)-1) > 1e-12 {
			t.Errorf("n = %v, p = %v: sums to %v, mean %v", tc.n, tc.p, sum, mean)
		}
	}
	if got := Mass(10, 3, .2); math.Abs(got/0.201326592-1) > 1e-13 {
		t.Errorf("P(Bin(10, 0.2) = 3) = %v", got)
	}
}

// Against values computed with 50 digits. The first two have means of which a float64
// knows no more than some 10^-5.
func TestMassOfManyTrials(t *testing.T) {
	for _, tc := range []struct{ n, k, p, want float64 }{
		{521623154001, 225223302721, 0.43176724449361487, 1.3579742481218703238e-27},
		{1e12, 499994000001, .5, 4.2928704918631117822e-38},
		{1e9, 299900001, .3, 1.2561662980980753494e-15},
		{1e6, 2003, .0019, 0.00057152026514418760328},
		{40, 39, .8, 0.0013292279957849184554},
	} {
		if got := Mass(tc.n, tc.k, tc.p); math.Abs(got/tc.want-1) > 1e-13 {
			t.Errorf("P(Bin(%v, %v) = %v) = %v, want %v: off by %.1e", tc.n, tc.p, tc.k, got, tc.want, got/tc.want-1)
		}
	}
}
