package accountant

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// histograms returns the laws of the histogram of n k-ary responses, if the person holds
// value 0 or 1 and the others what others says.
func histograms(e0 float64, k int, others []int) (p, q map[[4]int]float64) {
	z := math.Exp(e0) + float64(k) - 1
	add := func(law map[[4]int]float64, value int) map[[4]int]float64 {
		out := map[[4]int]float64{}
		for h, w := range law {
			for i := range k {
				g := h
				g[i]++
				if i == value {
					out[g] += w * math.Exp(e0) / z
				} else {
					out[g] += w / z
				}
			}
		}
		return out
	}
	law := map[[4]int]float64{{}: 1}
	for _, v := range others {
		law = add(law, v)
	}
	return add(law, 0), add(law, 1)
}

// Two rounds of k-ary responses against the sum over all outcomes, for every data set of
// the others in each round.
func TestKaryRoundsCoverTheMechanism(t *testing.T) {
	for _, c := range []struct {
		e0   float64
		k, n int
	}{{1.5, 3, 3}, {.5, 3, 4}, {3, 4, 2}, {1, 4, 3}} {
		type pairOf struct{ p, q map[[4]int]float64 }
		var sets []pairOf
		var walk func(others []int)
		walk = func(others []int) {
			if len(others) == c.n-1 {
				p, q := histograms(c.e0, c.k, others)
				sets = append(sets, pairOf{p, q})
				return
			}
			from := 0
			if len(others) > 0 {
				from = others[len(others)-1]
			}
			for v := from; v < c.k; v++ {
				walk(append(others[:len(others):len(others)], v))
			}
		}
		walk(nil)
		event := selfCompose{shuffled{reportOf(randomizedResponse{c.e0, uint64(c.k)}), uint64(c.n)}, 2}
		for _, e := range []float64{0, .3 * c.e0, .8 * c.e0, 1.3 * c.e0} {
			most := 0.0
			for _, x := range sets {
				for _, y := range sets {
					sum := 0.0
					for h, p := range x.p {
						for g, r := range y.p {
							sum += max(0, p*r-math.Exp(e)*x.q[h]*y.q[g])
						}
					}
					most = max(most, sum)
				}
			}
			g, err := deltaOf(event, e, release.ReplaceOne)
			if err != nil {
				t.Fatal(err)
			}
			if g.Delta < most*(1-1e-9) || g.Delta > 3*most+1e-9 || g.DeltaLower > most {
				t.Errorf("%+v, epsilon %v: [%v, %v], and %v for the worst data sets", c, e, g.DeltaLower, g.Delta, most)
			}
		}
	}
}

// Rounds of k-ary responses were bounded by clones: 8.638 and 2.442 for the first two.
func TestKaryRounds(t *testing.T) {
	for _, c := range []struct {
		e0     float64
		k      uint64
		rounds uint64
		most   float64
	}{{4, 10, 100, 5.48}, {4, 10, 10, 1.58}, {2, 3, 100, 1.543}, {6, 50, 10, 4.97}} {
		report := reportOf(randomizedResponse{c.e0, c.k})
		g := epsilon(t, selfCompose{shuffled{report, 10000}, c.rounds}, 1e-8, release.ReplaceOne)
		clones := epsilon(t, selfCompose{shuffled{report.Any(), 10000}, c.rounds}, 1e-8, release.ReplaceOne)
		if g.Epsilon > c.most || g.Epsilon > .75*clones.Epsilon {
			t.Errorf("%+v: %v, and %v by clones", c, g.Epsilon, clones.Epsilon)
		}
	}
}
