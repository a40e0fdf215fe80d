package recipe_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/sketch"
	. "github.com/starling-agg/starling/recipe"
)

func TestKeyedTyped(t *testing.T) {
	for text, want := range map[string]Query{"distinct:50": Distinct{Keyed{Width: 50}}, "norm:7:9": Norm{Keyed{Width: 7, Seed: 9}}} {
		if q, err := ParseQuery(text); err != nil || q != want {
			t.Errorf("%q is %+v, %v", text, q, err)
		}
	}
	for _, bad := range []string{"distinct", "distinct:", "norm:x", "norm:1:x", "norm:1:2:3", "distinct:5000000000"} {
		if q, err := ParseQuery(bad); err == nil {
			t.Errorf("%q is %+v", bad, q)
		}
	}
	for _, width := range []uint32{0, 1, MaxElements, math.MaxUint32} {
		r := doctor()
		if r.Query = WithChunk(Norm{Keyed{Width: width}}); r.Validate() == nil {
			t.Errorf("%d cells are taken", width)
		}
	}
	r := doctor()
	r.Query = WithChunk(Distinct{Keyed{Width: 100}})
	r.Noise = DiscreteGaussian{Variance: Rational{Num: 120, Den: 1}, Share: DrawsAll}
	if err := r.Validate(); err == nil || !strings.Contains(err.Error(), "want discrete-laplace") {
		t.Errorf("%v", err)
	}
}

// TestKeyedTables: over 200 draws of both servers' noise the interval of the number of texts,
// and of the norm of their counts, holds the truth in 174 or more (190 and a deviation of 3
// are expected; a false alarm has probability below 1e-6), spelled differently or not.
func TestKeyedTables(t *testing.T) {
	const runs = 200
	r := rand.New(rand.NewPCG(81, 82))
	var texts []string
	square := 0.0
	for i := range 400 {
		n := 1 + 300/(1+i)
		texts = append(texts, slices.Repeat([]string{fmt.Sprintf("Zaunko\u0308nig %d", i), fmt.Sprintf("Zaunk\u00f6nig %d", i)}[:1+i%2][i%2:], n)...)
		square += float64(n * n)
	}
	distinct, norm := Distinct{Keyed{Width: 2000}}, Norm{Keyed{Width: 500}}
	for _, c := range []struct {
		q     Tabled
		noise Noise
		truth float64
	}{
		{distinct, DiscreteLaplace{Scale: Rational{Num: 1, Den: 2}}, 400}, {distinct, NoNoise{}, 400},
		{norm, DiscreteLaplace{Scale: Rational{Num: 8, Den: 1}}, math.Sqrt(square)}, {norm, EachDraws(Rational{Num: 100, Den: 1}), math.Sqrt(square)},
	} {
		x := doctor()
		x.Query, x.Noise = c.q, c.noise
		still := marked(t, c.q, texts, quiet)
		held, mean := 0, 0.0
		for range runs {
			sums := slices.Clone(still)
			for i := range sums {
				switch n := c.noise.(type) {
				case DiscreteLaplace:
					b := n.Scale.Float()
					for range 2 {
						plus, minus := math.Floor(b*r.ExpFloat64()), math.Floor(b*r.ExpFloat64())
						sums[i] += int64(plus) - int64(minus)
					}
				case DiscreteGaussian:
					sums[i] += int64(math.Round(n.Spread().Deviation * r.NormFloat64()))
				}
			}
			table, err := x.Table(sums, uint64(len(texts)), []string{"wren"})
			if err != nil || len(table.Rows) != 2 || table.Rows[1].Cell.State != sketch.None {
				t.Fatalf("%+v, %v", table, err)
			}
			cell := table.Rows[0].Cell
			if mean += cell.Estimate / runs; cell.Interval95[0] <= c.truth && c.truth <= cell.Interval95[1] {
				held++
			}
		}
		if held < 174 || math.Abs(mean/c.truth-1) > .1 {
			t.Errorf("%T, %v: held %d of %d, mean %v of %v", c.q, c.noise, held, runs, mean, c.truth)
		}
		if text := ExpectedErrors(x); !strings.Contains(text, "a device marks 1 of") || strings.Contains(text, "NaN") {
			t.Error(text)
		}
		if _, err := x.Table(still[1:], 10, nil); err == nil {
			t.Errorf("%T: a cell is missing", c.q)
		}
	}
	// Nothing is told of texts by noise that drowns them, and that is said.
	x := doctor()
	x.Query, x.Noise = distinct, DiscreteLaplace{Scale: Rational{Num: 40, Den: 1}}
	drowned := make([]int64, 2000)
	for i := range drowned {
		drowned[i] = int64(40 * (r.ExpFloat64() - r.ExpFloat64() + r.ExpFloat64() - r.ExpFloat64()))
	}
	table, err := x.Table(drowned, 1000, nil)
	if err != nil || table.Rows[0].Cell.State != sketch.BelowDetection || table.Rows[0].Cell.Interval95[1] != 1000 {
		t.Errorf("%+v, %v", table, err)
	}
}
