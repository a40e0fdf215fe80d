package accountant

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// The pair of a hidden count and a release lies above the exact product of the two, and
// hardly above it.
func TestMixed(t *testing.T) {
	for _, c := range []struct {
		dummies dummyCount
		inner   event
	}{
		{dummyCount{3000, .2}, discreteGaussian{Sigma2: release.Rational{Num: 40, Den: 1}, Contribution: release.OneHot()}},
		{dummyCount{200, .1}, discreteGaussian{Sigma2: release.Rational{Num: 900, Den: 1}, Contribution: release.OneHot()}},
		{dummyCount{900, .5}, discreteLaplace{Scale: release.Rational{Num: 7, Den: 2}, Contribution: release.Signed(40)}},
		{dummyCount{100000, .3}, discreteGaussian{Sigma2: release.Rational{Num: 3, Den: 2}, Contribution: release.Signed(2)}},
	} {
		x, err := c.dummies.dominating(release.AddRemove)
		if err != nil {
			t.Fatal(err)
		}
		y, err := c.inner.(dominated).dominating(release.AddRemove)
		if err != nil {
			t.Fatal(err)
		}
		a, b := x.pair.(*atoms), y.pair.(*atoms)
		if len(a.loss)*len(b.loss) <= mixedOutright {
			t.Fatalf("%+v: only %d and %d outcomes", c, len(a.loss), len(b.loss))
		}
		above, err := mixed(a, b)
		if err != nil {
			t.Fatal(err)
		}
		exact := a.times(b)
		for _, rate := range []float64{1, .01} {
			for _, back := range []bool{false, true} {
				f, g := pair(poisson{above, rate}), pair(poisson{exact, rate})
				if back {
					f, g = swapped{f}, swapped{g}
				}
				claimed, truth := pointsCurve(f), pointsCurve(g)
				for _, e := range []float64{0, .003, .01, .03, .1, .3, 1} {
					_, up := claimed(e)
					low, want := truth(e)
					loose := 1e-3
					if want < 1e-12 {
						loose = 1e-2 // far out, where the curve is steep
					}
					if up < low || up > want*(1+loose)+1e-25 {
						t.Errorf("%+v, rate %v, back %v, epsilon %v: %v, exactly %v to %v", c, rate, back, e, up, low, want)
					}
				}
				if _, up := claimed(0); math.IsNaN(up) {
					t.Error("no number")
				}
			}
		}
	}
}
