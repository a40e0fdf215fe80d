package accountant

import (
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// TestDirectionsApart: the guarantee is the larger of both directions, and each is that
// of its own pair.
func TestDirectionsApart(t *testing.T) {
	one := func(e event, d release.Direction, n release.Neighbours) release.Guarantee {
		t.Helper()
		g, err := Options{Direction: d}.epsilon(e, 1e-6, n)
		if err != nil {
			t.Fatalf("%+v, %s: %v", e, d, err)
		}
		if g.Direction != d || !(g.EpsilonLower <= g.Epsilon) {
			t.Errorf("%+v, %s: %+v", e, d, g)
		}
		return g
	}
	for _, tc := range []struct {
		sigma       float64
		remove, add float64
	}{{1, .857986, .486425}, {2, .204930, .200679}, {4, .091754, .091562}} {
		if tc.sigma > 1 && !patient() {
			continue
		}
		e := allocation{gaussian{tc.sigma, release.Signed(1)}, 100, 1}
		near(t, "row 43, remove", one(e, release.Remove, release.AddRemove).Epsilon, tc.remove, 5e-5)
		near(t, "row 43, add", one(e, release.Add, release.AddRemove).Epsilon, tc.add, 5e-5)
	}
	for i, e := range []event{
		sampled(1, .1, 20),
		poissonSample{gaussian{1, release.Signed(1)}, .1}, // which has a formula for both
		composition{sampled(2, .3, 5), lap(3)},
		gaussian{1, release.Signed(1)},
		checkedIn{reportOf(laplace{2, release.Signed(1)}), 10, .5},
		dummyCount{1000, .02},
	} {
		if i%2 == 1 && !patient() {
			continue
		}
		both, remove, add := one(e, release.BothDirections, release.ZeroOut), one(e, release.Remove, release.ZeroOut), one(e, release.Add, release.ZeroOut)
		if worst := max(remove.Epsilon, add.Epsilon); math.Abs(both.Epsilon-worst) > 3e-4*worst {
			t.Errorf("%+v: %v in all, %v and %v apart", e, both.Epsilon, remove.Epsilon, add.Epsilon)
		}
		d, err := Options{Direction: release.Add}.delta(e, add.Epsilon, release.ZeroOut)
		if err != nil || math.Abs(math.Log(d.Delta/1e-6)) > 0.01 {
			t.Errorf("%+v: delta is %v (%v) where epsilon was asked at 1e-6", e, d.Delta, err)
		}
	}
	for _, tc := range []struct {
		o    Options
		n    release.Neighbours
		want error
	}{
		{Options{Direction: release.Add}, release.ReplaceOne, release.ErrUnsupported},
		{Options{Direction: release.Add, Method: RDP}, release.AddRemove, release.ErrUnsupported},
		{Options{Direction: "up"}, release.AddRemove, release.ErrParameter},
	} {
		if g, err := tc.o.epsilon(sampled(1, .1, 20), 1e-6, tc.n); !errors.Is(err, tc.want) {
			t.Errorf("%+v: %v, %v", tc.o, g, err)
		}
	}
}

// TestTextbookConversions: the simple conversion of zCDP, both ways, and whole orders only.
func TestTextbookConversions(t *testing.T) {
	for _, tc := range []struct{ rho, delta, want float64 }{{.1, 1e-6, 2.4507880}, {1, 1e-6, 1 + 2*math.Sqrt(6*math.Ln10)}, {.005, 1e-8, .005 + 2*math.Sqrt(.005*8*math.Ln10)}} {
		for _, e := range []event{zcdp{tc.rho}, gaussian{1 / math.Sqrt(2*tc.rho), release.Signed(1)}, selfCompose{zcdp{tc.rho / 4}, 4}} {
			g, err := Options{Method: SimpleZCDP}.epsilon(e, tc.delta, release.AddRemove)
			if err != nil || math.Abs(g.Epsilon-tc.want) > 1e-6 || g.Method != string(SimpleZCDP) {
				t.Errorf("%+v: %v (%v), want %v", e, g, err, tc.want)
			}
			back, err := Options{Method: SimpleZCDP}.delta(e, g.Epsilon, release.AddRemove)
			if err != nil || back.Delta > tc.delta*(1+1e-9) || back.Delta < tc.delta*(1-1e-6) {
				t.Errorf("%+v: delta(%v) is %v (%v), want %v", e, g.Epsilon, back.Delta, err, tc.delta)
			}
			best, err := Options{Method: ZCDPMethod}.epsilon(e, tc.delta, release.AddRemove)
			if err != nil || !(best.Epsilon < g.Epsilon) {
				t.Errorf("%+v: the best conversion gives %v (%v), the simple one %v", e, best.Epsilon, err, g.Epsilon)
			}
		}
	}
	if g, err := (Options{Method: SimpleZCDP}).delta(zcdp{1}, .5, release.AddRemove); err != nil || g.Delta != 1 {
		t.Errorf("below rho delta is %v (%v), want 1", g.Delta, err)
	}
	if g, err := (Options{Method: SimpleZCDP}).epsilon(lap(1), 1e-6, release.AddRemove); !errors.Is(err, release.ErrUnsupported) {
		t.Errorf("%v, %v", g, err)
	}
	orders := IntegerOrders()
	if len(orders) != 257 || orders[0] != 2 || orders[256] != 1024 {
		t.Errorf("%d orders from %v to %v", len(orders), orders[0], orders[len(orders)-1])
	}
	e := sampled(5.1, .02, 2500)
	whole, err := Options{Method: RDP, Orders: orders}.epsilon(e, 1e-8, release.AddRemove)
	if err != nil || math.Abs(whole.Epsilon-1.0826008) > 1e-6 {
		t.Errorf("row 10: %v, %v", whole, err)
	}
}
