package noise

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/dp/noise/internal/twin"
)

func seeded(n byte) io.Reader { return rand.NewChaCha8([32]byte{n}) }

func gaussian(t testing.TB, num, den uint64, seed byte) *DiscreteGaussian {
	t.Helper()
	g, err := NewDiscreteGaussian(num, den)
	if err != nil {
		t.Fatal(err)
	}
	return twin.WithSource(g, seeded(seed)).(*DiscreteGaussian)
}

func laplace(t testing.TB, num, den uint64, seed byte) *DiscreteLaplace {
	t.Helper()
	l, err := NewDiscreteLaplace(num, den)
	if err != nil {
		t.Fatal(err)
	}
	return twin.WithSource(l, seeded(seed)).(*DiscreteLaplace)
}

// rejectRate is the false-reject rate of every statistical test below.
const rejectRate = 1e-6

// chiSquare returns Pearson's statistic of the draws against weights on -r..r (both tails
// pooled into the end cells), and the value it exceeds with probability at most
// rejectRate (Laurent and Massart 2000, lemma 1).
func chiSquare(draws []int64, r int64, weight func(y int64) float64) (stat, limit float64) {
	total := 0.0
	for y := -40 * r; y <= 40*r; y++ {
		total += weight(y)
	}
	expect := make([]float64, 2*r+1)
	for y := -40 * r; y <= 40*r; y++ {
		expect[min(max(y, -r), r)+r] += weight(y) / total * float64(len(draws))
	}
	seen := make([]float64, 2*r+1)
	for _, y := range draws {
		seen[min(max(y, -r), r)+r]++
	}
	cells := 0
	for i, e := range expect {
		if e < 20 {
			panic("test cell too small")
		}
		stat += (seen[i] - e) * (seen[i] - e) / e
		cells++
	}
	k, x := float64(cells-1), -math.Log(rejectRate)
	return stat, k + 2*math.Sqrt(k*x) + 2*x
}

func gaussianWeight(s2 float64) func(int64) float64 {
	return func(y int64) float64 { return math.Exp(-float64(y) * float64(y) / (2 * s2)) }
}

// n = 2^19 draws for each law; false-reject rate 1e-6 each.
func TestGoodnessOfFit(t *testing.T) {
	draws := make([]int64, 1<<19)
	for i, tc := range []struct {
		num, den uint64
		r        int64
	}{{1, 4, 1}, {1, 2, 2}, {1, 1, 3}, {16, 1, 14}, {100, 7, 13}, {1 << 60, 3 << 54, 16}, {400, 1, 70}} {
		gaussian(t, tc.num, tc.den, byte(i)).Sample(draws)
		stat, limit := chiSquare(draws, tc.r, gaussianWeight(float64(tc.num)/float64(tc.den)))
		if stat > limit {
			t.Errorf("discrete Gaussian %d/%d: chi-square %.1f > %.1f", tc.num, tc.den, stat, limit)
		}
	}
	for i, tc := range []struct {
		t, s uint64
		r    int64
	}{{1, 1, 6}, {1, 3, 2}, {10, 1, 60}, {7, 2, 25}, {1 << 62, 1 << 60, 25}} {
		laplace(t, tc.t, tc.s, byte(i)).Sample(draws)
		rate := float64(tc.s) / float64(tc.t)
		stat, limit := chiSquare(draws, tc.r, func(y int64) float64 { return math.Exp(-math.Abs(float64(y)) * rate) })
		if stat > limit {
			t.Errorf("discrete Laplace %d/%d: chi-square %.1f > %.1f", tc.t, tc.s, stat, limit)
		}
	}
}

// The fit test is sharp enough: a sampler whose sigma is 2 % off, either way, is caught
// (n = 2^19).
func TestGoodnessOfFitCatchesTwoPercent(t *testing.T) {
	draws := make([]int64, 1<<19)
	for i, num := range []uint64{16 * 9604, 16 * 10404} { // (0.98 and 1.02)^2 * 16
		gaussian(t, num, 10000, byte(50+i)).Sample(draws)
		if stat, limit := chiSquare(draws, 14, gaussianWeight(16)); stat <= limit {
			t.Errorf("sigma^2 = %d/10000 passes for 16: chi-square %.1f <= %.1f", num, stat, limit)
		}
	}
}

