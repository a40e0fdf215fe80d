package plan

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

func histogram(people uint64) Goal { return Goal{Query: recipe.Histogram{Length: 21}, People: people} }

func mustMake(t *testing.T, g Goal) *Plan {
	t.Helper()
	p, err := Make(g)
	if err != nil {
		t.Fatalf("%+v: %v", g, err)
	}
	return p
}

// inside is the probability that the sum of two discrete Gaussians of a variance is
// within an error, by summing it.
func inside(variance, within float64) float64 {
	reach := int(10*math.Sqrt(variance)) + 2
	pmf, total := make([]float64, 2*reach+1), 0.0
	for i := range pmf {
		x := float64(i - reach)
		pmf[i] = math.Exp(-x * x / (2 * variance))
		total += pmf[i]
	}
	sum := 0.0
	for i, a := range pmf {
		for j, b := range pmf {
			if math.Abs(float64(i+j-2*reach)) <= within {
				sum += a * b
			}
		}
	}
	return sum / total / total
}

// TestAccuracy: the error is kept with the wanted confidence, and not by much noise less
// than there may be.
func TestAccuracy(t *testing.T) {
	for _, people := range []uint64{2000, 20000, 50000} {
		for _, confidence := range []float64{0.5, 0.95, 0.999} {
			g := histogram(people)
			g.Within, g.Confidence = 0.002, confidence
			p := mustMake(t, g)
			if !p.Fits || p.Needs != nil || p.Error.Each > 0.002*float64(people)*(1+1e-9) || p.Error.All < p.Error.Each {
				t.Fatalf("%d people, %v: %+v", people, confidence, p)
			}
			got := inside(p.Variance.Float(), p.Error.Each)
			// Whole numbers have steps: the error may fall just below one.
			step := 1 / math.Sqrt(4*math.Pi*p.Variance.Float())
			if got < confidence-2*step || got > confidence+2*step {
				t.Errorf("%d people: within %v with probability %v, want %v", people, p.Error.Each, got, confidence)
			}
		}
	}
}

// TestLoss: a wanted loss is met with the least noise; both wishes together are told
// apart from one too many.
func TestLoss(t *testing.T) {
	g := histogram(20000)
	g.Epsilon, g.Rounds = 0.5, 10
	p := mustMake(t, g)
	if !p.Fits || p.Loss.Epsilon > 0.5 || p.Loss.Epsilon < 0.4999 || p.MinBatch != 10000 {
		t.Errorf("%+v", p)
	}
	g.Within = 2 * p.Error.Part
	if both := mustMake(t, g); !both.Fits || both.Loss.Epsilon > 0.6*p.Loss.Epsilon {
		t.Errorf("twice the error leaves room for half the loss, planned %v", both.Loss)
	}
	g.Within = p.Error.Part / 2
	far := mustMake(t, g)
	if far.Fits || far.Needs == nil || far.Loss.Epsilon > 0.5 || math.Abs(far.Needs.Within-p.Error.Part) > 1e-4*p.Error.Part {
		t.Fatalf("%+v", far)
	}
	// Each need does, and a little less does not.
	for _, c := range []struct {
		change func(*Goal, float64)
		name   string
	}{
		{func(g *Goal, slack float64) { g.People = uint64(float64(far.Needs.People) * slack) }, "people"},
		{func(g *Goal, slack float64) { g.Epsilon = far.Needs.Epsilon * slack }, "epsilon"},
		{func(g *Goal, slack float64) { g.Within = far.Needs.Within * slack }, "within"},
	} {
		enough, little := g, g
		c.change(&enough, 1.001)
		c.change(&little, 0.99)
		if !mustMake(t, enough).Fits || mustMake(t, little).Fits {
			t.Errorf("%s: %+v is not what it takes", c.name, far.Needs)
		}
	}
}

// TestTooFew: where not even the narrowest noise keeps the error, the plan says what it
// takes.
func TestTooFew(t *testing.T) {
	g := histogram(20)
	g.Within = 0.01
	p := mustMake(t, g)
	if p.Fits || p.Needs == nil || p.Needs.People <= 20 {
		t.Fatalf("%+v, needs %+v", p, p.Needs)
	}
	g.People = p.Needs.People + 1
	if !mustMake(t, g).Fits {
		t.Errorf("%d people do not do", g.People)
	}
}

