package plan

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// Plans of devices' noise meet a loss and an accuracy, say what neither reaches, and are
// what devices compute from their recipes.
func TestNoisy(t *testing.T) {
	o := account.Options{Name: "n", Leader: "https://leader.example/", Helper: "https://helper.example/"}
	noisy := func(change func(*Goal)) *Plan {
		g := vectors(5000, 0)
		g.Randomizer = Noisy
		change(&g)
		return mustMake(t, g)
	}
	for name, p := range map[string]*Plan{
		"loss":     noisy(func(*Goal) {}),
		"rounds":   noisy(func(g *Goal) { g.Rounds = 10 }),
		"accuracy": noisy(func(g *Goal) { g.Epsilon, g.Within = 0, 0.01 }),
		"both":     noisy(func(g *Goal) { g.Epsilon, g.Within = 4, 0.01 }),
	} {
		r, err := p.Recipe(o)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := account.Guarantee(r)
		b, _ := account.ProvedBound(r)
		if err != nil || !p.Fits || got.Loss != p.Loss || !reflect.DeepEqual(got.Fallbacks, p.Fallbacks) || p.Proved == nil || b != *p.Proved || b.Ratio <= 1 {
			t.Errorf("%s: %+v, the recipe gives %v, %v", name, p, got, err)
		}
		if want := 1.959964 * math.Sqrt(5000*p.Variance.Float()) / (1 << 15); math.Abs(p.Error.Each-want) > 1e-5*want {
			t.Errorf("%s: error %v, want %v", name, p.Error, want)
		}
		if p.Local.Epsilon < 20*p.Loss.Epsilon {
			t.Errorf("%s: a report by itself has %v", name, p.Local)
		}
		q := r.Query.(recipe.Vector)
		for _, proof := range p.proofs() {
			if strings.HasPrefix(proof.Name, "l2") || proof.Proof == q.Proof && proof.MostReports != must2(r.MostReports()) {
				t.Errorf("%s: %+v", name, proof)
			}
		}
		var text strings.Builder
		if err := p.WriteText(&text, 0); err != nil || !strings.Contains(text.String(), "of delta in each") {
			t.Errorf("%s: %v\n%s", name, err, &text)
		}
		if j, err := json.Marshal(p); err != nil || !strings.Contains(string(j), `"proved_bound":{"bound":`) {
			t.Errorf("%s: %v\n%s", name, err, j)
		}
	}
	// One of two honest servers, and half of the devices counted on, cost the same: both
	// double the variance.
	servers := mustMake(t, vectors(5000, 0))
	devices := noisy(func(*Goal) {})
	if x := devices.Error.Each / servers.Error.Each; math.Abs(x-1) > 0.01 {
		t.Errorf("devices err by %v, servers by %v", devices.Error.Each, servers.Error.Each)
	}
	if len(servers.Instead) != 1 || servers.Instead[0].Randomizer != Noisy || !servers.Instead[0].Fits {
		t.Errorf("instead: %+v", servers.Instead)
	}
	// Out of reach: the people that it would take do.
	far := noisy(func(g *Goal) { g.Within = 0.0005 })
	if far.Fits || far.Needs == nil || far.Needs.People <= 5000 || far.Needs.Epsilon <= 2 {
		t.Fatalf("%+v", far)
	}
	if p := noisy(func(g *Goal) { g.Within, g.People = 0.0005, far.Needs.People+1 }); !p.Fits {
		t.Errorf("%d people do not do", far.Needs.People)
	}
	if p := noisy(func(g *Goal) { g.Within, g.Epsilon = 1e-9, 0 }); p.Fits || p.Needs == nil || p.Needs.Within <= 1e-9 {
		t.Errorf("%+v", p)
	}
	for _, change := range []func(*Goal){
		func(g *Goal) { g.Query = recipe.Count{} }, func(g *Goal) { g.Population = 100000 },
		func(g *Goal) {
			g.Query = recipe.Vector{Dimension: 10, Bound: 1 << 15, FracBits: 15, Proof: recipe.L2Fixed16}
		},
	} {
		g := vectors(5000, 0)
		g.Randomizer = Noisy
		change(&g)
		if _, err := Make(g); !errors.Is(err, ErrGoal) {
			t.Errorf("%+v: %v", g, err)
		}
	}
}

func must2(x uint64, _ bool) uint64 { return x }