// moments returns (sum y)/sqrt(n v), and (sum y^2/v - n)/sqrt(n kurt): two variables of
// mean 0 and variance 1 if the draws have mean 0, variance v and E y^4 = (1 + kurt) v^2.
func moments(draws []int64, v, kurt float64) (first, second float64) {
	for _, y := range draws {
		first += float64(y)
		second += float64(y) * float64(y) / v
	}
	n := float64(len(draws))
	return first / math.Sqrt(n*v), (second - n) / math.Sqrt(n*kurt)
}

// n = 2^18 draws a law; each of the two statistics is within 5.2 standard errors but for
// 2e-7 (normal approximation; the heavier upper tail of the chi-square-like second one is
// below 1e-6 at this n).
func TestMoments(t *testing.T) {
	draws := make([]int64, 1<<18)
	check := func(name string, v, kurt float64) {
		t.Helper()
		if a, b := moments(draws, v, kurt); math.Abs(a) > 5.2 || math.Abs(b) > 5.2 {
			t.Errorf("%s: mean is %.2f and variance %.2f standard errors off", name, a, b)
		}
		if _, b := moments(draws, v*1.02*1.02, kurt); kurt == 2 && math.Abs(b) <= 5.2 {
			t.Errorf("%s: sigma off by 2 %% passes the variance test (%.2f standard errors)", name, b)
		}
	}
	for i, num := range []uint64{1 << 40, 1 << 20, 1<<62 - 1, 12345678901} {
		g := gaussian(t, num, 1, byte(i))
		g.Sample(draws)
		check("gaussian", g.Variance(), 2)
	}
	for i, num := range []uint64{1 << 20, 1 << 40} {
		l := laplace(t, num, 1, byte(i))
		l.Sample(draws)
		check("laplace", l.Variance(), 5)
	}
}

// At sigma = 2^20, the share of draws beyond z sigma (z = 1, 2, 3, 4) is binomial with
// the normal tail; n = 2^20, Bernstein's inequality at rejectRate. A sampler that is 2 %
// off in sigma is 40 % off at z = 4, which it would see.
func TestTails(t *testing.T) {
	const n = 1 << 20
	draws := make([]int64, n)
	off := func(num, den uint64, seed byte) bool {
		gaussian(t, num, den, seed).Sample(draws)
		for _, z := range []float64{1, 2, 3, 4} {
			p := math.Erfc(z / math.Sqrt2)
			count := 0.0
			for _, y := range draws {
				if math.Abs(float64(y)) > z*(1<<20) {
					count++
				}
			}
			x := math.Log(2 * 4 / rejectRate)
			if math.Abs(count-n*p) > math.Sqrt(2*n*p*x)+x {
				return true
			}
		}
		return false
	}
	if off(1<<40, 1, 7) {
		t.Error("tails are off")
	}
	if !off(1<<40/10000*10404, 1, 8) {
		t.Error("a sigma that is 2 % too large is not caught")
	}
}

func TestVarianceAndTail(t *testing.T) {
	if v := gaussian(t, 1, 2, 0).Variance(); math.Abs(v-0.4989791308) > 1e-10 {
		t.Errorf("variance at sigma^2 = 1/2 is %v", v)
	}
	if v := laplace(t, 1000, 1, 0).Variance(); math.Abs(v/2e6-1) > 1e-6 {
		t.Errorf("variance at scale 1000 is %v", v)
	}
	for _, s := range []Sampler{gaussian(t, 10000, 1, 0), laplace(t, 100, 1, 0)} {
		if a, b := s.Tail(1e-3), s.Tail(1e-12); a <= 0 || b <= a || b > 3000 {
			t.Errorf("tails %d and %d", a, b)
		}
		for _, p := range []float64{0, math.NaN(), -1} {
			if s.Tail(p) != math.MaxInt64 {
				t.Errorf("tail at %v is %d", p, s.Tail(p))
			}
		}
	}
	d := []int64{3, 4}
	if Zero.Sample(Zero{}, d); d[0] != 0 || d[1] != 0 || Zero.Variance(Zero{}) != 0 || Zero.Tail(Zero{}, .1) != 0 {
		t.Error("zero noise is not zero")
	}
}

