package accountant

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

func allocated(sigma float64, picks, steps uint64) event {
	return allocation{gauss(sigma), steps, picks}
}

func TestReferenceAllocation(t *testing.T) {
	rr := func(e0 float64, m uint64) event { return allocation{randomizedResponse{e0, 2}, m, 1} }
	for i, r := range []struct {
		name  string
		event event
		delta float64
		want  float64
		tol   float64
	}{
		{"41a", rr(1, 1000), 1e-6, .1266145, 1e-6},
		{"41b", poissonSample{rr(1, 1000), .1}, 1e-6, .0102265, 1e-6},
		{"41c", rr(1, 1e4), 1e-6, .0356588, 1e-6},
		{"43a", allocated(1, 1, 100), 1e-6, .857986, 5e-5},
		{"43b", allocated(2, 1, 100), 1e-6, .204930, 5e-5},
		{"43c", allocated(4, 1, 100), 1e-6, .091754, 5e-5},
		{"44a", allocated(1, 1, 1000), 1e-6, .171729, 2e-4},
		{"44b", allocated(2, 1, 10), 1e-6, .728870, 2e-4},
		{"44c", allocated(.5, 1, 1000), 1e-5, 3.13415, 2e-4},
		{"45a", selfCompose{allocated(2, 1, 100), 10}, 1e-6, .69590, 3e-4},
		{"45b", selfCompose{allocated(1, 1, 100), 10}, 1e-6, 1.96427, 3e-4},
		{"45c", allocated(3, 10, 100), 1e-6, 1.49203, 3e-4},
		{"46", allocated(5.1, 1, 100), 1e-8, .090599, 5e-5},
	} {
		if i%3 != 0 && !patient() {
			continue
		}
		g := epsilon(t, r.event, r.delta, release.ZeroOut)
		least := r.want * (1 - 1e-3)
		if a, ok := r.event.(allocation); ok && a.Picks > 1 {
			least = r.want * (1 - 2e-2) // merged into few values
		}
		if g.Epsilon < r.want-r.tol || g.Epsilon > r.want+r.tol || g.EpsilonLower > r.want+r.tol || g.EpsilonLower < least {
			t.Errorf("row %s: [%.7f, %.7f], want %.7f", r.name, g.EpsilonLower, g.Epsilon, r.want)
		}
	}
}

// Row 43 gives both directions; Epsilon is the larger.
func TestReferenceAllocationDirections(t *testing.T) {
	for _, r := range []struct{ sigma, remove, add float64 }{
		{1, .857986, .486425}, {2, .204930, .200679}, {4, .091754, .091562},
	} {
		d, err := allocated(r.sigma, 1, 100).(allocation).dominating(release.AddRemove)
		if err != nil {
			t.Fatal(err)
		}
		for _, way := range []struct {
			name string
			pair pair
			want float64
		}{{"remove", d.pair, r.remove}, {"add", swapped{d.pair}, r.add}} {
			delta := func(epsilon float64) float64 {
				total, _ := way.pair.infinite()
				way.pair.points(func(loss, p, _ float64) {
					if loss > epsilon {
						total += p * -math.Expm1(epsilon-loss)
					}
				})
				return total
			}
			if above, below := delta(way.want-5e-5), delta(way.want+5e-5); !(below <= 1e-6 && 1e-6 <= above) {
				t.Errorf("row 43, sigma %v, %s: delta %v to %v around %v", r.sigma, way.name, below, above, way.want)
			}
		}
	}
}

