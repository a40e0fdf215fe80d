package plan

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestGroupsNoise: for sums by group Laplace noise is planned where it is the narrower
// one, for few rounds, and Gaussian noise for many; from a loss, from an accuracy and from
// both; and the recipe of each plan has its noise and its loss.
func TestGroupsNoise(t *testing.T) {
	q := recipe.GroupSums{Min: -10, Max: 20, Groups: 4}
	for _, c := range []struct {
		goal    Goal
		laplace bool
	}{
		{Goal{People: 20000, Epsilon: 1}, true},
		{Goal{People: 20000, Epsilon: 1, Rounds: 3}, true},
		{Goal{People: 20000, Epsilon: 1, Rounds: 40}, false},
		{Goal{People: 20000, Within: 0.01}, true},
		{Goal{People: 20000, Within: 0.1, Rounds: 300}, false},
		{Goal{People: 20000, Within: 0.01, Epsilon: 1}, true},
		{Goal{People: 20000, Within: 0.01, Epsilon: 0.5, Delta: 1e-6, Rounds: 2}, true},
	} {
		c.goal.Query = q
		p := mustMake(t, c.goal)
		if p.laplace != c.laplace || (p.Scale.Den != 0) != c.laplace || (p.Variance.Den != 0) == c.laplace || !p.Fits {
			t.Errorf("%+v: scale %v, variance %v, fits %v", c.goal, p.Scale, p.Variance, p.Fits)
		}
		one := Plan{Goal: p.Goal, MinBatch: p.MinBatch, laplace: !c.laplace} // the other kind
		if err := one.byServers(); err == nil && one.better(p) {
			t.Errorf("%+v: the other noise is better: %+v and %v, not %+v and %v", c.goal, one.Error, one.Loss, p.Error, p.Loss)
		}
		if c.goal.Epsilon != 0 && p.Loss.Epsilon > c.goal.Epsilon || c.goal.Within != 0 && p.Error.Part > c.goal.Within {
			t.Errorf("%+v: %v, error %+v", c.goal, p.Loss, p.Error)
		}
		r, err := p.Recipe(account.Options{Name: "Groups", Leader: "https://leader.example/", Helper: "https://helper.example/", Labels: []string{"a", "b", "c", "d"}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Noise != p.noise() {
			t.Errorf("%+v: the recipe's noise is %v", c.goal, r.Noise)
		}
		if g, err := account.Guarantee(r); err != nil || g.Loss != p.Loss {
			t.Errorf("%+v: the recipe guarantees %v, the plan %v, %v", c.goal, g.Loss, p.Loss, err)
		}
	}
	// Other queries have the noise that they had.
	if p := mustMake(t, Goal{Query: recipe.L1BoundSum{Length: 8, Max: 30}, People: 20000, Epsilon: 1}); p.laplace || p.groups() != nil {
		t.Errorf("scale %v", p.Scale)
	}
}

// TestGroupsError: the errors of a plan hold sums, sizes and totals as often as its
// confidence says, of 20,000 draws (a false alarm below 1e-6), and all sums at once.
func TestGroupsError(t *testing.T) {
	const runs = 20000
	r := rand.New(rand.NewPCG(41, 42))
	for _, c := range []struct {
		confidence float64
		least      int
	}{{0.95, 18830}, {0.99, 19720}} {
		q := recipe.GroupSums{Min: -10, Max: 20, Groups: 4}
		p := mustMake(t, Goal{Query: q, People: 20000, Epsilon: 1, Confidence: c.confidence})
		e, b := p.groups(), p.Scale.Float()
		draw := func() int64 {
			plus, minus := int64(b*r.ExpFloat64()), int64(b*r.ExpFloat64())
			return plus - minus
		}
		x := recipe.Recipe{Query: q, Noise: p.noise()}
		var in [4]int
		for range runs {
			sums := []int64{5000 * 12, 5000 * 12, 5000 * 12, 5000 * 12, 5000 * 18, 5000 * 18, 5000 * 18, 5000 * 18} // each at 2
			for i := range sums {
				sums[i] += draw() + draw()
			}
			table, err := x.GroupTable(sums, 20000)
			if err != nil {
				t.Fatal(err)
			}
			count := func(i int, off, within float64) {
				if math.Abs(off) <= within {
					in[i]++
				}
			}
			row, worst := table.Groups[0], 0.0
			for _, other := range table.Groups {
				worst = max(worst, math.Abs(other.Sum.Estimate-10000))
			}
			count(0, row.Sum.Estimate-10000, p.Error.Each)
			count(1, row.Size.Estimate-5000, e.Size)
			count(2, table.Total.Sum.Estimate-40000, e.Total)
			count(3, worst, p.Error.All)
		}
		for i, n := range in {
			if n < c.least {
				t.Errorf("confidence %v: error %d holds %d times in %d", c.confidence, i, n, runs)
			}
		}
		if math.Abs(e.Sum/p.Error.Each-1) > 1e-9 || e.Members != 5000 {
			t.Errorf("%+v and %+v", e, p.Error)
		}
	}
}

func TestGroupsWords(t *testing.T) {
	p := mustMake(t, Goal{Query: recipe.GroupSums{Min: 0, Max: 20, Groups: 4}, People: 20000, Epsilon: 1})
	var text strings.Builder
	if err := p.WriteText(&text, 108); err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(text.String()), " ")
	for _, want := range []string{"Laplace noise of standard deviation 56.57 (scale 40), narrower here", "all 4 numbers at once", "each size is within", "no mean is told"} {
		if !strings.Contains(words, want) {
			t.Errorf("the words lack %q:\n%s", want, text.String())
		}
	}
	b, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"scale":"40"`, `"groups":{"reports":20000,"members":5000,"sum":`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("%s lacks %s", b, want)
		}
	}
}
