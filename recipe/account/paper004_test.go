package account_test

import (
	"math"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestPaper004: beside the guarantee of check-ins whose reports are private by themselves
// stands what the paper states, here computed from its formulas: of theorem 3.2 at p0 = 1/2,
// of 4.3 at p0 = 1 and of 4.1, at delta 10^-5. With noise of the servers alone it states
// nothing, and of no other participation.
func TestPaper004(t *testing.T) {
	const m, batch, delta = 100, 2000, 1e-5
	e0 := 0.25
	x := math.Expm1(e0)
	fixed := func(p0 float64) float64 {
		return p0*x*math.Sqrt(2*math.Exp(e0)*math.Log(1/delta)/m) + p0*p0*math.Exp(e0)*x*x/(2*m)
	}
	n := float64(m * batch)
	e1 := math.Sqrt(1/n+1./m) + math.Sqrt(math.Log(2/delta)/n)
	averaged := math.Exp(4*e0)*x*x*e1*e1/2 + math.Exp(2*e0)*x*e1*math.Sqrt(2*math.Log(2/delta))
	half := recipe.Rational{Num: 1, Den: 2}
	for want, p := range map[float64]recipe.Participation{
		fixed(0.5): recipe.CheckIn{Schedule: release.FixedWindow, Rate: half, Slots: m, Length: 1},
		fixed(1):   recipe.CheckIn{Schedule: release.SlidingWindow, Rate: half, Slots: 2 * m, Window: m, Length: 1},
		// which is more than a report by itself has: no amplification
		min(averaged, e0): recipe.CheckIn{Schedule: release.AveragedWindow, Rate: half, Slots: m, Length: 1},
		0:                 recipe.Bernoulli{Rate: half},
	} {
		o := account.Options{Name: "x", Query: recipe.Histogram{Length: 4}, Leader: "https://l.example/", Helper: "https://h.example/", MinBatch: batch,
			Randomizer: recipe.KRR{Epsilon0: recipe.Decimal{Coefficient: 25, Scale: 2}}, Delta: recipe.Decimal{Coefficient: 1, Scale: 5},
			Participation: p, RoundUnits: max(1, p.Units()), Rate: &recipe.Rate{Devices: 4_000_000, Units: max(1, p.Units())}}
		said := func() recipe.Particulars {
			t.Helper()
			r, err := account.New(o)
			if err != nil {
				t.Fatalf("%v: %v", p, err)
			}
			said, err := account.Of(r)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := r.Describe(&text, said); err != nil || strings.Contains(text.String(), "Paper 004") != (said.CheckIns != nil) {
				t.Errorf("%v: %v\n%s", p, err, text.String())
			}
			return said
		}
		got := said().CheckIns
		switch {
		case want == 0:
			if got != nil {
				t.Errorf("%v: %v", p, got)
			}
			continue
		case got == nil || math.Abs(got.Loss.Epsilon/want-1) > 1e-6 || math.Abs(got.Loss.Delta/delta-1) > 1e-6 || math.Abs(got.Epsilon0-e0) > 1e-6:
			t.Errorf("%v: %+v, want epsilon %v", p, got, want)
		}
		o.Query, o.Randomizer, o.Noise = recipe.Multihot{Length: 4, MaxWeight: 1}, nil, recipe.EachDraws(recipe.Rational{Num: 4, Den: 1})
		if got := said().CheckIns; got != nil {
			t.Errorf("%v, with noise of the servers alone: %v", p, got)
		}
	}
}
