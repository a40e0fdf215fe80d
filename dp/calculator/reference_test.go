package calculator

import (
	"fmt"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
)

// The values were computed by independent codes: closed forms, 30-digit quadrature,
// dp_accounting 0.6.0, PLD_accounting. below is how far under the value an upper bound
// may lie, above how far over; a lower bound may not exceed the value.
func TestReferenceEpsilons(t *testing.T) {
	const tight = 2e-6
	gaussian := func(sigma, q float64, steps uint64) Line {
		return Line{Mechanism: release.NameGaussian, Sigma: sigma, Sampling: q, Steps: steps}
	}
	rr := func(e0 float64) Line { return Line{Mechanism: release.NameResponse, Epsilon0: e0} }
	kary := func(e0 float64, k uint64) Line { return Line{Mechanism: release.NameResponse, Epsilon0: e0, K: k} }
	checkIn := func(e0 float64, m uint64, p0, delta float64, n release.Neighbours) Ask {
		return Ask{Line: rr(e0), CheckIn: release.FixedWindow, Window: m, P0: p0, Delta: delta, Neighbours: n}
	}
	allocated := func(sigma float64, k, of, runs uint64, delta float64) Ask {
		return Ask{Line: Line{Mechanism: release.NameGaussian, Sigma: sigma, Picks: k, Of: of, Steps: runs}, Delta: delta}
	}
	for i, c := range []struct {
		q             Ask
		want          float64
		below, above  float64
		neighbours    release.Neighbours
		noLowerWanted bool
	}{
		{q: Ask{Line: gaussian(5.1, 0, 0), Delta: 1e-8}, want: 1.0000638, above: tight},
		{q: Ask{Line: gaussian(1, 0, 0), Delta: 1e-5}, want: 4.3771781, above: tight},
		{q: Ask{Line: gaussian(0.5, 0, 0), Delta: 1e-6}, want: 10.9971512, above: tight},
		{q: Ask{Line: gaussian(10, 0, 0), Delta: 1e-12}, want: 0.6470081, above: tight},
		{q: Ask{Line: gaussian(5.1, 0, 2500), Delta: 1e-8}, want: 102.288362, above: 1e-5},
		{q: Ask{Line: gaussian(5.1, 0, 50), Delta: 1e-8}, want: 8.3433101, above: 1e-5},
		{q: Ask{Line: gaussian(5.1, 0.02, 2500), Delta: 1e-8, Method: accountant.RDP}, want: 1.0826008, below: 1e-3, above: 1e-5},
		{q: Ask{Line: gaussian(5.1, 0.02, 2500), Delta: 1e-8}, want: 1.02040, above: 5e-4},
		{q: Ask{Line: gaussian(5.1, 0.02, 2500), Delta: 1e-6}, want: 0.83182, above: 5e-4},
		{q: Ask{Line: gaussian(1.1, 256.0/60000, 14062), Delta: 1e-5}, want: 2.38160, above: 5e-4},
		{q: Ask{Line: gaussian(1, 0.01, 1000), Delta: 1e-5}, want: 1.82824, above: 5e-4},
		{q: Ask{Line: gaussian(1, 0.5, 10), Delta: 1e-6}, want: 11.79878, above: 1.5e-3},
		{q: Ask{Line: gaussian(4, 0.01, 10000), Delta: 1e-5}, want: 0.94687, above: 3e-4},
		{q: Ask{Line: gaussian(0.8, 0.001, 10000), Delta: 1e-6}, want: 0.94720, above: 5e-4},
		{q: Ask{Line: gaussian(4, 0.01, 10000), Delta: 1e-5, Neighbours: release.ReplaceOne}, want: 1.99312, above: 5e-4},
		{q: Ask{Line: gaussian(1, 0.01, 1000), Delta: 1e-5, Neighbours: release.ReplaceOne}, want: 2.84344, above: 5e-4},
		{q: Ask{Line: Line{Mechanism: release.NameLaplace, Scale: 1, Steps: 10}, Delta: 1e-6}, want: 9.998978, above: 1e-3},
		{q: Ask{Line: Line{Mechanism: release.NameLaplace, Scale: 10, Steps: 100}, Delta: 1e-6}, want: 4.692667, above: 5e-4},
		{q: Ask{Line: Line{Mechanism: release.NameLaplace, Scale: 1, Sampling: 0.1, Steps: 50}, Delta: 1e-6}, want: 3.201904, above: 4e-4},
		{q: Ask{Line: Line{Mechanism: release.NameResponse, Epsilon0: 0.1, Steps: 1000}, Delta: 1e-6}, want: 19.3446714, above: tight,
			neighbours: release.ReplaceOne},
		{q: Ask{Line: Line{Mechanism: release.NameResponse, Epsilon0: 0.5, Steps: 50}, Delta: 1e-5}, want: 18.9332833, above: tight},
		{q: Ask{Lines: []Line{{Mechanism: release.NameApproxDP, Epsilon: 0.1, Delta: 1e-8, Steps: 100}}, Delta: 1e-5}, want: 4.3296367,
			above: tight, noLowerWanted: true},
		{q: Ask{Line: Line{Mechanism: release.NameDiscreteGaussian, Sigma: 10}, Delta: 1e-6}, want: 0.3967901, above: tight},
		{q: Ask{Line: Line{Mechanism: release.NameDiscreteGaussian, Sigma: 2}, Delta: 1e-6}, want: 2.2757932, above: tight},
		{q: Ask{Line: Line{Mechanism: release.NameDiscreteGaussian, Sigma: math.Sqrt(0.5)}, Delta: 1e-5}, want: 6.8458786, above: tight},
		{q: Ask{Line: Line{Mechanism: release.NameDiscreteGaussian, Sigma: 20, Sensitivity: 10}, Delta: 1e-6}, want: 2.2539608, above: tight},
		{q: Ask{Line: Line{Mechanism: release.NameDiscreteGaussian, Sigma: 10, Steps: 100}, Delta: 1e-6}, want: 4.88672, below: 3e-4, above: 5e-4},
		{q: Ask{Line: Line{Mechanism: release.NameDiscreteLaplace, Scale: 10, Steps: 100}, Delta: 1e-6}, want: 4.774568, above: 5e-4},
		{q: Ask{Lines: []Line{{Mechanism: release.NameZCDP, Rho: 0.1}}, Delta: 1e-6}, want: 2.1419389, above: tight, noLowerWanted: true},
		// Two servers' worth of noise is sqrt 2 as wide: paper 003's 100 rounds, by the
		// exact curve and by zCDP.
		{q: Ask{Line: Line{Mechanism: release.NameDiscreteGaussian, Sigma: 655360, Sensitivity: 65536, Steps: 100}, Delta: 1e-6,
			Neighbours: release.ZeroOut, Method: accountant.ZCDPMethod}, want: 5.2215344, above: tight, noLowerWanted: true},
		{q: Ask{Line: Line{Mechanism: release.NameDiscreteGaussian, Sigma: 655360, Sensitivity: 65536, Steps: 100}, Delta: 1e-6,
			Neighbours: release.ZeroOut, Method: accountant.ZCDPMethod, Honest: 2}, want: 3.5422913, above: tight, noLowerWanted: true},
		// What is known to be (1, 1e-8)-DP is that at this very delta.
		{q: Ask{Lines: []Line{{Mechanism: release.NameApproxDP, Epsilon: 1, Delta: 1e-8}}, Delta: 1e-8}, want: 1, above: tight, noLowerWanted: true},

		{q: Ask{Line: kary(4, 2), ShuffleN: 10000, Delta: 1e-10}, want: 0.6052560, above: tight, neighbours: release.ReplaceOne},
		{q: Ask{Line: kary(1, 2), ShuffleN: 1000, Delta: 1e-6}, want: 0.1486706, above: tight},
		{q: Ask{Line: Line{Mechanism: release.NameRAPPOR, Epsilon0: 1, K: 16}, ShuffleN: 100000, Delta: 1e-6, LDP: Deletion}, want: 0.0124299, above: tight,
			neighbours: release.ZeroOut},
		{q: Ask{Line: Line{Mechanism: release.NameRAPPOR, Epsilon0: 0.5}, ShuffleN: 1000, Delta: 1e-6}, want: 0.1824123, above: tight,
			neighbours: release.ReplaceOne},
		{q: Ask{Line: Line{Mechanism: release.NameLaplace, Scale: 0.5}, ShuffleN: 10000, Delta: 1e-10}, want: 0.8939133, above: tight},
		{q: Ask{Line: kary(1, 3), ShuffleN: 100000, Delta: 1e-6, Method: accountant.ClosedForm}, want: 0.0725549, above: tight,
			noLowerWanted: true},
		{q: Ask{Line: kary(1, 2), ShuffleN: 100000, Delta: 1e-6, Method: accountant.ClosedForm}, want: 0.0603605, above: tight,
			noLowerWanted: true},
		{q: Ask{Line: kary(4, 10), ShuffleN: 10000, Delta: 1e-10}, want: 0.5588605, above: tight, noLowerWanted: true},
		{q: Ask{Line: kary(2, 16), ShuffleN: 20000, Delta: 1e-8}, want: 0.0606437, above: tight, noLowerWanted: true},

		{q: func() Ask {
			q := checkIn(1, 1000, 1, 1e-6, 0)
			q.Method = accountant.ClosedForm
			return q
		}(), want: 0.4749252, above: tight, noLowerWanted: true},
		{q: checkIn(1, 1000, 1, 1e-6, release.ZeroOut), want: 0.1266145, above: tight},
		{q: checkIn(1, 1000, 0.1, 1e-6, release.AddRemove), want: 0.0102265, above: tight},
		{q: checkIn(1, 10000, 0, 1e-6, release.ZeroOut), want: 0.0356588, above: tight},
		{q: checkIn(1, 1000, 1, 1e-6, 0), want: 0.1824123, above: tight, neighbours: release.ReplaceOne},
		{q: checkIn(1, 1000, 0.1, 1e-6, 0), want: 0.0152674, above: tight},
		{q: checkIn(1, 10000, 1, 1e-6, 0), want: 0.0530053, above: tight},
		{q: Ask{Line: rr(0.5), CheckIn: release.AveragedWindow, Window: 1000, ShuffleN: 10000, Delta: 1e-6}, want: 0.0204015,
			above: tight, noLowerWanted: true},
		{q: Ask{Line: rr(0.5), CheckIn: release.AveragedWindow, Window: 1000, ShuffleN: 10000, Delta: 2e-6,
			Method: accountant.ClosedForm}, want: 0.5, above: tight, noLowerWanted: true},

		{q: allocated(1, 1, 100, 1, 1e-6), want: 0.857986, above: 2e-4},
		{q: allocated(2, 1, 100, 1, 1e-6), want: 0.204930, above: 1e-4},
		{q: allocated(4, 1, 100, 1, 1e-6), want: 0.091754, above: 1e-4},
		{q: allocated(2, 1, 10, 1, 1e-6), want: 0.728870, above: 2e-4},
		{q: allocated(2, 1, 100, 10, 1e-6), want: 0.69590, above: 5e-4},
		{q: allocated(3, 10, 100, 1, 1e-6), want: 1.49203, above: 5e-4},
		{q: allocated(5.1, 1, 100, 1, 1e-8), want: 0.090599, above: 1e-4},
		{q: Ask{Line: Line{Mechanism: release.NameResponse, Epsilon0: 1, Picks: 1, Of: 1000}, Delta: 1e-6, Neighbours: release.AddRemove},
			want: 0.1266145, above: tight},
		{q: Ask{Line: Line{Mechanism: release.NameResponse, Epsilon0: 1, Picks: 1, Of: 1000}, Delta: 1e-6}, want: 0.1824123, above: tight,
			neighbours: release.ReplaceOne},
		// A check-in with Gaussian noise is an allocation.
		{q: Ask{Line: Line{Mechanism: release.NameGaussian, Sigma: 5.1, Picks: 1, Of: 100}, Delta: 1e-8}, want: 0.090599, above: 1e-4},
	} {
		if i%3 != 2 && !patient() { // these are of each kind, and not the slowest
			continue
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			a, err := c.q.Answer()
			if err != nil {
				t.Fatal(err)
			}
			below := max(c.below, 1e-5*max(1, c.want)) // the values are rounded
			if !(a.Epsilon >= c.want-below && a.Epsilon <= c.want+c.above) {
				t.Errorf("%v: epsilon %.8g, want %v to %v", a.Guarantee, a.Epsilon, c.want-below, c.want+c.above)
			}
			if a.EpsilonLower > c.want+1e-6*max(1, c.want) {
				t.Errorf("epsilon_lower is %v, above %v", a.EpsilonLower, c.want)
			}
			if !c.noLowerWanted && c.q.Method == "" && a.EpsilonLower < 0.9*c.want {
				t.Logf("epsilon_lower is only %v of %v", a.EpsilonLower, c.want)
			}
			if c.neighbours != 0 && a.Neighbours != c.neighbours {
				t.Errorf("the answer is about %v, want %v", a.Neighbours, c.neighbours)
			}
			if a.Theorem == "" || a.Method == "" || a.Delta > c.q.Delta {
				t.Errorf("incomplete answer %+v", a.Guarantee)
			}
		})
	}
}

