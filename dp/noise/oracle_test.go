package noise

import (
	"crypto/rand"
	"fmt"
	"math"
	"math/big"
	"testing"
)

// An oracle is the same sampler in integers of any size: it reads the same bits, so it
// draws the same numbers.
type oracle struct{ s *source }

func natural(x uint64) *big.Int { return new(big.Int).SetUint64(x) }

// uniform is uniform in [0, n): the high word of word times n, unless the low word is
// among the first 2^64 mod n.
func (o oracle) uniform(n uint64) *big.Int {
	modulus := new(big.Int).Lsh(big.NewInt(1), 64)
	reject := new(big.Int).Mod(modulus, natural(n))
	for {
		high, low := new(big.Int).DivMod(new(big.Int).Mul(natural(o.s.uint64()), natural(n)), modulus, new(big.Int))
		if low.Cmp(reject) >= 0 {
			return high
		}
	}
}

// bernoulli compares a uniform real with x/den, 16 bits, 48 bits and then 64 bits at a
// time.
func (o oracle) bernoulli(x, den *big.Int) bool {
	rest := x
	for i := 0; ; i++ {
		size, u := uint(64), uint64(0)
		switch i {
		case 0:
			size, u = 16, o.s.uint16()
		case 1:
			size, u = 48, o.s.uint16()<<32|o.s.uint16()<<16|o.s.uint16()
		default:
			if rest.Sign() == 0 {
				return false
			}
			u = o.s.uint64()
		}
		var digit *big.Int
		digit, rest = new(big.Int).DivMod(new(big.Int).Lsh(rest, size), den, new(big.Int))
		if c := natural(u).Cmp(digit); c != 0 {
			return c < 0
		}
	}
}

// exp is true with probability e^(-x/den), 0 <= x <= den: the first failure of
// Bernoulli(x/(den k)), k = 1, 2, ..., is at an odd k. The coin of 1/k is tossed first,
// and that of 1/2 takes one bit.
func (o oracle) exp(x, den *big.Int) bool {
	if x.Sign() == 0 {
		return true
	}
	for k := int64(1); ; k++ {
		falls := k == 2 && !o.s.bit() || k > 2 && !o.bernoulli(big.NewInt(1), big.NewInt(k))
		if falls || x.Cmp(den) < 0 && !o.bernoulli(x, den) {
			return k%2 == 1
		}
	}
}

func (o oracle) laplace(t, s *big.Int) (y *big.Int, negative bool) {
	one := big.NewInt(1)
	for {
		u := o.uniform(t.Uint64())
		if !o.exp(u, t) {
			continue
		}
		for o.exp(one, one) {
			u.Add(u, t)
		}
		y = u.Quo(u, s)
		if negative = o.s.bit(); y.Sign() != 0 || !negative {
			return y, negative
		}
	}
}

func (o oracle) gaussian(num, den *big.Int) *big.Int {
	m := new(big.Int).Sqrt(new(big.Int).Quo(num, den))
	if m.Sign() == 0 {
		m.SetInt64(1)
	}
	one, twice := big.NewInt(1), new(big.Int).Lsh(num, 1)
	for {
		y, negative := o.laplace(num, new(big.Int).Mul(den, m))
		d := new(big.Int).Sub(y, m)
		whole, rest := new(big.Int).DivMod(d.Mul(d, d).Mul(d, den), twice, new(big.Int))
		accepted := true
		for ; accepted && whole.Sign() > 0; whole.Sub(whole, one) {
			accepted = o.exp(one, one)
		}
		if !accepted || !o.exp(rest, twice) {
			continue
		}
		if negative {
			y.Neg(y)
		}
		return y
	}
}

