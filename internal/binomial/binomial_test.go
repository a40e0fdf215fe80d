package binomial

import (
	"math"
	"math/big"
	"testing"
)

func TestBinomialAgainstRationals(t *testing.T) {
	for _, p := range []float64{0.5, 0.25, 0.0625, 0.875} {
		for _, n := range []int64{1, 2, 3, 17, 40, 200} {
			num, q := new(big.Rat).SetFloat64(p), new(big.Rat).SetFloat64(1-p)
			term := func(x int64) *big.Rat {
				r := new(big.Rat).SetInt(new(big.Int).Binomial(n, x))
				for range x {
					r.Mul(r, num)
				}
				for range n - x {
					r.Mul(r, q)
				}
				return r
			}
			above := new(big.Rat)
			for x := n; x >= 0; x-- {
				v := term(x)
				above.Add(above, v)
				want, _ := v.Float64()
				g, rel := PMF(float64(x), float64(n), p, 1-p)
				if math.Abs(g-want) > rel*want {
					t.Fatalf("PMF(%d; %d, %v) = %g, want %g within %g", x, n, p, g, want, rel)
				}
				wantTail, _ := above.Float64()
				lo, hi := Tail(float64(x), float64(n), p, 1-p)
				if !(lo <= wantTail && wantTail <= hi && hi-lo <= 1e-11*hi+4e-15) {
					t.Fatalf("Tail(%d; %d, %v) = [%g, %g], want %g", x, n, p, lo, hi, wantTail)
				}
			}
			for _, xi := range []float64{-0.5, 0, 0.3, float64(n) / 3, float64(n) - 0.75, float64(n)} {
				want := new(big.Rat)
				for x := int64(0); x <= n; x++ {
					d := new(big.Rat).SetFloat64(float64(x) - xi)
					if d.Sign() > 0 {
						want.Add(want, d.Mul(d, term(x)))
					}
				}
				w, _ := want.Float64()
				lo, hi := Excess(xi, float64(n), p, 1-p, 0)
				if !(lo <= w*(1+1e-15) && w <= hi*(1+1e-15) && hi-lo <= 1e-10*hi+1e-299) {
					t.Fatalf("Excess(%v; %d, %v) = [%g, %g], want %g", xi, n, p, lo, hi, w)
				}
			}
		}
	}
	// The two ways of excess agree where they meet.
	for _, z := range []float64{-3, 0, 0.5, 3, 8} {
		n, p := 1e7, 0.25
		xi := n*p + z*math.Sqrt(n*p*(1-p)) + 0.3
		lo, hi := Excess(xi, n, p, 1-p, 0)
		l, h := largeExcess(xi, n, p, 1-p, 0)
		if !(l <= hi && lo <= h && h-l <= 1e-8*h && hi-lo <= 1e-8*hi) {
			t.Errorf("excess at %v sigma: [%g, %g] and [%g, %g]", z, lo, hi, l, h)
		}
	}
	// A large law: the tail against the sum of its terms.
	n, p := 1e9, 0.37
	sigma := math.Sqrt(n * p * (1 - p))
	for _, z := range []float64{0, 0.5, 3, 8, 30} {
		from := math.Ceil(n*p + z*sigma)
		var s Sum
		g, _ := PMF(from, n, p, 1-p)
		for x := from; g > 0 && x < from+40*sigma; x++ {
			s.Add(g)
			g *= (n - x) / (x + 1) * (p / (1 - p))
		}
		lo, hi := Tail(from, n, p, 1-p)
		if !(lo <= s.Value()*(1+1e-9) && s.Value() <= hi*(1+1e-9) && hi-lo < 1e-8*hi) {
			t.Errorf("tail at %v sigma: [%g, %g], sum %g", z, lo, hi, s.Value())
		}
	}
}