func TestReferenceDeltas(t *testing.T) {
	for _, c := range []struct {
		r            Line
		epsilon      float64
		want, within float64
	}{
		{Line{Mechanism: release.NameGaussian, Sigma: 1}, 1, 0.126936738, 1e-8},
		{Line{Mechanism: release.NameGaussian, Sigma: 1, Sampling: 0.01}, 0.5, 2.214519e-7, 2e-6},
		{Line{Mechanism: release.NameGaussian, Sigma: 2, Sampling: 0.1}, 0.2, 2.885711e-4, 2e-6},
		{Line{Mechanism: release.NameGaussian, Sigma: 0.8, Sampling: 0.5}, 1, 0.06590701, 2e-6},
		{Line{Mechanism: release.NameGaussian, Sigma: 4, Sampling: 0.01, Steps: 10000}, 1, 4.24348e-6, 0.005},
	} {
		a, err := Ask{Line: c.r, Epsilon: c.epsilon}.Answer()
		if err != nil {
			t.Errorf("%+v: %v", c.r, err)
			continue
		}
		if a.Epsilon != c.epsilon || math.Abs(a.Delta-c.want) > c.within*c.want || a.DeltaLower > c.want*(1+1e-6) {
			t.Errorf("%+v at %v: delta %.9g to %.9g, want %v", c.r, c.epsilon, a.DeltaLower, a.Delta, c.want)
		}
	}
}