// TestSamples: being drawn in secret helps, seen it does not; fewer honest people help
// less.
func TestSamples(t *testing.T) {
	g := histogram(20000)
	g.Within, g.Rounds = 0.01, 50
	all := mustMake(t, g)
	g.Population = 1_000_000
	p := mustMake(t, g)
	if p.MinBatch != 19166 || p.Neighbours != release.ReplaceOne || p.Loss.Epsilon > all.Loss.Epsilon/10 {
		t.Errorf("a sample costs %v, everybody %v; B is %d", p.Loss, all.Loss, p.MinBatch)
	}
	var watched, half recipe.Loss
	for _, f := range p.Fallbacks {
		if strings.Contains(f.When, "watches") {
			watched = f.Loss
		}
		if strings.Contains(f.When, "half the people") {
			half = f.Loss
		}
	}
	if watched.Epsilon < all.Loss.Epsilon || half.Epsilon < 1.5*p.Loss.Epsilon || half.Epsilon > watched.Epsilon {
		t.Errorf("sampled %v, watched %v, half honest %v, unsampled %v", p.Loss, watched, half, all.Loss)
	}
	// Of a loss alone, a sample takes less noise.
	g.Within, g.Epsilon = 0, 0.05
	least := mustMake(t, g)
	g.Population = 0
	if whole := mustMake(t, g); least.Variance.Float() > whole.Variance.Float()/100 || least.Loss.Epsilon > 0.05 {
		t.Errorf("sampled %v, unsampled %v", least.Variance, whole.Variance)
	}
	g.Population, g.HideCount = 1_000_000, true
	hidden := mustMake(t, g)
	if hidden.Neighbours != release.AddRemove || hidden.MinBatch < recipe.SampledBatchFloor || hidden.Dummies <= 0 || hidden.Loss.Epsilon > 0.05 || hidden.Variance.Float() > least.Variance.Float() {
		t.Errorf("with a hidden count sigma^2 is %v, with a public one %v: %+v", hidden.Variance, least.Variance, hidden)
	}
}

// TestDevices: the estimators' deviations are those of their formulas, and more people
// make up for the missing trust.
func TestDevices(t *testing.T) {
	for _, r := range []Randomizer{RR, RAPPOR} {
		g := histogram(20000)
		g.Randomizer, g.Epsilon, g.Within = r, 1, 0.02
		p := mustMake(t, g)
		if p.Fits || p.Local.Epsilon > 1 || p.Local.Epsilon < 0.999 || p.Epsilon0 == 0 || len(p.Instead) != 2 || !p.Instead[0].Fits {
			t.Fatalf("%s: %+v", r, p)
		}
		g.People = p.Needs.People + 1
		if !mustMake(t, g).Fits {
			t.Errorf("%s: %d people do not do", r, g.People)
		}
		// Behind servers that do not collude, a report hides among the others.
		if !(p.Loss.Epsilon < 0.2) {
			t.Errorf("%s: %v behind the servers", r, p.Loss)
		}
	}
	// RAPPOR at e^(e/2) = 3: f = 1/4, f(1-f)/(1-2f)^2 = 3/4.
	g := histogram(100)
	g.Randomizer = RAPPOR
	if d := g.deviation(100, 2*math.Log(3)); math.Abs(d-math.Sqrt(75)) > 1e-9 {
		t.Errorf("deviation %v, want %v", d, math.Sqrt(75))
	}
	// Binary randomized response at e^e = 3: p = 3/4, p(1-p)/(2p-1)^2 = 3/4.
	g.Query, g.Randomizer = recipe.Count{}, RR
	if d := g.deviation(100, math.Log(3)); math.Abs(d-math.Sqrt(75)) > 1e-9 {
		t.Errorf("deviation %v, want %v", d, math.Sqrt(75))
	}
}

// TestRecipe: what a plan promises is what devices compute from its recipe.
func TestRecipe(t *testing.T) {
	o := account.Options{Name: "Ages", Leader: "https://leader.example/", Helper: "https://helper.example/"}
	for _, q := range []recipe.Query{recipe.Count{}, recipe.Histogram{Length: 21}, recipe.Sum{Max: 100}, recipe.Mean{Max: 100},
		recipe.Multihot{Length: 8, MaxWeight: 3}, recipe.SumVec{Length: 4, Max: 15},
		recipe.L1BoundSum{Length: 8, Max: 10}, recipe.Quantiles{Max: 99, Width: 1, Branching: 5},
		recipe.GroupSums{Min: -5, Max: 20, Groups: 4}} {
		p := mustMake(t, Goal{Query: q, People: 20000, Within: 0.01, Rounds: 3})
		r, err := p.Recipe(o)
		if err != nil {
			t.Fatalf("%v: %v", q, err)
		}
		g, err := account.Guarantee(r)
		if err != nil || g.Epsilon != p.Loss.Epsilon || g.Rounds != 3 || r.MinBatch != 10000 {
			t.Errorf("%v: planned %v, the recipe gives %v, %v", q, p.Loss, g.Loss, err)
		}
	}
}

