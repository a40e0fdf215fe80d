package accountant

import (
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

func integerOrders() []float64 {
	var orders []float64
	for a := 2.0; a <= 256; a++ {
		orders = append(orders, a)
	}
	return orders
}

func byRDP(t *testing.T, e event, delta float64, orders []float64) release.Guarantee {
	t.Helper()
	g, err := Options{Method: RDP, Orders: orders}.epsilon(e, delta, release.AddRemove)
	if err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
	if g.Method != "rdp" || g.EpsilonLower != 0 {
		t.Fatalf("asked for rdp, got %+v", g)
	}
	return g
}

// Reference values: dp.md, section 3, rows 8 to 13 and 26.
func TestReferenceRDP(t *testing.T) {
	for _, r := range []struct{ order, want, tol float64 }{
		{2, 1.7181342e-4, 1e-7}, {8, 8.9364391e-4, 1e-7}, {32, 11.2462759, 1e-7},
		{1.5, 1.272537433e-4, 1e-8}, {2.5, 2.175753323e-4, 1e-8}, {16.5, 3.347741618, 1e-8},
	} {
		got, err := renyiDivergence(sampled(1, .01, 1), r.order, release.AddRemove)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got/r.want-1) > r.tol {
			t.Errorf("order %v: %.10g, want %.10g", r.order, got, r.want)
		}
	}
	for _, r := range []struct {
		event event
		delta float64
		want  float64
	}{
		{sampled(5.1, .02, 2500), 1e-8, 1.0826008},
		{sampled(1.1, 256./60000, 14062), 1e-5, 2.5969812},
		{sampled(1, .01, 1000), 1e-5, 2.1077531},
		{selfCompose{gauss(5.1), 50}, 1e-8, 8.7855111},
	} {
		near(t, "rows 10 to 12", byRDP(t, r.event, r.delta, integerOrders()).Epsilon, r.want, 1e-6)
	}
	near(t, "row 13", byRDP(t, zcdp{.05}, 1e-6, []float64{10}).Epsilon, 1.6738534, 1e-7)
	g, err := AdvancedComposition(.1, 0, 100, 1e-6, release.ReplaceOne)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "row 26", g.Epsilon, 6.3082310, 1e-6)
}

// Whole orders by the sum agree with the integral, and with an independent moment of the
// discretised pair.
func TestSampledDivergence(t *testing.T) {
	for _, tc := range []struct{ mu, q float64 }{{1, .01}, {.2, .02}, {2, .3}, {.05, 1e-3}, {3, .9}} {
		for a := 2.0; a < 40; a += 3 {
			x, y := sampledDivergence(tc.mu, tc.q, a), sampledDivergenceReal(tc.mu, tc.q, a)
			if math.Abs(x/y-1) > 1e-9 {
				t.Errorf("mu %v, q %v, order %v: sum %v, integral %v", tc.mu, tc.q, a, x, y)
			}
		}
		if tc.q*tc.mu < 1e-3 {
			continue // the logarithm of a moment so close to one has too few digits to compare
		}
		b, ok := bin(poisson{normalPair{tc.mu}, tc.q}, 5e-3*tc.mu*tc.mu*tc.q, 1e-60)
		if !ok {
			t.Fatal("does not fit")
		}
		g := b.upper()
		for _, a := range []float64{1.5, 2, 4.7} {
			x, y := sampledDivergenceReal(tc.mu, tc.q, a), g.logMoment(a-1)/(a-1)
			if math.Abs(x/y-1) > 1e-3 || y < x*(1-1e-9) {
				t.Errorf("mu %v, q %v, order %v: integral %v, discretised %v", tc.mu, tc.q, a, x, y)
			}
		}
	}
}

// The other divergences against the discretised pairs, which dominate them closely.
func TestDivergences(t *testing.T) {
	for _, e := range []event{gauss(2), lap(1.5), randomizedResponse{1, 2}, randomizedResponse{2, 7}, approxDP{.4, 0}} {
		d, err := e.(dominated).dominating(release.AddRemove)
		if err != nil {
			t.Fatal(err)
		}
		a, b := d.pair.anchors()
		h := 1e-3
		if b > a {
			h = (b - a) / 2000
		}
		bins, _ := bin(d.pair, h, 1e-100)
		g := bins.upper()
		for _, order := range []float64{1.1, 2, 3.5, 20} {
			want := g.logMoment(order-1) / (order - 1)
			got, err := renyiDivergence(e, order, release.AddRemove)
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(got/want-1) > 1e-4 {
				t.Errorf("%+v, order %v: %v, discretised %v", e, order, got, want)
			}
		}
	}
}

func TestMethodsAgree(t *testing.T) {
	for i, e := range []event{
		sampled(5.1, .02, 2500), sampled(1, .1, 30), selfCompose{lap(5), 20}, selfCompose{randomizedResponse{.3, 5}, 40},
		composition{gauss(3), selfCompose{lap(10), 5}, approxDP{.2, 0}}, selfCompose{discrete(50, 1, release.OneHot()), 9},
	} {
		if i%2 == 1 && !patient() {
			continue
		}
		pld, rdp := byPLD(t, e, 1e-7, release.AddRemove), byRDP(t, e, 1e-7, nil)
		if pld.Epsilon > rdp.Epsilon || rdp.Epsilon > 2*pld.Epsilon {
			t.Errorf("%+v: pld %v, rdp %v", e, pld.Epsilon, rdp.Epsilon)
		}
		d, err := Options{Method: RDP}.delta(e, rdp.Epsilon, release.AddRemove)
		if err != nil || math.Abs(d.Delta/1e-7-1) > 1e-6 {
			t.Errorf("%+v: delta at %v is %v, %v", e, rdp.Epsilon, d.Delta, err)
		}
	}
	// What has no privacy loss distribution falls back to Renyi divergences, and says so.
	if g := epsilon(t, composition{sampled(5, .01, 100), zcdp{.01}}, 1e-6, release.AddRemove); g.Method != "rdp" {
		t.Errorf("%+v", g)
	}
	z, err := Options{Method: ZCDPMethod}.epsilon(composition{gauss(3), zcdp{.01}, discrete(400, 1, release.Interval(1))}, 1e-6, release.AddRemove)
	if err != nil || z.Method != "zcdp" || z.Epsilon < epsilon(t, gauss(3), 1e-6, release.AddRemove).Epsilon {
		t.Errorf("%+v, %v", z, err)
	}
	if _, err := (Options{Method: ZCDPMethod}).epsilon(lap(1), 1e-6, release.AddRemove); !errors.Is(err, release.ErrUnsupported) {
		t.Error(err)
	}
	for _, order := range []float64{1, .5, math.NaN(), math.Inf(1)} {
		if _, err := renyiDivergence(gauss(1), order, release.AddRemove); !errors.Is(err, release.ErrParameter) {
			t.Errorf("order %v: %v", order, err)
		}
	}
	// A huge number of tiny steps: safe, and not below what a smaller number gives.
	count := uint64(1e8)
	if patient() {
		count = 1e12
	}
	many := epsilon(t, sampled(50, 1e-6, count), 1e-6, release.AddRemove)
	if few := epsilon(t, sampled(50, 1e-6, 1e6), 1e-6, release.AddRemove); many.Epsilon < few.Epsilon {
		t.Errorf("%v after %d, %v after 1e6", many, count, few)
	}
}
