package plan

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestCheckIns: a plan of check-ins is written as a recipe of the same slots, whose guarantee
// is the plan's and whose slots hold the people that were wanted; what is not told apart from
// a public number costs more than the secret slots do.
func TestCheckIns(t *testing.T) {
	half := recipe.Rational{Num: 1, Den: 2}
	for _, c := range []recipe.CheckIn{
		{Schedule: release.FixedWindow, Rate: half, Slots: 4, Length: 3},
		{Schedule: release.SlidingWindow, Rate: half, Slots: 6, Window: 3, Length: 1},
	} {
		g := Goal{Query: recipe.Multihot{Length: 4, MaxWeight: 1}, People: 20000, Epsilon: 1, Delta: 1e-6, CheckIn: c}
		if c.Schedule == release.SlidingWindow { // one from an accuracy alone
			g.Epsilon, g.Within = 0, 0.02
		}
		p, err := Make(g)
		if err != nil {
			t.Fatalf("%v: %v", c.Schedule, err)
		}
		if want := 40000 * uint64(c.Slots); !p.Fits || p.Goal.Population != want || p.Loss.Epsilon > 2 || g.Epsilon > 0 && p.Loss.Epsilon > g.Epsilon {
			t.Errorf("%v: fits %v, %d people, want %d, epsilon %v", c.Schedule, p.Fits, p.Goal.Population, want, p.Loss.Epsilon)
		}
		r, err := p.Recipe(account.Options{Name: "x", Leader: "https://l.example/", Helper: "https://h.example/",
			Relay: &recipe.Relay{URL: "https://r.example/", Gateway: "https://g.example/"}})
		if err != nil {
			t.Fatalf("%v: %v", c.Schedule, err)
		}
		if r.Participation != recipe.Participation(c) || r.RoundUnits() != c.Units() || r.MinBatch != p.MinBatch {
			t.Errorf("%v: %v of %d units, at least %d", c.Schedule, r.Participation, r.RoundUnits(), r.MinBatch)
		}
		got, err := account.Guarantee(r)
		if err != nil || math.Abs(got.Loss.Epsilon/p.Loss.Epsilon-1) > 1e-3 {
			t.Errorf("%v: epsilon %v, the plan says %v; %v", c.Schedule, got.Loss.Epsilon, p.Loss.Epsilon, err)
		}
		// With no secret at all the same noise costs more.
		if c.Schedule == release.FixedWindow && !(p.Unconditional.Epsilon > 1.2*p.Loss.Epsilon) {
			t.Errorf("%v: epsilon %v, and %v where slots are no secret", c.Schedule, p.Loss.Epsilon, p.Unconditional.Epsilon)
		}
		var text strings.Builder
		if err := p.WriteText(&text, 0); err != nil || !strings.Contains(text.String(), "checks in at a random one") {
			t.Errorf("%v: %s, %v", c.Schedule, text.String(), err)
		}
	}
	one := recipe.CheckIn{Schedule: release.FixedWindow, Rate: half, Slots: 8, Length: 1}
	always := recipe.CheckIn{Schedule: release.FixedWindow, Rate: recipe.Rational{Num: 1, Den: 1}, Slots: 8, Length: 1}
	for name, change := range map[string]func(*Goal){
		"a population":     func(g *Goal) { g.Population = 50000 },
		"dummies":          func(g *Goal) { g.HideCount = true },
		"a rate of 1":      func(g *Goal) { g.CheckIn = always },
		"no rate":          func(g *Goal) { g.CheckIn = recipe.CheckIn{Slots: 8} },
		"no check-in":      func(g *Goal) { g.CheckIn = recipe.Always{} },
		"one slot":         func(g *Goal) { g.CheckIn = recipe.CheckIn{Rate: half, Slots: 1} },
		"too many people":  func(g *Goal) { g.People = MaxPeople },
		"blurred answers":  func(g *Goal) { g.Query, g.Randomizer = recipe.Histogram{Length: 4}, RR },
		"correlated noise": func(g *Goal) { g.Batches, g.Separation = 10, 2 },
	} {
		g := Goal{Query: recipe.Multihot{Length: 4, MaxWeight: 1}, People: 20000, Epsilon: 1, CheckIn: one}
		change(&g)
		if _, err := Make(g); !errors.Is(err, ErrGoal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
