package plan

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

func seriesGoal() Goal {
	return Goal{Query: recipe.Histogram{Length: 21}, People: 2000, Epsilon: 1, Rounds: 6, Batches: 90, Separation: 14}
}

// A plan of correlated noise becomes a recipe with the same guarantee, and its errors are
// those that the recipe forecasts.
func TestSeriesPlan(t *testing.T) {
	for name, q := range map[string]recipe.Query{
		"histogram": recipe.Histogram{Length: 21},
		"mean":      recipe.Mean{Max: 100},
		"vector":    recipe.Vector{Dimension: 1000, Bound: 1 << 12, FracBits: 12, Proof: recipe.Pine40, Rounding: recipe.RoundNearest},
	} {
		g := seriesGoal()
		if g.Query = q; name == "vector" {
			g.Epsilon = 8
		}
		p, err := Make(g)
		if err != nil || !p.Fits || p.Loss.Epsilon > g.Epsilon || p.Loss.Epsilon < 0.999*g.Epsilon {
			t.Fatalf("%s: %+v, %v", name, p, err)
		}
		r, err := p.Recipe(account.Options{Name: "Daily", Leader: "https://leader.example/", Helper: "https://helper.example/"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		loss, err := account.Guarantee(r)
		if err != nil || loss.Epsilon != p.Loss.Epsilon || loss.Rounds != 6 {
			t.Errorf("%s: the recipe has %+v, the plan %v (%v)", name, loss, p.Loss, err)
		}
		n := r.Noise.(recipe.CorrelatedGaussian)
		if n.Series.Separation != 14 || n.Series.Rounds != 90 || n.Series.Strategy.Bands() != 14 {
			t.Errorf("%s: series of %d bands, %+v", name, n.Series.Strategy.Bands(), n.Series)
		}
		unit := 1.0
		switch q := q.(type) {
		case recipe.Mean:
			unit = 1.0 / 2000
		case recipe.Vector:
			unit = q.Unit()
		}
		e, s := n.Errors(90), p.series()
		own, _, err := accountant.CalibrateDiscreteGaussian(p.Loss.Epsilon, 1e-9, g.contribution(), release.ReplaceOne, 6)
		if err != nil || own.Float() > n.Independent()*1.0001 {
			t.Fatalf("%s: independent noise of variance %v, by the accounting of correlated noise %v (%v)", name, own, n.Independent(), err)
		}
		for what, pair := range map[string][2]float64{
			"mean":              {p.Error.Each, math.Sqrt(2*e.Prefix[89]) / 90},
			"batch":             {s.Batch, math.Sqrt(2 * e.Round[89])},
			"independent batch": {s.IndependentBatch, math.Sqrt(2 * own.Float())},
			"independent":       {s.Independent, math.Sqrt(2 * own.Float() / 90)},
		} {
			if want := pair[1] * 1.959964 * unit; math.Abs(pair[0]-want) > 1e-2*want {
				t.Errorf("%s: error of %s %v, the recipe forecasts %v", name, what, pair[0], want)
			}
		}
		if !(p.Error.Each < s.Independent) || !(s.Batch > s.IndependentBatch) {
			t.Errorf("%s: %+v against %+v", name, p.Error, s)
		}
	}
}

// An accuracy of the mean of all batches is met exactly, or what it takes is said.
func TestSeriesWithin(t *testing.T) {
	g := seriesGoal()
	g.Epsilon, g.Within = 0, 0.002
	p, err := Make(g)
	if err != nil || !p.Fits || p.Error.Part > 0.002 || p.Error.Part < 0.00199 {
		t.Fatalf("%+v, %v", p, err)
	}
	g.Epsilon = p.Loss.Epsilon / 2
	q, err := Make(g)
	if err != nil || q.Fits || q.Needs == nil || q.Needs.People <= g.People || math.Abs(q.Needs.Epsilon/p.Loss.Epsilon-1) > 1e-6 {
		t.Fatalf("%+v, %v", q, err)
	}
	g.People, g.Epsilon = q.Needs.People, g.Epsilon*1.0001
	if q, err = Make(g); err != nil || !q.Fits {
		t.Errorf("with as many people as it takes: %+v, %v", q.Needs, err)
	}
	var b strings.Builder
	if err := p.WriteText(&b, 0); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, words := range []string{"in the mean of 90 batches, within 0.2 %", "any two of them are at least 14 rounds apart", "this is of the mean of all 90 batches; with noise",
		"each number of one batch is within"} {
		if !strings.Contains(text, words) {
			t.Errorf("%s\ndoes not say %q", b.String(), words)
		}
	}
	raw, err := json.Marshal(p)
	if err != nil || !strings.Contains(string(raw), `"correlated":{"batch":`) {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestSeriesGoalRefused(t *testing.T) {
	for name, change := range map[string]func(*Goal){
		"one batch":       func(g *Goal) { g.Batches = 1 },
		"no batches":      func(g *Goal) { g.Batches = 0 },
		"many":            func(g *Goal) { g.Batches = 1 << 17 },
		"no separation":   func(g *Goal) { g.Separation = 0 },
		"every round":     func(g *Goal) { g.Separation = 1 },
		"sampled":         func(g *Goal) { g.Population = 20000 },
		"devices' blur":   func(g *Goal) { g.Randomizer = RAPPOR },
		"long separation": func(g *Goal) { g.Separation = 1 << 33 },
	} {
		g := seriesGoal()
		change(&g)
		if _, err := Make(g); !errors.Is(err, ErrGoal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