func TestRanges(t *testing.T) {
	var e *RangeError
	for _, c := range [][2]uint64{{0, 1}, {1, 0}, {1 << 63, 1}, {1, 1 << 63}, {1, 5}, {249, 1000}, {1<<62 + 1, 1}} {
		if _, err := NewDiscreteGaussian(c[0], c[1]); !errors.As(err, &e) {
			t.Errorf("sigma^2 = %d/%d: %v", c[0], c[1], err)
		}
	}
	for _, c := range [][2]uint64{{0, 1}, {1, 0}, {1 << 63, 1}, {1, 1 << 63}, {1<<40 + 1, 1}, {1 << 62, 1 << 21}} {
		if _, err := NewDiscreteLaplace(c[0], c[1]); !errors.As(err, &e) {
			t.Errorf("scale = %d/%d: %v", c[0], c[1], err)
		}
	}
	// The corners work, without overflow.
	dst := make([]int64, 200)
	for _, c := range [][2]uint64{{1 << 62, 1}, {1<<63 - 1, 2}, {1<<63 - 1, 1<<63 - 1}, {1 << 61, 1<<63 - 1},
		{1<<63 - 1, 1<<63 - 2}, {1<<63 - 25, 1 << 31}, {1, 4}} {
		g := gaussian(t, c[0], c[1], 3)
		g.Sample(dst)
		for _, y := range dst {
			if math.Abs(float64(y)) > 10*math.Sqrt(float64(c[0])/float64(c[1]))+10 {
				t.Errorf("sigma^2 = %d/%d: drew %d", c[0], c[1], y)
			}
		}
	}
	for _, c := range [][2]uint64{{1 << 40, 1}, {1<<63 - 1, 1 << 23}, {1, 1<<63 - 1}, {1<<63 - 1, 1<<63 - 2}} {
		laplace(t, c[0], c[1], 3).Sample(dst)
	}
}

// bernoulli compares the bits it reads, as a binary expansion, with x/den: math/big is
// the oracle. The reader repeats the expansion of x/den itself for a while, so that long
// ties happen.
func TestBernoulliIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	words := []uint64{1, 2, 3, 1 << 16, 1<<16 + 1, 1 << 63, 1<<64 - 1, 1<<64 - 59, 0xaaaaaaaaaaaaaaab}
	for range 2000 {
		den := words[rng.IntN(len(words))] + uint64(rng.IntN(3))
		if den < 2 {
			den = rng.Uint64()>>rng.IntN(60) + 2
		}
		x := rng.Uint64N(den)
		f := new(big.Rat).SetFrac(new(big.Int).SetUint64(x), new(big.Int).SetUint64(den))
		// 256 bits of the expansion, then noise in the last bytes of a random length.
		e := new(big.Int).Quo(new(big.Int).Lsh(f.Num(), 256), f.Denom())
		bits := e.FillBytes(make([]byte, 32))
		for i := rng.IntN(33); i < 32; i++ {
			bits[i] ^= byte(rng.IntN(256))
		}
		// The sampler reads four 16-bit words and then 64-bit words, all little-endian.
		stream := make([]byte, 64)
		for i := range 4 {
			stream[2*i], stream[2*i+1] = bits[2*i+1], bits[2*i]
		}
		for i := 8; i < 32; i++ {
			stream[i] = bits[i/8*8+7-i%8]
		}
		var s source
		s.init(bytes.NewReader(stream), 1)
		got := s.bernoulli(newRatio(x, den))
		want := new(big.Rat).SetFrac(new(big.Int).SetBytes(bits), new(big.Int).Lsh(big.NewInt(1), 256)).Cmp(f) < 0
		if got != want {
			t.Fatalf("%d/%d with bits %x: %v", x, den, bits, got)
		}
	}
}

