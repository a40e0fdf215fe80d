package pine

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-agg/starling/vdaf"
)

func squareOf(e []int64) *big.Int {
	sum := new(big.Int)
	for _, x := range e {
		b := big.NewInt(x)
		sum.Add(sum, b.Mul(b, b))
	}
	return sum
}

func TestEncodeRounds(t *testing.T) {
	v := must(New(Params{Field: Field64, Dimension: 9, FracBits: 2, Norm: 100}))
	x := []float64{0.125, 0.375, -0.125, -0.375, 0.1249, 0.1251, 5e-324, -0.626, math.Copysign(0, -1)}
	want := []int64{0, 2, 0, -2, 0, 1, 0, -3, 0}
	if got, err := Encode(v, x, Encoding{}); err != nil || !slices.Equal(got, want) {
		t.Errorf("Encode gives %d, %v; want %d", got, err, want)
	}
	y := make([]float32, len(x))
	for i := range x {
		y[i] = float32(x[i])
	}
	if got, err := Encode(v, y, Encoding{}); err != nil || !slices.Equal(got, want) {
		t.Errorf("Encode of float32 gives %d, %v; want %d", got, err, want)
	}
}

func TestEncodeRefuses(t *testing.T) {
	for _, f := range allFields {
		v := small(f, 3, 2)
		nonce := nonceOf(0)
		one := math.Ldexp(1, -v.p.FracBits)
		for _, c := range []struct {
			x    []float64
			want error
		}{
			{[]float64{0, 0}, ErrDimension}, {nil, ErrDimension}, {[]float64{0, 0, 0, 0}, ErrDimension},
			{[]float64{0, math.NaN(), 0}, ErrNotFinite}, {[]float64{math.Inf(1), 0, 0}, ErrNotFinite},
			{[]float64{0, 0, math.Inf(-1)}, ErrNotFinite},
			{[]float64{1 + one, 0, 0}, ErrNorm}, {[]float64{1, one, 0}, ErrNorm}, {[]float64{-1, 0, -one}, ErrNorm},
			{[]float64{1e300, 0, 0}, ErrNorm}, {[]float64{-math.MaxFloat64, math.MaxFloat64, 1}, ErrNorm},
			{[]float64{0.71, -0.71, 0}, ErrNorm}, {[]float64{0x1p32, 0, 0}, ErrNorm}, {[]float64{0x1p64, 0, 0}, ErrNorm},
			{[]float64{1, 0, 0}, nil}, {[]float64{0, 0, -1}, nil}, {[]float64{0.57, 0.57, -0.57}, nil},
		} {
			s, err := v.Shard(testCtx, c.x, &nonce)
			if !errors.Is(err, c.want) || (err == nil) != (s != nil) || err != nil && !errors.Is(err, vdaf.ErrMeasurement) {
				t.Errorf("field %d: %v: error is %v, want %v", f, c.x, err, c.want)
			}
		}
		for _, e := range [][]int64{{int64(v.bound) + 1, 0, 0}, {0, -int64(v.bound) - 1, 0}, {int64(v.bound), 1, 0},
			{math.MinInt64, 0, 0}, {math.MaxInt64, math.MaxInt64, math.MinInt64}} {
			if _, err := v.ShardIntegers(testCtx, e, &nonce); !errors.Is(err, ErrNorm) {
				t.Errorf("field %d: %d: error is %v", f, e, err)
			}
		}
		if _, err := v.ShardIntegers(testCtx, []int64{0}, &nonce); !errors.Is(err, ErrDimension) {
			t.Errorf("field %d: short integers: error is %v", f, err)
		}
	}
}

