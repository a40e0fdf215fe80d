package accountant

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// sampledSum is delta(epsilon), the larger of both directions, of a sum of integers in
// the plane with noise N_Z(0, s2) of so many honest draws in both coordinates, where v is
// kept in it with probability rate: by adding up all outcomes.
func sampledSum(s2 float64, honest int, v [2]int, rate, epsilon float64) float64 {
	law := gaussianPMF(s2)
	for i := 1; i < honest; i++ {
		law = convolve(law, gaussianPMF(s2), math.MaxInt)
	}
	r := len(law) / 2
	at := func(z int) float64 {
		if z < -r || z > r {
			return 0
		}
		return law[z+r]
	}
	var removed, added float64
	for x := -r; x <= r+v[0]; x++ {
		for y := -r; y <= r+v[1]; y++ {
			q := at(x) * at(y)
			p := (1-rate)*q + rate*at(x-v[0])*at(y-v[1])
			removed += max(0, p-math.Exp(epsilon)*q)
			added += max(0, q-math.Exp(epsilon)*p)
		}
	}
	return max(removed, added)
}

// Vectors of bounded norm, sampled: bounded by what rounded continuous noise gives, in
// whatever direction they point.
func TestRoundedGaussian(t *testing.T) {
	for i, c := range []struct {
		s2     uint64
		honest int
		rate   float64
	}{{8, 1, 0.3}, {25, 1, 0.05}, {100, 1, 0.5}, {9, 3, 0.3}} {
		if i%2 == 1 && !patient() {
			continue
		}
		e := poissonSample{Event: discreteGaussian{Sigma2: release.Rational{Num: c.s2, Den: 1}, Contribution: release.Ball(2, 5), Honest: c.honest}, Rate: c.rate}
		for _, epsilon := range []float64{0.2, 1} {
			g, err := deltaOf(e, epsilon, release.AddRemove)
			if err != nil {
				t.Fatal(err)
			}
			worst := 0.0
			for _, v := range [][2]int{{5, 0}, {3, 4}, {4, -3}, {0, -5}, {1, 2}} {
				got := sampledSum(float64(c.s2), c.honest, [2]int{max(v[0], -v[0]), max(v[1], -v[1])}, c.rate, epsilon)
				if worst = max(worst, got); got > g.Delta {
					t.Errorf("%+v: epsilon %v, vector %v: delta is %v, stated %v", c, epsilon, v, got, g.Delta)
				}
			}
			// The variance that is taken off is a small part.
			part := roundingVariance / (float64(c.s2) * float64(c.honest))
			if tight := math.Pow(1-part, 4); part < 0.2 && worst > 1e-12 && g.Delta*tight*tight > worst {
				t.Errorf("%+v: epsilon %v: the worst vector has delta %v, stated %v", c, epsilon, worst, g.Delta)
			}
		}
	}
	// With wide noise it is that of continuous noise, over rounds and beside a count of
	// dummies too.
	for _, rounds := range []uint64{30} {
		whole := poissonSample{Event: discreteGaussian{Sigma2: release.Rational{Num: 1 << 30, Den: 1}, Contribution: release.Ball(1<<20, 1<<15)}, Rate: 0.01}
		smooth := poissonSample{Event: gaussian{Sigma: 1, Contribution: release.Signed(1)}, Rate: 0.01}
		a, err1 := epsilonOf(selfCompose{whole, rounds}, 1e-6, release.AddRemove)
		b, err2 := epsilonOf(selfCompose{smooth, rounds}, 1e-6, release.AddRemove)
		if err1 != nil || err2 != nil || a.Epsilon < b.EpsilonLower || a.Epsilon > b.Epsilon*1.0002 || a.EpsilonLower != 0 {
			t.Errorf("%d rounds: whole numbers %v, %v; real ones %v, %v", rounds, a, err1, b, err2)
		}
		counted := whole
		counted.Event = composition{dummyCount{N: 100000, Rate: 0.1}, whole.Event}
		c, err := epsilonOf(selfCompose{counted, rounds}, 1e-6, release.AddRemove)
		if err != nil || c.Epsilon < a.EpsilonLower || c.Epsilon > a.Epsilon*1.02 || !strings.Contains(c.Theorem, roundedTheorem) {
			t.Errorf("%d rounds: with the count %v, %v; without %v", rounds, c, err, a)
		}
		// Draws that add up to the same variance.
		split := whole
		split.Event = discreteGaussian{Sigma2: release.Rational{Num: 1 << 20, Den: 1}, Contribution: release.Ball(1<<20, 1<<15), Honest: 1 << 10}
		if d, err := epsilonOf(selfCompose{split, rounds}, 1e-6, release.AddRemove); err != nil || math.Abs(d.Epsilon/a.Epsilon-1) > 1e-6 {
			t.Errorf("%d rounds: of many draws %v, %v", rounds, d, err)
		}
	}
	for _, g := range []discreteGaussian{
		{Sigma2: release.Rational{Num: 7, Den: 1}, Contribution: release.Ball(10, 5)},                      // too narrow
		{Sigma2: release.Rational{Num: 2, Den: 1}, Contribution: release.Ball(1000, 5), Honest: 100},       // sums of draws that are too narrow
		{Sigma2: release.Rational{Num: 4, Den: 1}, Contribution: release.Ball(1_000_000, 5), Honest: 1000}, // on too many coordinates
	} {
		if _, err := epsilonOf(poissonSample{Event: g, Rate: 0.1}, 1e-6, release.AddRemove); !errors.Is(err, release.ErrUnsupported) && err == nil {
			t.Errorf("%+v: no error", g)
		}
		if _, err := g.dominating(release.AddRemove); !errors.Is(err, release.ErrUnsupported) {
			t.Errorf("%+v: %v", g, err)
		}
	}
	// A sample of fixed size and an allocation to random steps are those of continuous
	// noise too.
	for _, pair := range [][2]event{
		{fixedSample{Event: discreteGaussian{Sigma2: release.Rational{Num: 1 << 30, Den: 1}, Contribution: release.Ball(1000, 1<<14)}, Rate: 0.05},
			fixedSample{Event: gaussian{Sigma: 2, Contribution: release.Ball(1000, 1)}, Rate: 0.05}},
		{allocation{Event: discreteGaussian{Sigma2: release.Rational{Num: 1 << 30, Den: 1}, Contribution: release.Ball(1000, 1<<15)}, Steps: 20, Picks: 1},
			allocation{Event: gaussian{Sigma: 1, Contribution: release.Ball(1000, 1)}, Steps: 20, Picks: 1}},
	} {
		n := release.AddRemove
		if _, fixed := pair[0].(fixedSample); fixed {
			n = release.ReplaceOne
		}
		a, err1 := epsilonOf(pair[0], 1e-6, n)
		b, err2 := epsilonOf(pair[1], 1e-6, n)
		if err1 != nil || err2 != nil || a.Epsilon < b.EpsilonLower || a.Epsilon > b.Epsilon*1.001 {
			t.Errorf("%T: whole numbers %v, %v; real ones %v, %v", pair[0], a, err1, b, err2)
		}
	}
	// Unsampled vectors stay with zCDP, which certificates prove.
	if g, err := epsilonOf(discreteGaussian{Sigma2: release.Rational{Num: 1 << 20, Den: 1}, Contribution: release.Ball(10, 1000)}, 1e-6, release.ReplaceOne); err != nil || g.Theorem != zcdpTheorem {
		t.Errorf("%v, %v", g, err)
	}
}
