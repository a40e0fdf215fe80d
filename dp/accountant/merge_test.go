package accountant

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// A release about one person in a million, a million times: each loses less than any grid
// that reaches its large losses can tell. The lower bounds were 3.463, 0 and 2.27, the
// upper ones 4.248, 0.361 and 4.787.
func TestMillionsOfRareReleases(t *testing.T) {
	for _, c := range []struct {
		sigma, rate float64
		steps       uint64
		delta, most float64
	}{{.5, 1e-6, 1e6, 1e-16, 4.2489}, {.5, 1e-6, 1e6, 1e-8, .2968}, {.5, 1e-5, 1e6, 1e-12, 4.788}} {
		if c.delta != 1e-8 && !patient() {
			continue
		}
		g := epsilon(t, sampled(c.sigma, c.rate, c.steps), c.delta, release.AddRemove)
		if g.Epsilon > c.most || g.EpsilonLower < .98*g.Epsilon || g.EpsilonLower > g.Epsilon {
			t.Errorf("%+v: [%v, %v]", c, g.EpsilonLower, g.Epsilon)
		}
	}
}

// What lowest returns is below the exact curve of one release at every epsilon, and has
// no Q-mass to lose.
func TestMergedIsBelow(t *testing.T) {
	for i, c := range []struct{ sigma, rate, h float64 }{{.5, 1e-6, 4e-5}, {.5, 1e-6, 1e-4}, {1, 1e-5, 1e-4}, {2, 1e-4, 1e-3}} {
		if i%2 == 1 && !patient() {
			continue
		}
		event := poissonSample{gauss(c.sigma), c.rate}
		exact, _, err := event.exact(release.AddRemove, 1)
		if err != nil {
			t.Fatal(err)
		}
		d, err := event.dominating(release.AddRemove)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := bin(d.pair, c.h, 1e-30)
		lost := b.lower()
		g, ok := lowest(d.pair, c.h, 1e-30, 1_000_000)
		if !ok {
			t.Fatal("no grid")
		}
		if before, after := 1e6*lost.logMoment(-1), 1e6*g.logMoment(-1); after > before/4 {
			t.Errorf("%+v: a million of them lose %v, and %v without merging", c, after, before)
		}
		for e := 1e-7; e < 8; e *= 1.2 {
			curve := g.inf
			for i, p := range g.p {
				curve += p * max(0, -math.Expm1(e-g.origin-float64(i)*g.h))
			}
			if _, most := exact(e); curve > most*(1+1e-9)+1e-28 {
				t.Errorf("%+v, epsilon %v: %v, and exactly at most %v", c, e, curve, most)
			}
		}
	}
}