func TestReferenceSolutions(t *testing.T) {
	for _, c := range []struct {
		q            Ask
		want, within float64
	}{
		{Ask{Line: Line{Mechanism: release.NameGaussian}, Solve: SolveSigma, Epsilon: 1, Delta: 1e-8}, 5.1003088, 1e-6},
		{Ask{Line: Line{Mechanism: release.NameGaussian}, Solve: SolveSigma, Epsilon: 1, Delta: 1e-6}, 4.2246789, 1e-6},
		{Ask{Line: Line{Mechanism: release.NameGaussian}, Solve: SolveSigma, Epsilon: 0.1, Delta: 1e-6}, 36.3046904, 1e-5},
		{Ask{Line: Line{Mechanism: release.NameGaussian}, Solve: SolveSigma, Epsilon: 8, Delta: 1e-5}, 0.6002291, 1e-6},
		{Ask{Line: Line{Mechanism: release.NameGaussian}, Solve: SolveSigma, Epsilon: 3, Delta: 1e-10}, 2.0622532, 1e-6},
		// Row 21 of the reference values.
		{Ask{Line: Line{Mechanism: release.NameGaussian, Sampling: 0.01, Steps: 1000}, Solve: SolveSigma, Epsilon: 1, Delta: 1e-5}, 1.41463, 1e-3},
		{Ask{Line: Line{Mechanism: release.NameGaussian, Sampling: 0.001, Steps: 10000}, Solve: SolveSigma, Epsilon: 2, Delta: 1e-6}, 0.66902, 1e-3},
		// One honest server of two that each draw sigma; both honest need less of each,
		// by sqrt 2.
		{Ask{Line: Line{Mechanism: release.NameGaussian}, Honest: 2, Solve: SolveSigma, Epsilon: 1, Delta: 1e-8}, 5.1003088 / math.Sqrt2, 1e-6},
		{Ask{Line: Line{Mechanism: release.NameGaussian, Sensitivity: 7}, Solve: SolveSigma, Epsilon: 1, Delta: 1e-8}, 7 * 5.1003088, 1e-5},
		{Ask{Line: Line{Mechanism: release.NameLaplace}, Solve: SolveScale, Epsilon: 1, Delta: 1e-12}, 1, 2e-4},
	} {
		t.Run(fmt.Sprintf("%s/%v", c.q.Mechanism, c.want), func(t *testing.T) {
			t.Parallel()
			a, err := c.q.Answer()
			if err != nil {
				t.Fatal(err)
			}
			got := a.Solved
			if !(got >= c.want-1e-6 && got <= c.want+c.within) {
				t.Errorf("%s is %.9g, want %.9g or a little more", c.q.Solve, got, c.want)
			}
			if a.Epsilon > c.q.Epsilon || a.Delta > c.q.Delta {
				t.Errorf("the answer gives %v", a.Guarantee)
			}
		})
	}
}
