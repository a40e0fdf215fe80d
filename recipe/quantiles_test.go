package recipe_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	. "github.com/starling-agg/starling/recipe"
)

// released are the sums of the nodes that devices with these numbers mark, and noise.
func released(q Quantiles, numbers []uint64, noise func() int64) []int64 {
	sums := make([]int64, q.Aggregates())
	for i := range sums {
		sums[i] = noise()
	}
	for _, n := range numbers {
		for i, mark := range q.Marks([]uint64{n}) {
			if mark {
				sums[i]++
			}
		}
	}
	return sums
}

func quiet() int64 { return 0 }

// TestExactDistribution: without noise each decile is that of the sorted numbers, brought
// into the range, but for the width of a bin, and each range has the count by counting.
func TestExactDistribution(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for range 50 {
		q := Quantiles{Min: r.Uint64N(5), Width: 1 + r.Uint64N(4)}
		q.Max = q.Min + q.Width + r.Uint64N(60)
		bins := (q.Max-q.Min)/q.Width + 1
		q.Branching = uint32(2 + r.Uint64N(bins-1))
		var numbers, clipped []uint64
		for range 1 + r.IntN(100) {
			n := r.Uint64N(q.Max + 10)
			numbers = append(numbers, n)
			clipped = append(clipped, min(max(n, q.Min), q.Max))
		}
		slices.Sort(clipped)
		exact := doctor()
		exact.Query, exact.Noise, exact.Claim = q, NoNoise{}, NoClaim{}
		d, err := exact.Distribution(released(q, numbers, quiet), uint64(len(numbers)))
		if err != nil {
			t.Fatal(err)
		}
		for i, decile := range d.Deciles {
			want := clipped[(len(clipped)*(i+1)+9)/10-1]
			in := decile.Interval95
			if want < in[0] || want > in[1] || in[1]-in[0] >= q.Width || decile.Value < in[0] || decile.Value > in[1] || in[1] > q.Max || !decile.Detected {
				t.Fatalf("%+v of %v: decile %+v, want %d", q, clipped, decile, want)
			}
		}
		next := q.Min
		for _, in := range d.Ranges {
			want := 0
			for _, n := range clipped {
				if in.From <= n && n <= in.To {
					want++
				}
			}
			if in.From != next || math.Abs(in.Count-float64(want)) > 1e-6 || in.Stderr != 0 || in.Interval95 != [2]float64{in.Count, in.Count} {
				t.Fatalf("%+v: range %+v, want %d", q, in, want)
			}
			next = in.To + 1
		}
		if next != q.Max+1 || len(d.Ranges) != min(10, int(bins)) {
			t.Fatalf("%+v: %d ranges up to %d", q, len(d.Ranges), next-1)
		}
	}
}

// TestNoisyDistribution: over 2,000 draws of both servers' noise, the 95 % intervals of
// no decile and no range leave the truth out more than 155 times, whichever the noise
// (100 are expected; over 38 intervals a false alarm has probability below 1e-6), and
// standard deviations are those that are seen, to 10 %, more than six standard errors.
func TestNoisyDistribution(t *testing.T) {
	const runs, allowed = 2000, 155
	r := rand.New(rand.NewPCG(13, 14))
	q := Quantiles{Max: 59, Width: 1, Branching: 4}
	var numbers []uint64
	for range 3000 {
		numbers = append(numbers, uint64(r.ExpFloat64()*12))
	}
	for _, noise := range []Noise{EachDraws(Rational{Num: 300, Den: 1}), DiscreteLaplace{Scale: Rational{Num: 12, Den: 1}}} {
		x := doctor()
		x.Query, x.Noise = q, noise
		draw := func() float64 { return r.NormFloat64() * noise.Spread().Deviation / math.Sqrt2 }
		if _, laplace := noise.(DiscreteLaplace); laplace {
			draw = func() float64 { return 12 * (r.ExpFloat64() - r.ExpFloat64()) }
		}
		still := released(q, numbers, quiet)
		exact := *x
		exact.Noise = NoNoise{}
		truth, err := exact.Distribution(still, uint64(len(numbers)))
		if err != nil {
			t.Fatal(err)
		}
		missed, square := make([]int, 19), make([]float64, 10)
		var d *Distribution
		for range runs {
			sums := slices.Clone(still)
			for i := range sums {
				sums[i] += int64(math.Round(draw() + draw()))
			}
			if d, err = x.Distribution(sums, uint64(len(numbers))); err != nil {
				t.Fatal(err)
			}
			for i, decile := range d.Deciles {
				if v := truth.Deciles[i].Value; v < decile.Interval95[0] || v > decile.Interval95[1] {
					missed[i]++
				}
			}
			for i, in := range d.Ranges {
				off := truth.Ranges[i].Count - in.Count
				square[i] += off * off / runs
				if truth.Ranges[i].Count < in.Interval95[0] || truth.Ranges[i].Count > in.Interval95[1] {
					missed[9+i]++
				}
			}
		}
		for i, n := range missed {
			if n > allowed {
				t.Errorf("%v: interval %d leaves out the truth %d times in %d", noise, i, n, runs)
			}
		}
		for i, v := range square {
			if got := math.Sqrt(v); math.Abs(got/d.Ranges[i].Stderr-1) > 0.1 {
				t.Errorf("%v: range %d has deviation %v, stated %v", noise, i, got, d.Ranges[i].Stderr)
			}
		}
	}
}

// TestDistributionRefused: sums of another number than of the nodes are refused, and
// other queries have none.
func TestDistributionRefused(t *testing.T) {
	r := doctor()
	if d, err := r.Distribution(make([]int64, 21), 10); d != nil || err != nil {
		t.Errorf("%v, %v", d, err)
	}
	r.Query = Quantiles{Max: 3, Width: 1, Branching: 2}
	if _, err := r.Distribution(make([]int64, 5), 10); err == nil {
		t.Error("five sums of six nodes")
	}
}

// TestDistributionOfNoNoiseToSpeakOf: noise whose variance float64 does not hold leaves
// answers and intervals of numbers.
func TestDistributionOfNoNoiseToSpeakOf(t *testing.T) {
	r := doctor()
	q := Quantiles{Max: 7, Width: 1, Branching: 2}
	r.Query, r.Noise = q, DiscreteLaplace{Scale: Rational{Num: 1, Den: 380}}
	d, err := r.Distribution(released(q, slices.Repeat([]uint64{3}, 100), quiet), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range d.Deciles {
		if x.Value != 3 || x.Interval95 != [2]uint64{3, 3} {
			t.Errorf("%+v", x)
		}
	}
	for _, x := range d.Ranges {
		if want := map[bool]float64{true: 100}[x.From == 3]; math.Abs(x.Count-want) > 1e-9 || !(x.Stderr < 1e-9) {
			t.Errorf("%+v", x)
		}
	}
}
