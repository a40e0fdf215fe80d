package accountant

import (
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

func TestReferenceShuffle(t *testing.T) {
	for i, r := range []struct {
		name  string
		e     shuffled
		delta float64
		want  float64
	}{
		{"32a", shuffled{release.AnyReport(4), 1e4}, 1e-10, .8939133},
		{"32b", shuffled{release.AnyReport(1), 1e3}, 1e-6, .1824123},
		{"32c", shuffled{release.AnyReport(1), 1e5}, 1e-6, .0152821},
		{"32d", shuffled{release.AnyReport(6), 1e6}, 1e-8, .1894656},
		{"33a", shuffled{reportOf(randomizedResponse{4, 2}), 1e4}, 1e-10, .6052560},
		{"33b", shuffled{reportOf(randomizedResponse{1, 2}), 1e3}, 1e-6, .1486706},
		{"33c", shuffled{reportOf(randomizedResponse{1, 2}), 1e5}, 1e-6, .0124299},
		{"33d", shuffled{reportOf(randomizedResponse{4, 2}), 1e6}, 1e-10, .0540172},
		{"35a", shuffled{reportOf(randomizedResponse{4, 10}), 1e4}, 1e-10, .5588605},
		{"35b", shuffled{reportOf(randomizedResponse{2, 16}), 2e4}, 1e-8, .0606437},
	} {
		if i%2 == 1 && !patient() { // package amplify, which computes them, is asked all
			continue
		}
		near(t, "row "+r.name, epsilon(t, r.e, r.delta, release.ReplaceOne).Epsilon, r.want, 1e-6)
	}
}

// Two answers of n people: the number of ones tells all. Sum over it, with the first
// person's value 1 or 0 and the others' values the same either way; the worst is a
// mixture of both values among them, and the bound must cover all.
func TestShuffleAgainstBruteForce(t *testing.T) {
	const e0 = 1.3
	keep := 1 / (1 + math.Exp(-e0))
	ones := func(values int, n int) []float64 { // the law of the number of ones of n reports, the first `values` true ones
		law := []float64{1}
		for i := range n {
			p := 1 - keep
			if i < values {
				p = keep
			}
			next := make([]float64, len(law)+1)
			for j, w := range law {
				next[j] += w * (1 - p)
				next[j+1] += w * p
			}
			law = next
		}
		return law
	}
	for _, n := range []int{1, 2, 5, 20} {
		for _, e := range []float64{.05, .3, .8, 1.2} {
			worst := 0.0
			for others := 0; others < n; others++ {
				p, q := ones(others+1, n), ones(others, n)
				d, back := 0.0, 0.0
				for j := range p {
					d += max(0, p[j]-math.Exp(e)*q[j])
					back += max(0, q[j]-math.Exp(e)*p[j])
				}
				worst = max(worst, d, back)
			}
			g, err := deltaOf(shuffled{reportOf(randomizedResponse{e0, 2}), uint64(n)}, e, release.ReplaceOne)
			if err != nil {
				t.Fatal(err)
			}
			if g.Delta < worst*(1-1e-9) {
				t.Errorf("n = %d, epsilon %v: %v is below the truth %v", n, e, g.Delta, worst)
			}
			any, err := deltaOf(shuffled{release.AnyReport(e0), uint64(n)}, e, release.ReplaceOne)
			if err != nil {
				t.Fatal(err)
			}
			if any.Delta < g.Delta*(1-1e-9) {
				t.Errorf("n = %d, epsilon %v: the general bound %v is below the one for two answers %v", n, e, any.Delta, g.Delta)
			}
		}
	}
	// The blanket sum at k = 3 against the shuffled histogram of three answers, for the
	// worst other values.
	kary := func(first, n int, others []int) map[[3]int]float64 {
		z := math.Exp(e0) + 2
		law := map[[3]int]float64{{}: 1}
		for i := range n {
			v := first
			if i > 0 {
				v = others[i-1]
			}
			next := map[[3]int]float64{}
			for h, w := range law {
				for out := range 3 {
					p := 1 / z
					if out == v {
						p = math.Exp(e0) / z
					}
					h2 := h
					h2[out]++
					next[h2] += w * p
				}
			}
			law = next
		}
		return law
	}
	for _, others := range [][]int{{0, 0, 0, 0}, {2, 2, 2, 2}, {0, 1, 2, 0}, {1, 1, 2, 2}} {
		p, q := kary(0, 5, others), kary(1, 5, others)
		for _, e := range []float64{.1, .6} {
			d := 0.0
			for h, w := range p {
				d += max(0, w-math.Exp(e)*q[h])
			}
			g, err := deltaOf(shuffled{reportOf(randomizedResponse{e0, 3}), 5}, e, release.ReplaceOne)
			if err != nil {
				t.Fatal(err)
			}
			if g.Delta < d*(1-1e-9) {
				t.Errorf("others %v, epsilon %v: %v is below the truth %v", others, e, g.Delta, d)
			}
		}
	}
}

func TestShuffleProperties(t *testing.T) {
	last := math.Inf(1)
	for _, n := range []uint64{1, 2, 10, 100, 1e3, 1e4, 1e9} {
		e := epsilon(t, shuffled{release.AnyReport(1), n}, 1e-6, release.ReplaceOne).Epsilon
		if e > last*(1+1e-9) || e > 1 {
			t.Errorf("%d reports: %v is above %v", n, e, last)
		}
		last = e
	}
	one := epsilon(t, shuffled{release.AnyReport(1), 1e3}, 1e-6, release.ReplaceOne).Epsilon
	near(t, "one round by pld", byPLD(t, shuffled{release.AnyReport(1), 1e3}, 1e-6, release.ReplaceOne).Epsilon, one, 2e-4*one)
	ten := epsilon(t, selfCompose{shuffled{release.AnyReport(1), 1e5}, 10}, 1e-6, release.ReplaceOne)
	if ten.Epsilon < .0152821 || ten.Epsilon > 4*.0152821 { // at least one round, and of the order of sqrt(10) of them
		t.Errorf("ten rounds: %v", ten)
	}
	for _, tc := range []struct {
		e   shuffled
		n   release.Neighbours
		err error
	}{
		{shuffled{release.AnyReport(1), 10}, release.AddRemove, release.ErrUnsupported},
		{shuffled{release.ColumnsOf(1), 10}, release.ReplaceOne, release.ErrUnsupported},
		{shuffled{release.AnyReport(0), 10}, release.ReplaceOne, release.ErrParameter},
		{shuffled{release.AnyReport(math.NaN()), 10}, release.ReplaceOne, release.ErrParameter},
		{shuffled{release.AnyReport(1), 0}, release.ReplaceOne, release.ErrParameter},
		{shuffled{reportOf(randomizedResponse{1, 0}), 10}, release.ReplaceOne, release.ErrParameter},
		{shuffled{release.Report{}, 10}, release.ReplaceOne, release.ErrParameter},
		{shuffled{nil, 10}, release.ReplaceOne, release.ErrParameter},
		{shuffled{reportOf(gaussian{1, release.Signed(1)}), 10}, release.ReplaceOne, release.ErrUnsupported},
		{shuffled{reportOf(approxDP{1, 0}), 10}, release.ReplaceOne, release.ErrUnsupported},
		{shuffled{release.ApproxReport(1, 1e-9), 10}, release.ReplaceOne, release.ErrUnsupported},
	} {
		if _, err := epsilonOf(tc.e, 1e-6, tc.n); !errors.Is(err, tc.err) {
			t.Errorf("%+v, %v: %v", tc.e, tc.n, err)
		}
	}
	if e := epsilon(t, shuffled{release.ColumnsOf(4), 1e4}, 1e-10, release.ZeroOut); math.Abs(e.Epsilon-.6052560) > 1e-6 {
		t.Errorf("RAPPOR, deletion: %v", e)
	}
}
