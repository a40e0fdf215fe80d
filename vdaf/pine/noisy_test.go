package pine

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// Draws of rounded Gaussians stand for discrete ones, whose variance is at most theirs.
// At 7 bits, one draw of 128 may exceed the bound: of 20,000 at most 156 are expected,
// more than 240 have odds below 1e-9. A bound that only one in 1e4 reaches would be
// useless, so some must come near it.
func TestNoisyBound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const draws = 20000
	for _, c := range []struct {
		bound uint64
		dim   int
		sigma float64
	}{{100, 1, 50}, {1000, 3, 100}, {0, 20, 10}, {1000, 20, 200}, {50, 100, 3}, {30, 100, 40}} {
		limit, err := NoisyBound(c.bound, c.dim, c.sigma, 7)
		if err != nil {
			t.Fatal(err)
		}
		over, near := 0, 0
		for range draws {
			sum := 0.0
			for i := range c.dim {
				x := math.RoundToEven(r.NormFloat64() * c.sigma)
				if i == 0 {
					x += float64(c.bound)
				}
				sum += x * x
			}
			if n := math.Sqrt(sum); n > float64(limit) {
				over++
			} else if n > float64(limit)*0.8 {
				near++
			}
		}
		if over > 240 || near < 20 {
			t.Errorf("%+v: bound %d: %d of %d above, %d within a fifth below", c, limit, over, draws, near)
		}
	}
}

func TestNoisyBoundLimits(t *testing.T) {
	least := func(bound uint64, dim int, sigma float64, bits int) uint64 {
		t.Helper()
		n, err := NoisyBound(bound, dim, sigma, bits)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	if n := least(1234, 10, 0, 40); n != 1234 {
		t.Errorf("without noise: %d", n)
	}
	if n := least(1<<30, 1<<18, 1e-3, 40); n > 1<<30+1 {
		t.Errorf("next to no noise: %d", n)
	}
	// In high dimension the norm concentrates: sqrt(B^2 + d*sigma^2) and a little.
	n := float64(least(1<<24, 1<<18, 1<<14, 40))
	if about := math.Sqrt(0x1p48 + 0x1p46); n < about || n > 1.01*about {
		t.Errorf("262,144 entries: %v, about %v wanted", n, about)
	}
	// One Gaussian: the bound is between the 2^-40 quantile, 7.1 deviations, and
	// Chernoff's sqrt(2*40*ln 2) + B.
	n = float64(least(0, 1, 1e6, 40))
	if n < 7.1e6 || n > 8.2e6 {
		t.Errorf("one entry of deviation 1e6: %v", n)
	}
	for bits := 2; bits < 60; bits++ {
		if least(1000, 50, 30, bits) < least(1000, 50, 30, bits-1) {
			t.Errorf("%d bits: the bound falls", bits)
		}
	}
	for _, c := range []struct {
		bound uint64
		dim   int
		sigma float64
		bits  int
	}{{MaxBound + 1, 1, 1, 40}, {1, 0, 1, 40}, {1, MaxDimension + 1, 1, 40}, {1, 1, -1, 40}, {1, 1, math.NaN(), 40},
		{1, 1, math.Inf(1), 40}, {1, 1, 1, 0}, {1, 1, 1, 1001}, {1, MaxDimension, MaxBound, 40}} {
		if _, err := NoisyBound(c.bound, c.dim, c.sigma, c.bits); !errors.Is(err, ErrParameter) {
			t.Errorf("%+v: error is %v", c, err)
		}
	}
}

// NoisyOdds is the inverse of NoisyBound, and stays above how often draws go over.
func TestNoisyOdds(t *testing.T) {
	odds := func(bound uint64, dim int, sigma float64, limit uint64) float64 {
		t.Helper()
		p, err := NoisyOdds(bound, dim, sigma, limit)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, c := range []struct {
		bound uint64
		dim   int
		sigma float64
	}{{1000, 3, 1000}, {1 << 24, 1 << 18, 1 << 14}, {1 << 20, 10000, 1 << 10}, {0, 1, 1e6}, {1 << 30, 1 << 20, 3}} {
		for _, bits := range []int{1, 7, 40, 100, 900} {
			limit, err := NoisyBound(c.bound, c.dim, c.sigma, bits)
			if err != nil {
				t.Fatal(err)
			}
			p, below := odds(c.bound, c.dim, c.sigma, limit), odds(c.bound, c.dim, c.sigma, limit*99/100-2)
			if bits := float64(bits); -math.Log2(p) < bits-1e-3 || !(below > p) {
				t.Errorf("%+v: odds of 2^%v at the bound of %v bits, %v below it", c, math.Log2(p), bits, below)
			}
		}
	}
	// One entry: the exact tail of a normal law is 2^-40 at 7.05 deviations; Chernoff's
	// method loses some bits.
	if p := -math.Log2(odds(0, 1, 1e6, 7050000)); p > 39 || p < 31 {
		t.Errorf("2^-%v at 7.05 deviations", p)
	}
	if p := odds(100, 4, 1, 50); p != 1 {
		t.Errorf("odds %v below the norm itself", p)
	}
	r := rand.New(rand.NewPCG(3, 4))
	const draws, dim, sigma, bound = 20000, 20, 50., 300
	for limit := uint64(330); limit < 480; limit += 30 {
		over := 0
		for range draws {
			sum := 0.0
			for i := range dim {
				x := math.RoundToEven(r.NormFloat64() * sigma)
				if i == 0 {
					x += bound
				}
				sum += x * x
			}
			if math.Sqrt(sum) > float64(limit) {
				over++
			}
		}
		most := odds(bound, dim, sigma, limit)
		// Hoeffding: 0.025 above the mean has odds below 1e-10.
		if float64(over)/draws > most+0.025 {
			t.Errorf("limit %d: %d of %d draws over, odds %v", limit, over, draws, most)
		}
	}
	for _, c := range []struct {
		bound uint64
		dim   int
		sigma float64
		limit uint64
	}{{MaxBound + 1, 1, 1, 1}, {1, 0, 1, 1}, {1, 1, 0, 1}, {1, 1, math.NaN(), 1}, {1, 1, 1, MaxBound + 1}} {
		if _, err := NoisyOdds(c.bound, c.dim, c.sigma, c.limit); !errors.Is(err, ErrParameter) {
			t.Errorf("%+v: error is %v", c, err)
		}
	}
}