// One of two discrete Gaussian releases, summed over all pairs of outcomes.
func TestAllocationAgainstBruteForce(t *testing.T) {
	const s2, r = 2.0, 30
	total := 0.0
	for y := -200; y <= 200; y++ {
		total += math.Exp(-float64(y*y) / (2 * s2))
	}
	p := func(y int) float64 { return math.Exp(-float64(y*y)/(2*s2)) / total }
	for _, steps := range []int{2, 3} {
		event := allocation{discrete(2, 1, release.Interval(1)), uint64(steps), 1}
		for _, e := range []float64{0, .1, .5, 1, 1.7} {
			remove, add := 0.0, 0.0
			var walk func(k int, present, absent float64)
			walk = func(k int, present, absent float64) { // present: sum over slots of the likelihood ratio
				if k == 0 {
					in := absent * present / float64(steps)
					remove += max(0, in-math.Exp(e)*absent)
					add += max(0, absent-math.Exp(e)*in)
					return
				}
				for y := -r; y <= r; y++ {
					if q := p(y); absent*q > 1e-25 {
						walk(k-1, present+p(y-1)/q, absent*q)
					}
				}
			}
			walk(steps, 0, 1)
			want := max(remove, add)
			g, err := deltaOf(event, e, release.AddRemove)
			if err != nil {
				t.Fatal(err)
			}
			if g.Delta < want*(1-1e-9) || g.DeltaLower > want*(1+1e-9)+1e-15 || g.Delta > want*1.001+1e-12 || g.DeltaLower < want*.999-1e-9 {
				t.Errorf("%d steps at %v: [%v, %v], brute force %v", steps, e, g.DeltaLower, g.Delta, want)
			}
		}
	}
}

func TestAllocationProperties(t *testing.T) {
	for _, tc := range []struct {
		sigma float64
		steps uint64
	}{{1, 10}, {2, 50}} {
		if tc.steps > 10 && !patient() {
			continue
		}
		a := epsilon(t, allocated(tc.sigma, 1, tc.steps), 1e-6, release.AddRemove)
		p := epsilon(t, sampled(tc.sigma, 1/float64(tc.steps), tc.steps), 1e-6, release.AddRemove)
		if a.Epsilon > p.Epsilon {
			t.Errorf("%+v: allocation %v is above Poisson sampling %v", tc, a.Epsilon, p.Epsilon)
		}
		more := epsilon(t, allocated(tc.sigma, 1, 2*tc.steps), 1e-6, release.AddRemove)
		if more.Epsilon >= a.Epsilon {
			t.Errorf("%+v: twice the steps give %v, not below %v", tc, more.Epsilon, a.Epsilon)
		}
	}
	near(t, "one step", epsilon(t, allocated(1, 1, 1), 1e-6, release.AddRemove).Epsilon, epsilon(t, gauss(1), 1e-6, release.AddRemove).Epsilon, 1e-3)
	rr := allocation{randomizedResponse{.7, 2}, 1, 1}
	near(t, "one response", epsilon(t, rr, 1e-12, release.AddRemove).Epsilon, .7, 1e-6)
	for _, e := range []allocation{{gauss(1), 0, 1}, {gauss(1), 5, 0}, {gauss(1), 5, 6}} {
		if _, err := epsilonOf(e, 1e-6, release.AddRemove); !errors.Is(err, release.ErrParameter) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	for _, e := range []event{allocation{zcdp{1}, 5, 1}, allocation{nil, 5, 1}} {
		if _, err := epsilonOf(e, 1e-6, release.AddRemove); !errors.Is(err, release.ErrUnsupported) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	if _, err := epsilonOf(allocated(1, 1, 5), 1e-6, release.ReplaceOne); !errors.Is(err, release.ErrUnsupported) {
		t.Error(err)
	}
}

// TestAllocationsAreKept: the pairs of the same steps are computed once, and are those that
// would be computed anew.
func TestAllocationsAreKept(t *testing.T) {
	x := normalPair{.25}
	above, below, err := allocateOnce(x, 4)
	again, _, err2 := allocateOnce(x, 4)
	more, _, err3 := allocateOnce(x, 5)
	other, _, err4 := allocateOnce(normalPair{.5}, 4)
	if err := errors.Join(err, err2, err3, err4); err != nil {
		t.Fatal(err)
	}
	if above != again || above == more || above == other {
		t.Error("not the same pair for the same steps, or the same for others")
	}
	fresh, least, err := allocate(x, 4)
	if err != nil || !slices.Equal(above.p, fresh.p) || !slices.Equal(above.loss, fresh.loss) || !slices.Equal(below.q, least.q) {
		t.Errorf("what was kept is not what is computed: %v", err)
	}
}
