package plan

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestCloakMessages: paper 001's setting takes a modern device 9 messages, 10 where half
// are honest, and 60 to 120 by the paper's own theorems; the error is within 6 % of
// sqrt(2)/epsilon where 9 of 10 are honest.
func TestCloakMessages(t *testing.T) {
	for honest, most := range map[uint64]int{9000: 9, 5000: 10} {
		g := Goal{Query: recipe.Sum{Max: 1 << 20}, People: 10_000, MinBatch: honest, Path: Shuffled, Randomizer: Cloak, Epsilon: 1, Delta: 1e-6}
		p := mustMake(t, g)
		if !p.Fits || len(p.Mixed) != 3 || p.Loss.Epsilon != 1 {
			t.Fatalf("%+v", p)
		}
		for i, m := range p.Mixed {
			low, high := 60, 120
			if i == 0 {
				low, high = 3, most
			}
			if m.Messages < low || m.Messages > high || m.Kind != recipe.CloakKinds[i] || m.Exact != (i == 2) {
				t.Errorf("%d honest: %+v", honest, m)
			}
		}
		central := math.Log(20) * (1 << 20) // of 95 %, without devices that are not honest
		if off := p.Error.Each / central; off < 1 || off > 1.001*math.Sqrt(10_000/float64(honest)) {
			t.Errorf("%d honest: the error is %v times the central one", honest, off)
		}
		var text strings.Builder
		if err := p.WriteText(&text, 0); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"\nMessages        modern: ", "single-user: ", "sum-preserving: ", "\nPath            shuffled"} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("no %q in\n%s", want, text.String())
			}
		}
	}
}

// TestPlanPaths: plans of the new paths make recipes of them whose guarantee is the plan's.
func TestPlanPaths(t *testing.T) {
	for name, g := range map[string]Goal{
		"cloak by loss":     {Query: recipe.Mean{Max: 50}, People: 2000, Path: Shuffled, Randomizer: Cloak, Epsilon: 0.5, Rounds: 3},
		"cloak by accuracy": {Query: recipe.Sum{Max: 50}, People: 2000, Path: Shuffled, Randomizer: Cloak, Within: 0.01},
		"cloak of both":     {Query: recipe.Count{}, People: 2000, Path: Shuffled, Randomizer: Cloak, Within: 0.01, Epsilon: 1},
		"cloaked buckets":   {Query: recipe.Histogram{Length: 20}, People: 2000, Path: Shuffled, Randomizer: Cloak, Epsilon: 1},
		"cloaked ranks":     {Query: recipe.Quantiles{Max: 63, Width: 1, Branching: 8}, People: 2000, Path: Shuffled, Randomizer: Cloak, Within: 0.1},
		"shuffled rr":       {Query: recipe.Histogram{Length: 4}, People: 2000, Path: Shuffled, Randomizer: RR, Epsilon: 2},
		"shuffled rappor":   {Query: recipe.Histogram{Length: 4}, People: 2000, Path: Shuffled, Randomizer: RAPPOR, Epsilon: 2},
		"direct rr":         {Query: recipe.Histogram{Length: 4}, People: 2000, Path: Direct, Randomizer: RR, Within: 0.1},
		"direct rappor":     {Query: recipe.Histogram{Length: 4}, People: 2000, Path: Direct, Randomizer: RAPPOR, Within: 0.1, Rounds: 2},
	} {
		p := mustMake(t, g)
		if !p.Fits || !p.Loss.Finite() || p.Error.Each <= 0 || g.Within != 0 && p.Error.Part > g.Within*1.0001 {
			t.Errorf("%s: fits %v, %v, error %+v", name, p.Fits, p.Loss, p.Error)
			continue
		}
		o := g.parties()
		r, err := p.Recipe(o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := account.Guarantee(r)
		if err != nil || got.Loss.Epsilon > p.Loss.Epsilon*1.0001 || got.Loss.Epsilon < 0.99*p.Loss.Epsilon {
			t.Errorf("%s: planned %v, the recipe gives %v (%v)", name, p.Loss, got.Loss, err)
		}
		if _, err := p.Recipe(account.Options{Name: "plan", Leader: o.Leader, Helper: o.Helper}); !errors.As(err, new(*NotExpressibleError)) {
			t.Errorf("%s: as a recipe of two servers: %v", name, err)
		}
	}
	out := mustMake(t, Goal{Query: recipe.Sum{Max: 50}, People: 200, Path: Shuffled, Randomizer: Cloak, Within: 0.01, Epsilon: 0.1})
	if out.Fits || out.Needs == nil || out.Needs.People <= 200 || out.Needs.Epsilon <= 0.1 || out.Needs.Within <= 0.01 {
		t.Errorf("out of reach: %+v", out.Needs)
	}
	more := Goal{Query: recipe.Sum{Max: 50}, People: out.Needs.People, Path: Shuffled, Randomizer: Cloak, Within: 0.01, Epsilon: 0.1}
	if p := mustMake(t, more); !p.Fits {
		t.Errorf("%d people are said to do: %+v", more.People, p.Error)
	}
	more.People, more.MinBatch = 200, 150
	more.People = mustMake(t, more).Needs.People
	if p := mustMake(t, more); !p.Fits {
		t.Errorf("%d people, of whom 150 are honest, are said to do: %+v", more.People, p.Error)
	}
	for name, g := range map[string]Goal{
		"two servers and a cloak":  {Query: recipe.Sum{Max: 5}, People: 100, Randomizer: Cloak, Epsilon: 1},
		"a cloak that is direct":   {Query: recipe.Sum{Max: 5}, People: 100, Randomizer: Cloak, Epsilon: 1, Path: Direct},
		"a cloak of real vectors":  {Query: recipe.Vector{Dimension: 5, Bound: 8}, People: 100, Randomizer: Cloak, Epsilon: 1, Path: Shuffled},
		"servers that shuffle":     {Query: recipe.Sum{Max: 5}, People: 100, Epsilon: 1, Path: Shuffled},
		"no path":                  {Query: recipe.Sum{Max: 5}, People: 100, Epsilon: 1, Path: "pigeon"},
		"a sample that is mixed":   {Query: recipe.Count{}, People: 100, Population: 1000, Randomizer: Cloak, Epsilon: 1, Path: Shuffled},
		"correlated and shuffled":  {Query: recipe.Sum{Max: 5}, People: 100, Randomizer: Cloak, Epsilon: 1, Path: Shuffled, Batches: 9, Separation: 3},
		"an accuracy of no answer": {Query: recipe.Sum{Max: 5}, People: 100, Randomizer: Cloak, Within: 1e-9, Path: Shuffled},
	} {
		if _, err := Make(g); !errors.Is(err, ErrGoal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
