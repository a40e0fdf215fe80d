package sketch

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
)

// laplaced is a draw of discrete Laplace noise: the difference of two geometric ones.
func laplaced(r *rand.Rand, scale float64) int64 {
	if scale == 0 {
		return 0
	}
	geometric := func() int64 { return int64(math.Floor(r.ExpFloat64() * scale)) }
	plus, minus := geometric(), geometric()
	return plus - minus
}

// TestWeights: for all counts of a cell from 0 to 6 and both numbers of draws the mean of the
// weight, by adding up the whole law, is 1 of an empty cell and 0 of others.
func TestWeights(t *testing.T) {
	for _, scale := range []float64{.3, 1, 2.5} {
		q := math.Exp(-1 / scale)
		law := func(y int) float64 { return (1 - q) / (1 + q) * math.Pow(q, math.Abs(float64(y))) }
		for draws := range 3 {
			n := DistinctNoise{scale, float64(draws)}
			weights := n.weights()
			for count := range 7 {
				mean := 0.0
				for i, g := range weights {
					y := i - draws - count // of the noise
					switch draws {
					case 0:
						if y == 0 {
							mean += g
						}
					case 1:
						mean += g * law(y)
					case 2:
						for a := -200; a <= 200; a++ {
							mean += g * law(a) * law(y-a)
						}
					}
				}
				want := 0.0
				if count == 0 {
					want = 1
				}
				if math.Abs(mean-want) > 1e-9 {
					t.Errorf("scale %v, %d draws, a cell of %d: %v", scale, draws, count, mean)
				}
			}
		}
	}
}

// TestLaw: what is said of draws in closed form is their law by adding up, and of an empty
// cell the weights' mean square is the largest of all cells'.
func TestLaw(t *testing.T) {
	for _, scale := range []float64{.3, 1, 2.5} {
		q := math.Exp(-1 / scale)
		law := func(y int) float64 { return (1 - q) / (1 + q) * math.Pow(q, math.Abs(float64(y))) }
		two := func(y int) (p float64) {
			for a := -200; a <= 200; a++ {
				p += law(a) * law(y-a)
			}
			return p
		}
		n := DistinctNoise{scale, 2}
		most := 0.0
		for count := range 9 {
			square := 0.0
			for i, g := range n.weights() {
				square += g * g * two(i-2-count)
			}
			if most = max(most, square); count == 0 {
				if got := n.Expected(100, 0); math.Abs(got/10-math.Sqrt(square)) > 1e-9 {
					t.Errorf("scale %v: %v for an empty row, want %v", scale, got/10, math.Sqrt(square))
				}
			} else if square == most {
				t.Errorf("scale %v: a cell of %d has more noise than an empty one", scale, count)
			}
		}
		for i, p := range n.probabilities() {
			if math.Abs(p-two(i-2)) > 1e-12 {
				t.Errorf("scale %v: %v of %d", scale, p, i-2)
			}
		}
	}
}

// TestParts: of noise that is no whole number of draws, the difference of two negative
// binomial variables, the weights have the same means, and what is said of it is its law.
func TestParts(t *testing.T) {
	for _, n := range []DistinctNoise{{.4, .7}, {1, 1.25}, {2, 2.5}, {1, 3}, {2, 1.0001}} {
		q := math.Exp(-1 / n.Scale)
		const terms = 400
		one := make([]float64, terms) // of a negative binomial variable
		one[0] = math.Pow(1-q, n.Draws)
		for j := 1; j < terms; j++ {
			one[j] = one[j-1] * q * (n.Draws + float64(j) - 1) / float64(j)
		}
		law := func(y int) (p float64) {
			y = max(y, -y)
			for i := 0; i+y < terms; i++ {
				p += one[i] * one[i+y]
			}
			return p
		}
		weights := n.weights()
		for count := range 5 {
			mean, want := 0.0, 0.0
			if count == 0 {
				want = 1
			}
			for i, g := range weights {
				mean += g * law(i-len(weights)/2-count)
			}
			if math.Abs(mean-want) > 1e-6 {
				t.Errorf("%+v, a cell of %d: %v", n, count, mean)
			}
		}
		for i, p := range n.probabilities() {
			if math.Abs(p-law(i-len(weights)/2)) > 1e-9 {
				t.Errorf("%+v: %v of %d", n, p, i-len(weights)/2)
			}
		}
	}
}

// hashed are counts of cells of keys with the given counts.
func hashed(counts []int64, seed uint64, width int) (sums []int64, people uint64) {
	sums = make([]int64, width)
	for i, n := range counts {
		sums[Hash{seed}.Cell(0, []byte{byte(i), byte(i >> 8)}, uint64(width))] += n
		people += uint64(n)
	}
	return sums, people
}