// Every draw of the samplers is the draw of math/big from the same bits, at sizes where a
// word that is too short would show.
func TestDrawsMatchBigIntegers(t *testing.T) {
	draws := make([]int64, 1000)
	check := func(name string, seed byte, sample func([]int64), draw func(oracle) *big.Int) {
		t.Helper()
		sample(draws)
		var s source
		s.init(seeded(seed), len(draws))
		for i, got := range draws {
			if want := draw(oracle{&s}); !want.IsInt64() || want.Int64() != got {
				t.Errorf("%s: draw %d is %d, want %v", name, i, got, want)
				return
			}
		}
	}
	for i, c := range [][2]uint64{{1, 4}, {1, 1}, {100, 7}, {1 << 40, 1}, {655360 * 655360, 1}, {1 << 62, 1}, {1<<63 - 1, 2},
		{1<<63 - 1, 1<<63 - 1}, {1 << 61, 1<<63 - 1}, {1<<63 - 1, 1<<63 - 2}, {1<<63 - 25, 1 << 31}} {
		check(fmt.Sprintf("discrete Gaussian, sigma^2 = %d/%d", c[0], c[1]), byte(100+i),
			gaussian(t, c[0], c[1], byte(100+i)).Sample,
			func(o oracle) *big.Int {
				g := new(big.Int).GCD(nil, nil, natural(c[0]), natural(c[1]))
				return o.gaussian(new(big.Int).Quo(natural(c[0]), g), g.Quo(natural(c[1]), g))
			})
	}
	for i, c := range [][2]uint64{{1, 1}, {1, 3}, {10, 1}, {1 << 40, 1}, {1<<63 - 1, 1 << 23}, {1, 1<<63 - 1}, {1<<63 - 1, 1<<63 - 2}} {
		check(fmt.Sprintf("discrete Laplace, scale %d/%d", c[0], c[1]), byte(150+i),
			laplace(t, c[0], c[1], byte(150+i)).Sample,
			func(o oracle) *big.Int {
				g := new(big.Int).GCD(nil, nil, natural(c[0]), natural(c[1]))
				y, negative := o.laplace(new(big.Int).Quo(natural(c[0]), g), g.Quo(natural(c[1]), g))
				if negative {
					y.Neg(y)
				}
				return y
			})
	}
}

// At sigma = 2^20, the draws in cells of sigma/8 have the normal law (whose cells differ
// from the discrete ones by less than 10^-6 of themselves): n = 2^19, false-reject rate
// 1e-6. A sigma that is 2 % off either way is seen.
func TestDistributionAtLargeSigma(t *testing.T) {
	draws := make([]int64, 1<<19)
	for i, c := range []struct {
		sigma uint64
		good  bool
	}{{1 << 20, true}, {1<<20 - 1<<20/50, false}, {1<<20 + 1<<20/50, false}} {
		g := gaussian(t, c.sigma*c.sigma, 1, byte(200+i))
		g.Sample(draws)
		for j, y := range draws {
			draws[j] = y >> 17
		}
		stat, limit := chiSquare(draws, 26, func(cell int64) float64 {
			a := float64(cell) / 8
			return (math.Erfc(a/math.Sqrt2) - math.Erfc((a+.125)/math.Sqrt2)) / 2
		})
		if (stat <= limit) != c.good {
			t.Errorf("sigma %d: chi-square %.1f, limit %.1f", c.sigma, stat, limit)
		}
	}
}

// 2^18 draws at the sizes in use: what an aggregator adds, sizes that are no power of
// two, small ones, the largest.
func BenchmarkDiscreteGaussian(b *testing.B) {
	for _, c := range []struct {
		name     string
		num, den uint64
	}{{"sigma=2^20", 1 << 40, 1}, {"sigma=655360", 655360 * 655360, 1}, {"sigma=5.1", 2601, 100}, {"sigma=1/2", 1, 4},
		{"sigma=2^31", 1 << 62, 1}} {
		b.Run(c.name, func(b *testing.B) {
			g, err := NewDiscreteGaussian(c.num, c.den)
			if err != nil {
				b.Fatal(err)
			}
			dst := make([]int64, 1<<18)
			for b.Loop() {
				g.Sample(dst)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(dst)), "ns/draw")
		})
	}
}

// The same from math/big, for comparison.
func BenchmarkOracle(b *testing.B) {
	var s source
	s.init(rand.Reader, 1<<18)
	num, den := natural(1<<40), natural(1)
	draws := 0
	for b.Loop() {
		oracle{&s}.gaussian(num, den)
		draws++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(draws), "ns/draw")
}
