package plan

import (
	"errors"
	"strings"
	"testing"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestPlanViews: what is planned for several views is what their recipe guarantees, costs
// more noise than a round alone, and says so.
func TestPlanViews(t *testing.T) {
	views := &recipe.Views{Round: "day", Keep: 7, Wider: []recipe.View{{Name: "week", Rounds: 7}, {Name: "month", Rounds: 28}}}
	for name, q := range map[string]recipe.Query{"histogram": recipe.Histogram{Length: 5}, "groups": recipe.GroupSums{Max: 24, Groups: 3}} {
		g := Goal{Query: q, People: 2000, Epsilon: 1, Views: views}
		p, err := Make(g)
		if err != nil {
			t.Fatal(err)
		}
		alone := g
		alone.Views = nil
		one, err := Make(alone)
		if err != nil || !(one.Error.Each < p.Error.Each) {
			t.Errorf("%s: three views have error %v, a round alone %v, %v", name, p.Error, one.Error, err)
		}
		r, err := p.Recipe(account.Options{Name: "plan", Leader: "https://leader.example/", Helper: "https://helper.example/"})
		if err != nil {
			t.Fatal(err)
		}
		made, err := account.Guarantee(r)
		if err != nil || len(r.Granularities()) != 3 || made.Epsilon > 1 || made.Epsilon < 0.99*p.Loss.Epsilon {
			t.Errorf("%s: the recipe gives %v, planned was %v, %v", name, made, p.Loss, err)
		}
		var said strings.Builder
		if err := p.WriteText(&said, 0); err != nil || !strings.Contains(said.String(), "over 1 round in all 3 views") ||
			!strings.Contains(said.String(), "each batch of each of 3 views") {
			t.Errorf("%s: %v\n%s", name, err, said.String())
		}
	}
	for why, change := range map[string]func(*Goal){
		"in one round":   func(g *Goal) { g.Rounds = 3 },
		"two servers":    func(g *Goal) { g.Randomizer = RR },
		"who all answer": func(g *Goal) { g.Population = 20000 },
		"want 2 to 8":    func(g *Goal) { g.Views = &recipe.Views{Round: "day", Keep: 1} },
		"week is stated": func(g *Goal) {
			g.Views = &recipe.Views{Wider: []recipe.View{{Name: "week", Rounds: 7, Parameter: recipe.Rational{Num: 1, Den: 1}}}}
		},
		"each batch alon": func(g *Goal) { g.Batches, g.Separation = 9, 3 },
	} {
		g := Goal{Query: recipe.Histogram{Length: 5}, People: 2000, Epsilon: 1, Views: views}
		change(&g)
		if _, err := Make(g); !errors.Is(err, ErrGoal) || !strings.Contains(err.Error(), why) {
			t.Errorf("want %q, got %v", why, err)
		}
	}
}
