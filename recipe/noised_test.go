package recipe

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// Draws that are longer than what is proved are drawn again, at odds that the test
// chooses: about one in two.
func TestNoisyVectorDrawsAgain(t *testing.T) {
	const dim, variance = 4, 10000
	q := Vector{Dimension: dim, Bound: 185, FracBits: 10, Proof: Pine32, Rounding: RoundNearest}
	noised, err := Gaussian{Variance: Rational{Num: variance, Den: 1}, Clip: 10}.Noised(q)
	if err != nil {
		t.Fatal(err)
	}
	outer := 0
	for range 500 {
		units, err := noised(make([]float64, dim))
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, x := range units {
			sum += x * x
		}
		if sum > 185*185 {
			t.Fatalf("squared norm %d", sum)
		}
		if sum > 130*130 {
			outer++
		}
	}
	// chi-square with 4 degrees of freedom: P(1.69 < X <= 3.4225)/P(X <= 3.4225) = 0.589;
	// 0.12 is 5.5 deviations.
	if f := float64(outer) / 500; math.Abs(f-0.589) > 0.12 {
		t.Errorf("%v of the draws are in the outer shell", f)
	}
}

func TestNormWithin(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	check := func(e []int64, bound uint64) {
		t.Helper()
		sum := new(big.Int)
		for _, x := range e {
			y := big.NewInt(x)
			sum.Add(sum, y.Mul(y, y))
		}
		b := new(big.Int).SetUint64(bound)
		if want := sum.Cmp(b.Mul(b, b)) <= 0; normWithin(e, bound) != want {
			t.Errorf("%v within %d: %v", e, bound, !want)
		}
	}
	check(nil, 0)
	for _, e := range [][]int64{{3, -4}, {math.MaxInt64, math.MaxInt64, math.MaxInt64, math.MaxInt64, -math.MaxInt64}, {-1 << 49, 1}, {-1}} {
		for _, bound := range []uint64{0, 1, 4, 5, 6, 1 << 49, 1<<50 - 1} {
			check(e, bound)
		}
	}
	for range 1000 {
		bound := r.Uint64N(1 << 50)
		check([]int64{int64(bound), r.Int64N(2)}, bound)
		check([]int64{r.Int64N(1<<50) - 1<<49, r.Int64N(1<<50) - 1<<49, r.Int64N(1 << 20)}, bound)
	}
}