// The exponent of the acceptance step against math/big.
func TestExponent(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 5000 {
		num, den := rng.Uint64()>>(1+rng.IntN(62)), rng.Uint64()>>(1+rng.IntN(62))
		g, err := NewDiscreteGaussian(num, den)
		if err != nil {
			continue
		}
		y := uint64(rng.Float64() * 16000 * float64(g.num) / float64(g.den) / float64(g.m))
		whole, rem, d := g.exponent(y)
		got := new(big.Rat).SetFrac(new(big.Int).SetUint64(rem), new(big.Int).SetUint64(d))
		got.Add(got, new(big.Rat).SetInt(new(big.Int).SetUint64(whole)))
		diff := new(big.Int).Sub(new(big.Int).SetUint64(y), new(big.Int).SetUint64(g.m))
		want := new(big.Rat).SetFrac(new(big.Int).Mul(diff.Mul(diff, diff), new(big.Int).SetUint64(g.den)),
			new(big.Int).Lsh(new(big.Int).SetUint64(g.num), 1))
		if got.Cmp(want) != 0 || rem >= d {
			t.Fatalf("sigma^2 = %d/%d, y = %d: %v, want %v", g.num, g.den, y, got, want)
		}
	}
}

// n = 2^22 trials for each; Bernstein's inequality at rejectRate.
func TestBernoulliExp(t *testing.T) {
	const n = 1 << 22
	var s source
	s.init(seeded(9), n)
	x := math.Log(2 / rejectRate)
	for _, num := range []uint64{0, 1, 3, 6, 7} {
		count := 0.0
		for range n {
			if s.bernoulliExp(num, 8) {
				count++
			}
		}
		p := math.Exp(-float64(num) / 8)
		if math.Abs(count-n*p) > math.Sqrt(2*n*p*(1-p)*x)+x {
			t.Errorf("exp(-%d/8): %v of %v", num, count, n)
		}
	}
	count, p := 0.0, math.Exp(-1)
	for range n {
		if s.bernoulliExp1() {
			count++
		}
	}
	if math.Abs(count-n*p) > math.Sqrt(2*n*p*(1-p)*x)+x {
		t.Errorf("exp(-1): %v of %v", count, n)
	}
}

type fixed byte

func (f fixed) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(f)
	}
	return len(p), nil
}

// A source that is stuck ends in a panic or in draws, never in an endless loop that looks
// like work. (All zeros make every comparison succeed.)
func TestStuckSource(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	g, _ := NewDiscreteGaussian(1<<40, 1)
	twin.WithSource(g, io.LimitReader(fixed(0), 1<<20)).(*DiscreteGaussian).Sample(make([]int64, 1))
}

func TestConcurrentUse(t *testing.T) {
	g, err := NewDiscreteGaussian(1<<20, 1)
	if err != nil {
		t.Fatal(err)
	}
	out := make(chan []int64)
	for range 4 {
		go func() {
			dst := make([]int64, 4)
			g.Sample(dst)
			out <- dst
		}()
	}
	seen := map[[4]int64]bool{}
	for range 4 {
		seen[[4]int64(<-out)] = true
	}
	if len(seen) != 4 {
		t.Error("two calls drew the same noise") // false-reject rate below 1e-12
	}
}

func BenchmarkDiscreteLaplace(b *testing.B) {
	l, err := NewDiscreteLaplace(1<<20, 1)
	if err != nil {
		b.Fatal(err)
	}
	dst := make([]int64, 1<<18)
	for b.Loop() {
		l.Sample(dst)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(dst)), "ns/draw")
}
