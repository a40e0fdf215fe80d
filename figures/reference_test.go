package figures

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
)

// Reference values of the error curves: sigma and error of each model, at N = 10^6 people
// and K = 1000 values. sigma of SAMPAGG is by privacy loss distributions, except for its
// first three rows, which are closed forms of one release.
func TestReferenceCurves(t *testing.T) {
	b, err := newBudget(1, 1e-6)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []struct {
		row       string
		tasks     uint64
		rare, m   float64
		agg       float64 // sigma; 0 where no value is known
		aggError  float64
		rate      float64
		secret    float64 // sigma
		error     float64
		tolerance float64
	}{
		{"47", 1, 0, 1e3, 4.2246789, .0188479, .001, .506709, .00125675, .002},
		{"48a", 1, 0, 1e5, 4.2246789, 0, .1, 1.432586, 1.020523e-5, .002},
		{"48b", 100, 0, 1e5, 13.35961, 2.784791e-5, .1, 4.4524, 1.19824e-5, .002},
		{"49", 1000, 0, 1e5, 42.24679, 1.884792e-4, .1, 13.4332, 2.80452e-5, .003},
		{"50", 1, .01, 1e4, 4.2246789, 1.794791e-4, .5, 2.827671, 5.198289e-8, .002},
		{"51", 1000, .1, 1e4, 0, 1.794791e-3, .05, 6.7749, 2.03597e-5, .003},
	} {
		s := study{people: 1e6, alphabet: 1000, tasks: r.tasks, rare: r.rare}
		near := func(what string, got, want float64) {
			t.Helper()
			if want != 0 && !(math.Abs(got/want-1) <= r.tolerance) {
				t.Errorf("row %s: %s is %.7g, want %.7g", r.row, what, got, want)
			}
		}
		sigma := b.plain(s.releases(r.m))
		near("sigma of AGG", sigma, r.agg)
		near("error of AGG", s.aggregated(r.m, sigma), r.aggError)
		near("rate", s.rate(r.m), r.rate)
		n := need{s.rate(r.m), s.tasks, accountant.PLD}
		if sigma, err = b.secret(n); err != nil {
			t.Fatal(err)
		}
		near("sigma of SAMPAGG", sigma, r.secret)
		near("error of SAMPAGG", s.secret(r.m, sigma), r.error)
		if e, err := b.cost(n, sigma); err != nil || e > 1 {
			t.Errorf("row %s: sigma %v costs %v, %v", r.row, sigma, e, err)
		}
		moments, err := b.secret(need{n.rate, n.tasks, accountant.RDP})
		if err != nil || moments < sigma*(1-n.precision()) || moments > b.plain(float64(r.tasks)) {
			t.Errorf("row %s: sigma %v by moments, %v by privacy loss distributions, %v", r.row, moments, sigma, err)
		}
	}
	needles := study{people: 1e6, alphabet: 1000, tasks: 1, rare: .01}
	if got := needles.sampling(1e4); math.Abs(got/1e-6-1) > 1e-12 {
		t.Errorf("row 50: NONPRIVUNIF is %v", got)
	}
	if got := needles.importance(1e4); math.Abs(got/2e-8-1) > 1e-12 {
		t.Errorf("row 50: NONPRIVIMPSAMP is %v", got)
	}
	// With everyone who holds a rare value, nothing amplifies.
	if got, err := b.secret(need{needles.rate(2e4), 100, accountant.PLD}); err != nil || math.Abs(got/b.plain(100)-1) > 1e-9 {
		t.Errorf("sigma at rate one: %v, %v", got, err)
	}
}

func TestReleases(t *testing.T) {
	s := study{people: 1e6, alphabet: 10, tasks: 1000}
	for m, want := range map[float64]float64{1000: 1, 1001: 2, 2000: 2, 3000: 3, 7000: 7, 1e6: 1000, 1: 1} {
		if got := s.releases(m); got != want {
			t.Errorf("%v reports: a person is in %v releases, want %v", m, got, want)
		}
	}
}

// What the examples of paper 000 come to, from the reference values of the accountant.
func TestExamples(t *testing.T) {
	all, err := claims()
	if err != nil {
		t.Fatal(err)
	}
	want := []struct{ value, tolerance float64 }{
		{6.1063613, 1e-6}, {5.1003088, 1e-6}, {1.0000638, 1e-6},
		{.6052560, 1e-6}, {.8939133, 1e-6}, {4, 1e-9},
		{.0337883, 1e-7}, {.02628, 5e-6}, {1.02040, 5e-4}, {1.0826008, 1e-3}, {.792, 1e-3}, {2.0e-6, 5e-8},
		{102.288362, 1e-5}, {8.3433101, 1e-5},
		{.0166689, 1e-7}, {math.Log1p(.02 * math.Expm1(.8939133)), 1e-6},
	}
	if len(all) != len(want) {
		t.Fatalf("%d claims", len(all))
	}
	for i, c := range all {
		if math.Abs(c.value-want[i].value) > want[i].tolerance {
			t.Errorf("example %s, %s: %v, want %v", c.example, c.what, c.value, want[i].value)
		}
	}
	// "0.8 is not reached by any accounting".
	together := []release.Release{release.Times(2500, release.Gaussian{Sigma: 5.1, Contribution: release.OneHot()}).Sampled(release.Poisson{Rate: 0.02})}
	if g, err := accountant.Epsilon(together, 1e-8, release.AddRemove); err != nil || g.EpsilonLower < 0.999*g.Epsilon {
		t.Errorf("example 5: between %v and %v, %v", g.EpsilonLower, g.Epsilon, err)
	}
}
