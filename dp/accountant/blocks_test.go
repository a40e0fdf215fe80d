package accountant

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// Very many plain Gaussian releases, which a formula knows too.
func TestBlocksOfGaussians(t *testing.T) {
	for _, c := range []struct {
		sigma float64
		n     uint64
		delta float64
	}{{600, manyReleases, 1e-5}, {1e5, 1_000_000_007, 1e-10}} {
		if c.n > manyReleases && !patient() {
			continue
		}
		e := selfCompose{gauss(c.sigma), c.n}
		exact := epsilon(t, e, c.delta, release.AddRemove)
		g, err := Options{Method: PLD}.epsilon(e, c.delta, release.AddRemove)
		if err != nil || exact.Method != string(ClosedForm) {
			t.Fatal(err, exact.Method)
		}
		if g.Epsilon < exact.EpsilonLower || g.EpsilonLower > exact.Epsilon || g.Epsilon > exact.Epsilon*(1+1e-3) || g.EpsilonLower < exact.Epsilon*(1-1e-3) {
			t.Errorf("%+v: %v to %v, by formula %v", c, g.EpsilonLower, g.Epsilon, exact.Epsilon)
		}
		d, err := Options{Method: PLD}.delta(e, exact.Epsilon, release.AddRemove)
		if err != nil || d.Delta < c.delta*(1-1e-6) || d.DeltaLower > c.delta*(1+1e-6) || d.Delta > c.delta*1.05 {
			t.Errorf("%+v: delta %v to %v, %v", c, d.DeltaLower, d.Delta, err)
		}
	}
}

// Where rare losses are far larger than the rest, blocks would be of no use. The limits
// are a little above the epsilon that one fine grid proves.
func TestNoBlocksOfRareLosses(t *testing.T) {
	g := epsilon(t, sampled(.7, 1e-5, 4*manyReleases), 1e-8, release.AddRemove)
	if !(g.Epsilon > 0.1 && g.Epsilon < 0.15) {
		t.Errorf("epsilon %v", g.Epsilon)
	}
}

// In blocks and on one grid, both bounds agree.
func TestBlocksAndOneGrid(t *testing.T) {
	for _, c := range []struct {
		e     event
		n     uint64
		delta float64
	}{
		{poissonSample{gauss(5), 1e-4}, 3_000_017, 1e-12},
		{poissonSample{randomizedResponse{1, 2}, .001}, 400_000, 1e-9},
		{poissonSample{lap(30), .01}, 500_000, 1e-7},
	} {
		d, err := c.e.(dominated).dominating(release.AddRemove)
		if err != nil {
			t.Fatal(err)
		}
		q := question{g: release.Guarantee{Delta: c.delta}, wantEpsilon: true, tail: c.delta * 1e-9 / float64(c.n), slop: 2 * massError * float64(c.n)}
		for i, x := range []pair{d.pair, swapped{d.pair}} {
			terms := []term{{dominance{pair: x}, c.n}}
			q.blocks = false
			one, err := q.bracket(terms, 1e-3, true, bounds{})
			if err != nil {
				t.Fatal(err)
			}
			q.blocks = true
			two, err := q.bracket(terms, 1e-3, true, bounds{})
			if err != nil {
				t.Fatal(err)
			}
			if one.lower > two.upper || two.lower > one.upper || math.Abs(two.upper/one.upper-1) > 1e-3 || two.lower < two.upper*(1-2e-3) {
				t.Errorf("%+v, direction %d: %v to %v in blocks, %v to %v on one grid", c, i, two.lower, two.upper, one.lower, one.upper)
			}
		}
	}
}

// Where a loss may be infinite, a block's finite losses do not have all of the
// probability, above or below.
func TestBlocksOfInfiniteLosses(t *testing.T) {
	l, err := convolveParts([]part{{grid{h: 1, origin: -1, p: []float64{.3, .2, .3}, inf: .2}, 4}}, 0, math.Log(1e-12))
	if err != nil {
		t.Fatal(err)
	}
	for _, upper := range []bool{true, false} {
		a, finite := l.losses(upper), 0.0
		for _, p := range a.p {
			finite += p
		}
		if want := math.Pow(.8, 4); math.Abs(finite-want) > 1e-9 || math.Abs(a.pInf-(1-want)) > 1e-9 || (finite < want) == upper {
			t.Errorf("upper %v: finite losses have %v, want %v, infinite ones %v", upper, finite, want, a.pInf)
		}
	}
}