// TestRanks: an error in ranks is that of a node times what a tree makes of it.
func TestRanks(t *testing.T) {
	q := recipe.Quantiles{Max: 99, Width: 1, Branching: 5}
	p := mustMake(t, Goal{Query: q, People: 20000, Epsilon: 1})
	if want := 1.959964 * math.Sqrt(2*p.Variance.Float()*q.FitVariance()); math.Abs(p.Error.Each/want-1) > 1e-6 || q.FitVariance() < 1.5 {
		t.Errorf("ranks within %v, want %v", p.Error.Each, want)
	}
}

// TestTables: an error of a table is that of a place times what the fit makes of it.
func TestTables(t *testing.T) {
	made, err := recipe.ParseQuery("hierarchy:a(b,c),d(e,f)")
	if err != nil {
		t.Fatal(err)
	}
	q := recipe.WithChunk(made).(recipe.Hierarchy)
	p := mustMake(t, Goal{Query: q, People: 20000, Epsilon: 1})
	if want := 1.959964 * math.Sqrt(2*p.Variance.Float()*q.FitVariance()); math.Abs(p.Error.Each/want-1) > 1e-6 || q.FitVariance() > .9 {
		t.Errorf("counts within %v, want %v", p.Error.Each, want)
	}
	if _, err := p.Recipe(account.Options{Name: "Tables", Leader: "https://leader.example/", Helper: "https://helper.example/"}); err != nil {
		t.Error(err)
	}
}

// TestUnplanned: no error of a cell is passed off as that of what is made of all.
func TestUnplanned(t *testing.T) {
	for _, q := range []recipe.Query{recipe.Distinct{Keyed: recipe.Keyed{Width: 100}}, recipe.Norm{Keyed: recipe.Keyed{Width: 100}}} {
		if _, err := Make(Goal{Query: q, People: 20000, Epsilon: 1}); !errors.Is(err, ErrGoal) || !strings.Contains(err.Error(), "recipe show") {
			t.Errorf("%v", err)
		}
	}
}

// TestRecipeOfCoinsAndBlur: so they are where devices toss coins or blur their answers,
// from an accuracy and from a loss.
func TestRecipeOfCoinsAndBlur(t *testing.T) {
	o := account.Options{Name: "Ages", Leader: "https://leader.example/", Helper: "https://helper.example/",
		Relay: &recipe.Relay{URL: "https://relay.example/", Gateway: "https://leader.example/gateway"}}
	hide := func(q recipe.Query) Goal {
		return Goal{Query: q, People: 2000, Population: 20_000, HideCount: true, Within: 0.05}
	}
	blur := func(q recipe.Query, r Randomizer) Goal {
		return Goal{Query: q, People: 400, Randomizer: r, Within: 0.3}
	}
	for i, g := range []Goal{
		hide(recipe.Count{}), hide(recipe.Histogram{Length: 21}), hide(recipe.Mean{Max: 20}),
		blur(recipe.Count{}, RR), blur(recipe.Histogram{Length: 3}, RR), blur(recipe.Count{}, RAPPOR), blur(recipe.Histogram{Length: 21}, RAPPOR),
	} {
		if i%2 == 1 {
			g.Within, g.Epsilon, g.Rounds = 0, 0.5, 2
		}
		p := mustMake(t, g)
		if !p.Fits {
			t.Fatalf("%+v: %+v", g, p)
		}
		r, err := p.Recipe(o)
		if err != nil {
			t.Errorf("%+v: %v", g, err)
			continue
		}
		got, err := account.Guarantee(r)
		if err != nil || got.Loss != p.Loss || got.Rounds != p.Goal.Rounds || got.Neighbours != p.Neighbours ||
			!reflect.DeepEqual(got.Fallbacks, p.Fallbacks) || r.Threshold() != p.MinBatch+p.Allowance {
			t.Errorf("%+v: planned %v, the recipe gives %v, %v", g, p.Loss, got, err)
		}
		if g.Epsilon != 0 && !(p.promised().Epsilon <= g.Epsilon && p.promised().Epsilon > 0.98*g.Epsilon) {
			t.Errorf("%+v: epsilon %v", g, p.promised())
		}
	}
}