// TestDistinctCovers: over 1,000 hashes and draws of both servers' noise the 95 % interval
// holds the number of keys in 910 or more (950 and a deviation of 7 are expected; a false
// alarm has probability below 1e-7), the estimate is without much bias, and an interval is
// narrower than all people where the noise lets it be.
func TestDistinctCovers(t *testing.T) {
	for _, c := range []struct {
		keys, width int
		n           DistinctNoise
	}{{300, 1000, DistinctNoise{0, 0}}, {300, 1000, DistinctNoise{.5, 2}}, {1500, 2000, DistinctNoise{.5, 2}}, {3000, 8000, DistinctNoise{1, 2}}, {3000, 8000, DistinctNoise{1, 1}}} {
		r := rand.New(rand.NewPCG(71, 72))
		counts := make([]int64, c.keys)
		for i := range counts {
			counts[i] = 1 + int64(r.ExpFloat64()*r.ExpFloat64()*2)
		}
		held, mean, square, said := 0, 0.0, 0.0, 0.0
		const runs = 1000
		for i := range runs {
			sums, people := hashed(counts, uint64(i), c.width)
			for j := range sums {
				for range int(c.n.Draws) {
					sums[j] += laplaced(r, c.n.Scale)
				}
			}
			d, err := CountDistinct(sums, c.n, people, 1.96)
			if err != nil {
				t.Fatal(err)
			}
			if d.Low <= float64(c.keys) && float64(c.keys) <= d.High {
				held++
			}
			off := d.Keys - float64(c.keys)
			mean, square, said = mean+off/runs, square+off*off/runs, said+d.Deviation/runs
		}
		deviation := math.Sqrt(square - mean*mean)
		if bound := c.n.Expected(c.width, c.keys); bound < deviation*.9 || bound > 3*deviation {
			t.Errorf("%+v: deviation %v, at most %v expected", c, deviation, bound)
		}
		if held < 910 || math.Abs(mean) > 6*deviation/math.Sqrt(runs)+.05*deviation+.005*float64(c.keys) || said < .9*deviation || said > 1.5*deviation {
			t.Errorf("%+v: held %d, off %v on average, deviation %v, said %v", c, held, mean, deviation, said)
		}
		t.Logf("%+v: held %d, off %.2f, deviation %.1f, said %.1f", c, held, mean, deviation, said)
	}
}

// TestRepeatsCovers: of the second moment the same, and that it is unbiased to six standard
// errors.
func TestRepeatsCovers(t *testing.T) {
	for _, c := range []struct{ keys, width, deviation int }{{50, 200, 0}, {50, 200, 20}, {2000, 1000, 10}, {10, 1000, 40}} {
		r := rand.New(rand.NewPCG(73, 74))
		counts := make([]int64, c.keys)
		want := 0.0
		for i := range counts {
			counts[i] = int64(1 + 2000/(1+i))
			want += float64(counts[i] * counts[i])
		}
		const runs = 1000
		v := float64(c.deviation * c.deviation)
		held, mean, square, said := 0, 0.0, 0.0, 0.0
		for i := range runs {
			sums, people := hashed(counts, uint64(i), c.width)
			for j := range sums {
				sums[j] += int64(math.Round(float64(c.deviation) * r.NormFloat64()))
			}
			m, err := Repeats(sums, Noise{Deviation: float64(c.deviation)}, 3*v*v, people)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(m.Value-want) <= 1.96*m.Deviation {
				held++
			}
			off := m.Value - want
			mean, square, said = mean+off/runs, square+off*off/runs, said+m.Deviation/runs
		}
		deviation := math.Sqrt(square - mean*mean)
		if held < 910 || math.Abs(mean) > 6*deviation/math.Sqrt(runs) || said < .9*deviation {
			t.Errorf("%+v: held %d, off %v on average of %v, deviation %v, said %v", c, held, mean, want, deviation, said)
		}
		t.Logf("%+v: held %d, off %.0f of %.0f, deviation %.0f, said %.0f", c, held, mean, want, deviation, said)
	}
}

func TestRowsRefused(t *testing.T) {
	if _, err := Repeats([]int64{1}, Noise{}, 0, 1); !errors.Is(err, errShape) {
		t.Error("one cell")
	}
	for _, n := range []DistinctNoise{{1, MaxDraws + 1}, {1, -1}, {0, 1}, {math.NaN(), 1}, {math.Inf(1), 2}, {maxSeries + 1, 1.5}, {1, math.NaN()}} {
		if _, err := CountDistinct(make([]int64, 5), n, 1, 2); !errors.Is(err, errShape) {
			t.Errorf("%+v is taken", n)
		}
	}
	if _, err := CountDistinct(nil, DistinctNoise{}, 1, 2); !errors.Is(err, errShape) {
		t.Error("no cells")
	}
	// Full and hostile rows say that nothing is known, in numbers.
	for _, x := range []int64{5, math.MaxInt64, math.MinInt64, 0} {
		sums := []int64{x, x, x, x, x}
		d, err := CountDistinct(sums, DistinctNoise{1, 2}, 30, 1.96)
		if err != nil || math.IsNaN(d.Keys) || d.Low > d.Keys || d.Keys > d.High || d.High > 30 || x == 5 && (d.Detected || d.High != 30) {
			t.Errorf("%d: %+v, %v", x, d, err)
		}
		if m, err := Repeats(sums, Noise{Deviation: 2}, 48, 30); err != nil || math.IsNaN(m.Value) || math.IsNaN(m.Deviation) {
			t.Errorf("%d: %+v, %v", x, m, err)
		}
	}
}
