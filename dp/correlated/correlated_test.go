package correlated

import (
	"errors"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/starling-agg/starling/dp/noise/noisetest"
)

// must is for strategies that cannot fail.
func must(t testing.TB) func(Strategy, error) Strategy {
	return func(s Strategy, err error) Strategy {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// random is a strategy with up to six bands, of any signs.
func random(t testing.TB, rng *rand.Rand) Strategy {
	bits := uint8(rng.IntN(10))
	c := make([]int32, rng.IntN(6))
	for j := range c {
		c[j] = rng.Int32N(2<<bits+1) - 1<<bits
	}
	if n := len(c); n > 0 && c[n-1] == 0 {
		c[n-1] = 1
	}
	return must(t)(New(bits, c))
}

// matrix is C for the given releases: entry [m][n] in units of 2^-bits, with the entries
// left out that the calendar cuts off.
func matrix(s Strategy, spans []Span, separation uint64) [][]int64 {
	c := make([][]int64, len(spans))
	for m := range c {
		c[m] = make([]int64, len(spans))
		for n := max(0, m-s.Bands()+1); n <= m; n++ {
			if m == n || spans[m].Last-spans[n].First < separation {
				c[m][n] = int64(s.c[m-n])
			}
		}
	}
	return c
}

// calendar is a random run of releases, some of more than one round, with gaps.
func calendar(rng *rand.Rand, releases int, separation uint64) []Span {
	spans := make([]Span, releases)
	at := uint64(rng.IntN(5))
	for i := range spans {
		at += uint64(rng.IntN(3)) * uint64(rng.IntN(3))
		spans[i] = Span{at, at + uint64(rng.IntN(int(separation)))*uint64(rng.IntN(2))}
		at = spans[i].Last + 1
	}
	return spans
}

// halfUp is floor(x + 1/2), by big.Rat.
func halfUp(x *big.Rat) *big.Int {
	y := new(big.Rat).Add(x, big.NewRat(1, 2))
	return new(big.Int).Div(y.Num(), y.Denom()) // Euclidean: floor for a positive denominator
}

// The heart of the proof: for any data, what is released is the same function of y = Cx +
// z, computed here in rationals that know nothing of x; on calendars with gaps and long
// releases.
func TestReleasedIsComputedFromNoisedStrategy(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 400 {
		s := random(t, rng)
		separation := uint64(s.Bands() + rng.IntN(4))
		series := Series{s, separation, 40}
		spans := calendar(rng, 12, separation)
		c := matrix(s, spans, separation)
		unit := new(big.Rat).SetFrac64(1, 1<<s.Bits())
		var past [][]int64
		var u []*big.Rat // x + w, decoded from y
		x, z := make([]int64, len(spans)), make([]int64, len(spans))
		for m := range spans {
			x[m], z[m] = rng.Int64N(2001)-1000, rng.Int64N(4001)-2000
			latest := slices.Clone(spans[:m])
			slices.Reverse(latest)
			lean, err := series.Next(spans[m], uint64(m), latest)
			if err != nil {
				t.Fatal(err)
			}
			// The server.
			w, err := s.Next(past[:lean], z[m:m+1])
			if err != nil {
				t.Fatal(err)
			}
			past = slices.Insert(past, 0, slices.Clone(w))
			s.Round(w, w)
			released := x[m] + w[0]
			// Whoever sees y alone.
			y := new(big.Rat).SetInt64(z[m])
			y.Mul(y, unit)
			sum := new(big.Rat)
			for n := 0; n <= m; n++ {
				entry := new(big.Rat).Mul(new(big.Rat).SetInt64(c[m][n]), unit)
				y.Add(y, new(big.Rat).Mul(entry, new(big.Rat).SetInt64(x[n])))
				if n < m {
					sum.Add(sum, entry.Mul(entry, u[n]))
				}
			}
			scaled := new(big.Rat).Quo(sum, unit)
			rounded := new(big.Rat).Mul(new(big.Rat).SetInt(halfUp(scaled)), unit)
			u = append(u, y.Sub(y, rounded))
			if want := halfUp(u[m]); want.Cmp(big.NewInt(released)) != 0 {
				t.Fatalf("%v, release %d of %v: released %d, from y alone %v", s.Coefficients(), m, spans, released, want)
			}
		}
	}
}

// Brute force over all ways to take part: the squared norm of C times the difference is
// participations times |c|^2 at most, and that much where nothing is cut off.
func TestSensitivityByBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 150 {
		s := random(t, rng)
		separation := uint64(s.Bands() + rng.IntN(3))
		spans := calendar(rng, 7, separation)
		dense := rng.IntN(2) == 0
		if dense {
			for i := range spans {
				spans[i] = Span{uint64(i), uint64(i)}
			}
		}
		c := matrix(s, spans, separation)
		norm2, _ := s.Norm2()
		worst := make(map[int]uint64)
		// A device is in any set of releases, at any round of each, that keeps its
		// distance; it pushes up or down.
		var visit func(m int, next uint64, delta []int64, k int)
		visit = func(m int, next uint64, delta []int64, k int) {
			if m == len(spans) {
				total := uint64(0)
				for _, row := range c {
					v := int64(0)
					for n, e := range row {
						v += e * delta[n]
					}
					total += uint64(v * v)
				}
				worst[k] = max(worst[k], total)
				return
			}
			visit(m+1, next, append(delta, 0), k)
			if at := max(next, spans[m].First); at <= spans[m].Last { // the earliest round is the least binding
				for _, sign := range []int64{1, -1} {
					visit(m+1, at+separation, append(slices.Clone(delta), sign), k+1)
				}
			}
		}
		visit(0, 0, nil, 0)
		for k, w := range worst {
			if w > uint64(k)*norm2 {
				t.Fatalf("%v at separation %d in %v: %d participations cost %d, want at most %d", s.Coefficients(), separation, spans, k, w, uint64(k)*norm2)
			}
		}
		if dense && worst[1] != norm2 {
			t.Fatalf("%v: one participation costs %d, want %d", s.Coefficients(), worst[1], norm2)
		}
	}
}

// At a separation below the bands the bound is false, which is why Validate wants more.
func TestShortSeparationIsRefused(t *testing.T) {
	s := must(t)(SquareRoot(4, 8))
	var e error
	if e = (Series{s, 3, 10}).Validate(); !errors.Is(e, ErrStrategy) {
		t.Errorf("separation 3 for 4 bands: %v", e)
	}
	if e = (Series{s, 4, 10}).Validate(); e != nil {
		t.Error(e)
	}
	// Twice in rounds 1 and 4 apart by 3: (c_3 + c_0)^2 is more than the two squares.
	c := s.real()
	if twice := 2 * s.norm2(); twice+2*c[3]*c[0] <= twice {
		t.Error("the rows do not overlap")
	}
}

func TestNext(t *testing.T) {
	s := Series{must(t)(SquareRoot(4, 4)), 5, 6}
	past := []Span{{9, 9}, {8, 8}, {7, 7}, {6, 6}}
	for _, tc := range []struct {
		next     Span
		released uint64
		past     []Span
		lean     int
	}{
		{Span{10, 10}, 4, past, 3}, {Span{10, 11}, 4, past, 3}, {Span{10, 12}, 4, past, 2}, {Span{12, 12}, 4, past, 2},
		{Span{13, 13}, 4, past, 1}, {Span{14, 14}, 4, past, 0}, {Span{0, 4}, 0, nil, 0}, {Span{100, 104}, 5, past, 0},
	} {
		if lean, err := s.Next(tc.next, tc.released, tc.past); err != nil || lean != tc.lean {
			t.Errorf("%v: leans on %d, %v; want %d", tc.next, lean, err, tc.lean)
		}
	}
	for _, tc := range []struct {
		next     Span
		released uint64
		want     OrderError
	}{
		{Span{9, 9}, 4, OrderError{Asked: Span{9, 9}, Last: 9, Late: true}},
		{Span{3, 3}, 4, OrderError{Asked: Span{3, 3}, Last: 9, Late: true}},
		{Span{10, 15}, 4, OrderError{Asked: Span{10, 15}, Separation: 5}},
		{Span{11, 10}, 4, OrderError{Asked: Span{11, 10}, Separation: 5}},
		{Span{10, 10}, 6, OrderError{Asked: Span{10, 10}, Rounds: 6}},
	} {
		_, err := s.Next(tc.next, tc.released, past)
		var e *OrderError
		if !errors.As(err, &e) || *e != tc.want {
			t.Errorf("%v: %v, want %v", tc.next, err, &tc.want)
		}
	}
}

// The forecast against the covariance of brute force: W = C^-1 z with C inverted in
// rationals.
func TestForecastAgainstMatrices(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 60 {
		s := random(t, rng)
		const n = 9
		inv := invert(matrix(s, consecutive(n), uint64(s.Bands())), s.Bits())
		e := s.Forecast(1e6, n)
		sum := make([]*big.Rat, n)
		for i := range sum {
			sum[i] = new(big.Rat)
		}
		for t1 := range n {
			round, prefix := new(big.Rat), new(big.Rat)
			for i := range n {
				round.Add(round, new(big.Rat).Mul(inv[t1][i], inv[t1][i]))
				sum[i].Add(sum[i], inv[t1][i])
				prefix.Add(prefix, new(big.Rat).Mul(sum[i], sum[i]))
			}
			for what, pair := range map[string][2]float64{"round": {e.Round[t1], float(round)}, "prefix": {e.Prefix[t1], float(prefix)}} {
				if want := pair[1] * 1e6; math.Abs(pair[0]-want) > 1e-6*want+float64(t1+1) {
					t.Fatalf("%v, %s %d: forecast %v, matrices %v", s.Coefficients(), what, t1+1, pair[0], want)
				}
			}
		}
	}
}

func float(x *big.Rat) float64 { f, _ := x.Float64(); return f }

func consecutive(n int) []Span {
	spans := make([]Span, n)
	for i := range spans {
		spans[i] = Span{uint64(i), uint64(i)}
	}
	return spans
}

// invert solves C W = 1 for a lower-triangular C with ones on its diagonal.
func invert(c [][]int64, bits uint8) [][]*big.Rat {
	n := len(c)
	w := make([][]*big.Rat, n)
	for m := range w {
		w[m] = make([]*big.Rat, n)
		for k := range n {
			w[m][k] = new(big.Rat)
			if m == k {
				w[m][k].SetInt64(1)
			}
			for j := range m {
				e := new(big.Rat).SetFrac64(c[m][j], 1<<bits)
				w[m][k].Sub(w[m][k], e.Mul(e, w[j][k]))
			}
		}
	}
	return w
}

// The strategy of (1-x)^(-1/2) at as many bands as rounds squares to prefix sums: an
// independent formula for its entries, and the known error of the square root, sum of
// squares on both sides.
func TestSquareRoot(t *testing.T) {
	const n = 40
	c := squareRoot(n)
	for i := range n {
		sum := 0.0
		for j := 0; j <= i; j++ {
			sum += c[j] * c[i-j]
		}
		if math.Abs(sum-1) > 1e-12 {
			t.Fatalf("coefficient %d of the square is %v", i, sum)
		}
	}
	norm := 0.0
	mean := 0.0
	for i, x := range c {
		norm += x * x
		mean += x * x * float64(n-i) / n
	}
	// A C^-1 = C there.
	if got := objective(c, n, nil); math.Abs(got-mean*norm) > 1e-9 {
		t.Errorf("objective %v, want %v", got, mean*norm)
	}
	s := must(t)(SquareRoot(3, 8))
	if got := s.Coefficients(); !slices.Equal(got, []int32{128, 96}) {
		t.Errorf("coefficients %v", got)
	}
	if num, den := s.Norm2(); num != 65536+128*128+96*96 || den != 65536 {
		t.Errorf("norm %d/%d", num, den)
	}
}

// The derivative against differences, and the search against what it starts from and
// against a constant strategy.
func TestOptimize(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	c := squareRoot(6)
	for j := 1; j < 6; j++ {
		c[j] += 0.1 * (rng.Float64() - 0.5)
	}
	g := make([]float64, 6)
	objective(c, 50, g)
	for j := 1; j < 6; j++ {
		d := slices.Clone(c)
		d[j] += 1e-6
		up := math.Log(objective(d, 50, nil))
		d[j] -= 2e-6
		if diff := (up - math.Log(objective(d, 50, nil))) / 2e-6; math.Abs(diff-g[j]) > 1e-6 {
			t.Errorf("derivative %d: %v, by differences %v", j, g[j], diff)
		}
	}
	for _, tc := range []struct {
		bands, rounds int
		least         float64 // improvement, measured when this was written and rounded down
	}{{2, 10, 1.20}, {4, 16, 1.50}, {8, 100, 2.27}, {16, 1000, 3.56}, {64, 4096, 6.69}} {
		s := must(t)(Optimize(tc.bands, tc.rounds, 8))
		if got := s.Improvement(tc.rounds); got < tc.least {
			t.Errorf("%d bands over %d rounds: %v times better, want %v", tc.bands, tc.rounds, got, tc.least)
		}
		if root := must(t)(SquareRoot(tc.bands, 8)); s.Improvement(tc.rounds) < root.Improvement(tc.rounds) {
			t.Errorf("%d bands over %d rounds: worse than the square root", tc.bands, tc.rounds)
		}
		if err := (Series{s, uint64(tc.bands), uint64(tc.rounds)}).Validate(); err != nil {
			t.Error(err)
		}
	}
	if s := must(t)(Optimize(8, 1, 8)); s.Bands() != 1 {
		t.Errorf("one round: %d bands", s.Bands())
	}
	if got := must(t)(New(0, nil)).Improvement(100); math.Abs(got-1) > 1e-12 {
		t.Errorf("independent noise improves on itself %v times", got)
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct {
		bits uint8
		c    []int32
	}{{17, nil}, {8, []int32{257}}, {8, []int32{-257}}, {8, []int32{1, 0}}, {0, make([]int32, 64)}} {
		if _, err := New(tc.bits, tc.c); !errors.Is(err, ErrStrategy) {
			t.Errorf("%v: %v", tc, err)
		}
	}
	for _, s := range []Series{
		{}, {must(t)(SquareRoot(2, 8)), 2, 0}, {must(t)(SquareRoot(2, 8)), 2, MaxRounds + 1},
		{must(t)(New(1, []int32{-2, -2, -2})), 4, 100}, // doubles and more in each round
	} {
		if err := s.Validate(); !errors.Is(err, ErrStrategy) {
			t.Errorf("%+v: %v", s, err)
		}
	}
	if _, err := (Strategy{}).Sampler(1, 1); !errors.Is(err, ErrStrategy) {
		t.Error(err)
	}
	s := must(t)(SquareRoot(2, 8))
	if _, err := s.Sampler(1<<62, 1); err == nil {
		t.Error("a variance beyond 64 bits is drawn")
	}
	g, err := s.Sampler(3, 4)
	if err != nil {
		t.Fatal(err)
	}
	if num, den := g.Sigma2(); num != 3<<14 || den != 1 {
		t.Errorf("variance %d/%d in units, want %d", num, den, 3<<14)
	}
	if w, err := s.Next([][]int64{make([]int64, 3)}, make([]int64, 2)); !errors.Is(err, ErrStrategy) || w != nil {
		t.Error(w, err)
	}
	if w, err := s.Next([][]int64{{1}, {1}}, []int64{1}); !errors.Is(err, ErrStrategy) || w != nil {
		t.Error(w, err)
	}
}

// The recurrence in 64 bits against math/big, up to the largest values.
func TestNextIsExact(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for range 2000 {
		bits := uint8(rng.IntN(MaxBits + 1))
		c := make([]int32, 1+rng.IntN(MaxBands-1))
		for j := range c {
			c[j] = rng.Int32N(2<<bits+1) - 1<<bits
		}
		c[len(c)-1] = 1 << bits
		s := must(t)(New(bits, c))
		past := make([][]int64, rng.IntN(len(c)+1))
		sum := new(big.Int)
		for j := range past {
			past[j] = []int64{rng.Int64N(1<<62) >> rng.IntN(62)}
			if rng.IntN(2) == 0 {
				past[j][0] = -past[j][0]
			}
			sum.Add(sum, new(big.Int).Mul(big.NewInt(int64(c[j])), big.NewInt(past[j][0])))
		}
		z := []int64{rng.Int64N(1 << 47)}
		want := halfUp(new(big.Rat).SetFrac(sum, big.NewInt(1<<bits)))
		want.Sub(big.NewInt(z[0]), want)
		drawn := z[0]
		w, err := s.Next(past, z)
		if fits := want.CmpAbs(big.NewInt(1<<62)) < 0; fits != (err == nil) {
			t.Fatalf("%v: %v", want, err)
		} else if fits && want.Cmp(big.NewInt(w[0])) != 0 {
			t.Fatalf("%d, want %v", w[0], want)
		}
		if z[0] != drawn {
			t.Fatal("the draws have changed")
		}
	}
}

// A sum of earlier rounds that wraps around in 64 bits, to what would pass for noise.
func TestNextRefusesToWrapAround(t *testing.T) {
	s := must(t)(New(0, []int32{-1, -1, -1, -1}))
	for _, w := range []int64{1<<62 - 1, -1<<62 + 1} {
		z := []int64{5}
		if next, err := s.Next([][]int64{{w}, {w}, {w}, {w}}, z); !errors.Is(err, ErrStrategy) {
			t.Errorf("four rounds of %d: noise of %d, %v", w, next[0], err)
		}
	}
}

// The whole of it: what an all-zero series releases has the forecast covariance. 40,000
// coordinates over 12 rounds; the sample covariance of two rounds of Gaussian variables
// of variances u and v has a variance of at most 2uv/n. Each of the 78 entries is within
// 6.5 standard errors but for 8.1e-11 (normal approximation), all but for 6.3e-9; allowed
// is 1e-6. Seeds are fixed.
func TestCovarianceOfReleases(t *testing.T) {
	const n, rounds = 40000, 12
	s := must(t)(Optimize(4, rounds, 6))
	if far := distance(t, s, s, n, rounds); far > 6.5 {
		t.Errorf("a covariance is %.1f standard errors off", far)
	}
	// It is sharp enough: noise of its own for each round, or a neighbouring strategy, is
	// caught.
	if far := distance(t, must(t)(New(6, nil)), s, n, rounds); far < 20 {
		t.Errorf("independent noise is %.1f standard errors off", far)
	}
	c := s.Coefficients()
	c[0] -= 4
	if far := distance(t, must(t)(New(6, c)), s, n, rounds); far < 6.5 {
		t.Errorf("another strategy is %.1f standard errors off", far)
	}
}

// distance draws with one strategy, and returns how far the covariances are at most from
// another's, in standard errors.
func distance(t *testing.T, drawn, s Strategy, n, rounds int) float64 {
	const sigma2 = 400
	g, err := drawn.Sampler(sigma2, 1)
	if err != nil {
		t.Fatal(err)
	}
	seeded := noisetest.DiscreteGaussian(g, [32]byte{7})
	var past, out [][]int64
	for range rounds {
		z := make([]int64, n)
		seeded.Sample(z)
		next, err := drawn.Next(past[:min(len(past), drawn.Bands()-1)], z)
		if err != nil {
			t.Fatal(err)
		}
		past = slices.Insert(past, 0, next)
		w := make([]int64, n)
		drawn.Round(w, next)
		out = append(out, w)
	}
	inv := invert(matrix(s, consecutive(rounds), uint64(s.Bands())), s.Bits())
	covariance := func(a, b int) float64 {
		sum := 0.0
		for i := range rounds {
			sum += float(inv[a][i]) * float(inv[b][i])
		}
		if a == b {
			return sum*sigma2 + 1.0/12
		}
		return sum * sigma2
	}
	worst := 0.0
	for a := range rounds {
		for b := 0; b <= a; b++ {
			sum := 0.0
			for i := range n {
				sum += float64(out[a][i]) * float64(out[b][i])
			}
			se := math.Sqrt(2 * covariance(a, a) * covariance(b, b) / float64(n))
			worst = max(worst, math.Abs(sum/float64(n)-covariance(a, b))/se)
		}
	}
	return worst
}

// Rounding is equivariant, on every residue.
func TestRound(t *testing.T) {
	s := must(t)(New(3, []int32{1}))
	for w := int64(-100); w <= 100; w++ {
		dst := make([]int64, 2)
		s.Round(dst, []int64{w, w + 8*7})
		if want := int64(math.Floor(float64(w)/8 + 0.5)); dst[0] != want || dst[1] != want+7 {
			t.Fatalf("%d eighths round to %d", w, dst[0])
		}
	}
}

// 262,144 coordinates and 16 bands.
func BenchmarkNext(b *testing.B) {
	s := must(b)(SquareRoot(16, 8))
	past := make([][]int64, 15)
	for j := range past {
		past[j] = make([]int64, 1<<18)
		for i := range past[j] {
			past[j][i] = int64(i) << 10
		}
	}
	z := make([]int64, 1<<18)
	for b.Loop() {
		if _, err := s.Next(past, z); err != nil {
			b.Fatal(err)
		}
	}
}