// TestNoRecipe: what no recipe says is refused with the reason.
func TestNoRecipe(t *testing.T) {
	o := account.Options{Name: "Ages", Leader: "https://leader.example/", Helper: "https://helper.example/"}
	public := histogram(20000)
	public.Within, public.Population = 0.01, 100000
	unseen := Goal{Query: recipe.Count{}, People: 2000, Population: 20_000, HideCount: true, Within: 0.05}
	far := histogram(20)
	far.Within = 0.01
	for _, g := range []Goal{public, unseen, far} {
		var unsaid *NotExpressibleError
		if _, err := mustMake(t, g).Recipe(o); !errors.As(err, &unsaid) {
			t.Errorf("%+v: %v, want a NotExpressibleError", g, err)
		}
	}
	// Too few are drawn for so many dummies.
	if _, err := Make(Goal{Query: recipe.Count{}, People: 30, Population: 20_000, HideCount: true, Epsilon: 0.1}); !errors.Is(err, ErrGoal) {
		t.Errorf("hiding 100 reports: %v", err)
	}
}

func TestGoals(t *testing.T) {
	good := histogram(1000)
	good.Epsilon = 1
	for name, change := range map[string]func(*Goal){
		"no query":       func(g *Goal) { g.Query = nil },
		"no bucket":      func(g *Goal) { g.Query = recipe.Histogram{} },
		"nobody":         func(g *Goal) { g.People = 0 },
		"too many":       func(g *Goal) { g.People = MaxPeople + 1 },
		"small crowd":    func(g *Goal) { g.Population = 999 },
		"dummies of all": func(g *Goal) { g.HideCount = true },
		"nothing":        func(g *Goal) { g.Epsilon = 0 },
		"NaN epsilon":    func(g *Goal) { g.Epsilon = math.NaN() },
		"NaN within":     func(g *Goal) { g.Within = math.NaN() },
		"sure":           func(g *Goal) { g.Confidence = 1 },
		"delta":          func(g *Goal) { g.Delta = 1 },
		"rounds":         func(g *Goal) { g.Rounds = recipe.MaxRounds + 1 },
		"batch of one":   func(g *Goal) { g.MinBatch = 1 },
		"batch of more":  func(g *Goal) { g.MinBatch = 1001 },
		"randomizer":     func(g *Goal) { g.Randomizer = "dice" },
		"rr of sums":     func(g *Goal) { g.Randomizer, g.Query = RR, recipe.Sum{Max: 3} },
		"rr of a sample": func(g *Goal) { g.Randomizer, g.Population = RR, 5000 },
	} {
		g := good
		change(&g)
		if p, err := Make(g); !errors.Is(err, ErrGoal) {
			t.Errorf("%s: planned %+v, %v", name, p, err)
		}
	}
}

func TestJSON(t *testing.T) {
	g := histogram(20000)
	g.Within = 0.01
	b, err := json.Marshal(mustMake(t, g))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"epsilon", "delta", "sigma", "min_batch", "sampling", "fits", "error", "fallbacks", "instead", "neighbours"} {
		if got[key] == nil {
			t.Errorf("no %s in %s", key, b)
		}
	}
}

// TestUnsampled: a sum too wide for the losses of a secret sample is refused in words,
// not by the accountant's types.
func TestUnsampled(t *testing.T) {
	for _, hide := range []bool{false, true} {
		g := Goal{Query: recipe.Sum{Max: 1_000_000}, People: 100_000, Population: 1_000_000, HideCount: hide}
		g.Within, g.Rounds = 0.01, 50
		_, err := Make(g)
		if !errors.Is(err, release.ErrUnsupported) || !strings.Contains(err.Error(), "a secret sample of numbers up to 1e+06") {
			t.Errorf("hidden count %v: %v", hide, err)
		}
	}
}

// TestHalfTheReportsMissing: where half of the people are fewer than a batch nothing is
// released, and else it is, and less exactly.
func TestHalfTheReportsMissing(t *testing.T) {
	for batch, want := range map[uint64]string{10_000: "nothing changes for a person; the error ", 10_001: "nothing is released, because a batch needs 10001"} {
		g := histogram(20_000)
		g.Epsilon, g.MinBatch = 1, batch
		p := mustMake(t, g)
		i := slices.IndexFunc(p.Fallbacks, func(f recipe.Fallback) bool { return f.When == "half the reports are missing" })
		if i < 0 || !strings.HasPrefix(p.Fallbacks[i].Note, want) || p.Fallbacks[i].Loss != p.Loss {
			t.Errorf("a batch of %d: %+v, want %q", batch, p.Fallbacks, want)
		}
	}
}