// Every finite vector encodes under Clip, to a norm at most B and not much less where it
// was above, in its own direction; what is well below the bound stays as it is.
func TestEncodeClips(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, p := range []Params{{Field: Field32, Dimension: 1000, FracBits: 15, Norm: 1},
		{Field: Field64, Dimension: 1000, FracBits: 24, Norm: 3.7}, {Field: Field128, Dimension: 1000, FracBits: 49, Norm: 1.9},
		{Field: Field32, Dimension: 1000, FracBits: 0, Norm: 3}} {
		v := must(New(p))
		b2 := new(big.Int).Mul(big.NewInt(int64(v.bound)), big.NewInt(int64(v.bound)))
		for trial := range 60 {
			for _, scale := range []float64{0, 1e-320, 1e-9, 0.5, 0.999, 1, 1.0001, 2, 1e9, 1e300} {
				x := make([]float64, p.Dimension)
				sum := 0.0
				for i := range x {
					if trial%3 == 0 || r.IntN(100) == 0 {
						x[i] = r.NormFloat64()
					}
					sum += x[i] * x[i]
				}
				if sum == 0 {
					x[0], sum = 1, 1
				}
				for i := range x {
					x[i] *= p.Norm * scale / math.Sqrt(sum)
				}
				e, err := Encode(v, x, Encoding{Clip: true, Randomized: trial%2 == 1})
				if err != nil {
					t.Fatalf("%+v, scale %v: %v", p, scale, err)
				}
				n := squareOf(e)
				if n.Cmp(b2) > 0 {
					t.Fatalf("%+v, scale %v: squared norm %d above %d", p, scale, n, b2)
				}
				if p.FracBits == 0 {
					continue // rounding is all there is
				}
				got, _ := new(big.Float).SetInt(n).Float64()
				norm := math.Sqrt(got) / float64(v.bound)
				if want := min(scale, 1); math.Abs(norm-want) > 1e-3 {
					t.Errorf("%+v, scale %v: norm is %v of the bound", p, scale, norm)
				}
				for i := range x {
					got, want := float64(e[i])/float64(v.bound), x[i]/p.Norm/max(1, scale)
					if scale >= 0.5 && math.Abs(got-want) > 2e-3 {
						t.Fatalf("%+v, scale %v: entry %d is %v, want %v", p, scale, i, got, want)
					}
				}
			}
		}
	}
}

// clip on integers against big ones: the largest at most |x|*B/norm, and no more than one
// unit below it.
func TestClipIntegers(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	for range 3000 {
		bound := uint64(1)<<r.IntN(50) + r.Uint64N(100)
		bound = min(bound, MaxBound)
		e := make([]int64, 1+r.IntN(20))
		for i := range e {
			e[i] = r.Int64N(1<<51) >> r.IntN(50)
			if r.IntN(2) == 0 {
				e[i] = -e[i]
			}
		}
		was, before := slices.Clone(e), squareOf(e)
		b2 := new(big.Int).Mul(new(big.Int).SetUint64(bound), new(big.Int).SetUint64(bound))
		clip(e, bound)
		if before.Cmp(b2) <= 0 {
			if !slices.Equal(e, was) {
				t.Fatalf("%d within %d became %d", was, bound, e)
			}
			continue
		}
		if after := squareOf(e); after.Cmp(b2) > 0 {
			t.Fatalf("%d became %d, above %d", was, e, bound)
		}
		norm, _ := new(big.Float).Sqrt(new(big.Float).SetInt(before)).Float64()
		for i := range e {
			exact := float64(was[i]) * float64(bound) / norm
			if d := math.Abs(exact) - math.Abs(float64(e[i])); d < -1e-6*math.Abs(exact)-1e-3 || d > 2+1e-6*math.Abs(exact) {
				t.Fatalf("%d by %d: entry %d became %d, want %v", was, bound, i, e[i], exact)
			}
		}
	}
	for _, c := range [][3]uint64{{0, 0, 0}, {0, 1, 1}, {0, 2, 2}, {0, 4, 2}, {0, 5, 3}, {1, 0, 1 << 32}, {1, 1, 1<<32 + 1},
		{1<<62 - 1, math.MaxUint64, 1 << 63}} {
		if got := ceilSqrt(c[0], c[1]); got != c[2] {
			t.Errorf("ceilSqrt(%d*2^64 + %d) = %d, want %d", c[0], c[1], got, c[2])
		}
	}
}

// Randomized rounding has the entry as its mean: n draws of a unit's fraction p have
// deviation sqrt(p(1-p)/n); the bound of 6 deviations fails one run in 5e8 for each of
// ten fractions.
func TestRandomizedRoundingIsUnbiased(t *testing.T) {
	const n = 100000
	v := must(New(Params{Field: Field64, Dimension: n, FracBits: 0, Norm: 1e6}))
	for i := range 10 {
		frac := float64(i) / 10
		for _, base := range []float64{0, 3, -4} {
			x := make([]float64, n)
			for j := range x {
				x[j] = base + frac
			}
			e, err := Encode(v, x, Encoding{Randomized: true})
			if err != nil {
				t.Fatal(err)
			}
			sum := 0.0
			for _, y := range e {
				if up := float64(y) - base; up != 0 && up != 1 {
					t.Fatalf("%v became %d", x[0], y)
				}
				sum += float64(y) - base
			}
			if dev := math.Sqrt(frac * (1 - frac) / n); math.Abs(sum/n-frac) > 6*dev+1e-12 {
				t.Errorf("%v has mean %v", base+frac, base+sum/n)
			}
		}
	}
}
