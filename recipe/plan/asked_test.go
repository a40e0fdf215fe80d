package plan

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestAsked: for sums by group on a path without proofs the scheme with the smaller mean
// square error is planned, question & answer for small losses and many groups, and the
// other where it is asked for; from a loss, an accuracy or both; and the recipe of each plan
// has its randomizer, its guarantee and its error.
func TestAsked(t *testing.T) {
	analyzer := standIn("analyzer")
	paths := map[PathName]recipe.Path{
		Direct:   recipe.Direct{Analyzer: analyzer},
		Shuffled: recipe.Shuffled{First: standIn("first"), Second: standIn("second"), Analyzer: analyzer, Mode: recipe.CountedMode},
	}
	few, many := recipe.GroupSums{Max: 20, Groups: 4}, recipe.GroupSums{Min: -10, Max: 20, Groups: 16}
	for _, c := range []struct {
		goal Goal
		want Randomizer
		fits bool
	}{
		{Goal{Query: few, People: 20000, Epsilon: .3}, QA, true},
		{Goal{Query: many, People: 20000, Epsilon: 1}, QA, true},
		{Goal{Query: few, People: 20000, Epsilon: 4}, RandomizedGroup, true},
		{Goal{Query: few, People: 20000, Epsilon: 4, Rounds: 20}, QA, true},
		{Goal{Query: few, People: 20000, Epsilon: 4, Randomizer: QA}, QA, true},
		{Goal{Query: few, People: 20000, Epsilon: 4, SumsAlone: true}, RandomizedGroup, true},
		{Goal{Query: few, People: 20000, Within: .02}, RandomizedGroup, true},
		{Goal{Query: few, People: 2000000, Within: .02}, QA, true},
		{Goal{Query: few, People: 20000, Within: .02, Epsilon: 3}, RandomizedGroup, true},
		{Goal{Query: few, People: 20000, Within: .02, Epsilon: .5}, QA, false},
	} {
		for name, path := range paths {
			g := c.goal
			g.Path = name
			p := mustMake(t, g)
			if p.Goal.Randomizer != c.want || p.Fits != c.fits {
				t.Errorf("%+v: %s, fits %v", g, p.Goal.Randomizer, p.Fits)
			}
			if c.fits && (g.Epsilon != 0 && p.Local.Epsilon > g.Epsilon || g.Within != 0 && p.Error.Part > g.Within*(1+1e-9)) {
				t.Errorf("%+v: %v, error %+v", g, p.Local, p.Error)
			}
			list := p.schemes()
			if len(list) != 2 || list[0].Randomizer != c.want || g.Randomizer == "" && g.Within == 0 && list[0].Alpha > list[1].Alpha {
				t.Errorf("%+v: %+v", g, list)
			}
			if !c.fits {
				if p.Needs == nil || p.Needs.People <= g.People || p.Needs.Epsilon <= g.Epsilon {
					t.Errorf("%+v: %+v", g, p.Needs)
				}
				continue
			}
			r, err := p.Recipe(account.Options{Name: "Groups", Path: path})
			if err != nil {
				t.Fatalf("%+v: %v", g, err)
			}
			z := r.Randomizer.(recipe.GroupRandomizer)
			guarantee, err := account.Guarantee(r)
			if err != nil || guarantee.Loss != p.Loss || z.Local0() != p.perBit {
				t.Errorf("%+v: %v, the plan %v, %v", g, guarantee.Loss, p.Loss, err)
			}
			if (name == Direct) != (p.Loss.Epsilon >= p.Local.Epsilon*.999 && len(p.Conditions) == 0) {
				t.Errorf("%+v: %v of %v, on %q", g, p.Loss, p.Local, p.Conditions)
			}
			e, err := z.Errors(g.Query.(recipe.GroupSums), recipe.Normal95, g.People)
			if err != nil || math.Abs(e.Sum/p.Error.Each-1) > 1e-3 || math.Abs(p.groups().Total/e.Total-1) > 1e-3 {
				t.Errorf("%+v: %+v, the plan %+v, %v", g, e, p.Error, err)
			}
			if math.Abs(list[0].MSE*float64(g.People)*float64(g.People)/(float64(g.Query.(recipe.GroupSums).Groups)*e.Sum*e.Sum/(recipe.Normal95*recipe.Normal95))-1) > 1e-3 {
				t.Errorf("%+v: mean square error %v, errors %+v", g, list[0].MSE, e)
			}
		}
	}
}

// TestAskedWords: the plan says both schemes, their bits and errors, and why.
func TestAskedWords(t *testing.T) {
	p := mustMake(t, Goal{Query: recipe.GroupSums{Max: 20, Groups: 8}, People: 100000, Epsilon: .5, Path: Direct})
	var text strings.Builder
	if err := p.WriteText(&text, 108); err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(text.String()), " ")
	for _, want := range []string{"Schemes question & answer: 1 message of 17 bytes", "with an answer of 1 bit;", "randomized group: 1 message of 1 byte, with an answer of 4 bits",
		"Normalised mean square error of all sums", "Chosen the first, which has the smaller mean square error", "for as many bits of answers", "conditional, and charged nowhere",
		"Instead - the randomized group (nobody is trusted)"} {
		if !strings.Contains(words, want) {
			t.Errorf("the words lack %q:\n%s", want, text.String())
		}
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"schemes":[{"randomizer":"qa","bits":1,"bytes":17,"values":2,"alpha":`, `"randomizer":"qa"`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s lacks %s", b, want)
		}
	}
	other := mustMake(t, Goal{Query: recipe.GroupSums{Max: 20, Groups: 8}, People: 100000, Epsilon: .5, Path: Direct, Randomizer: RandomizedGroup})
	if said := other.chosen(other.schemes()); !strings.Contains(said, "was asked for") {
		t.Error(said)
	}
	for name, g := range map[string]Goal{
		"two servers": {Randomizer: QA}, "a histogram": {Query: recipe.Histogram{Length: 4}, Path: Direct, Randomizer: RandomizedGroup},
		"sums alone of two servers": {SumsAlone: true}, "a population": {Path: Direct, Population: 50000},
	} {
		if g.Query == nil {
			g.Query = recipe.GroupSums{Max: 20, Groups: 8}
		}
		g.People, g.Epsilon = 1000, 1
		if _, err := Make(g); !errors.Is(err, ErrGoal) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
