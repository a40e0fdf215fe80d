package collector

import (
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

// A vector's sum, mean and errors come in units of the entries.
func TestCollectVector(t *testing.T) {
	for _, q := range []recipe.Vector{
		{Dimension: 2, Bound: 1 << 10, FracBits: 10, Proof: recipe.Pine32, Rounding: recipe.RoundNearest},
		{Dimension: 2, Bound: 1 << 10, FracBits: 10, Proof: recipe.Pine128, Rounding: recipe.RoundNearest},
	} {
		noise := recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 1 << 21, Den: 1}, Share: recipe.DrawsAll}
		r := testRecipe(q, noise, dap.TimeInterval)
		l := newLeader(t, r, [2][]int64{{-5120, 1024}, {1024, 1024}})
		cl := l.collector(r, nil)
		got, err := cl.Collect(t.Context(), day(cl))
		if err != nil {
			t.Fatal(err)
		}
		mean, stderr := got.Mean()
		for i, want := range []float64{-4, 2} {
			if got.Estimate[i] != want || got.Stderr[i] != 2 || mean[i] != want/100 || stderr[i] != 0.02 {
				t.Errorf("entry %d: %v with %v, mean %v with %v", i, got.Estimate[i], got.Stderr[i], mean[i], stderr[i])
			}
			if iv := got.Interval95[i]; math.Abs(iv[1]-want-3.92) > 0.01 || math.Abs(want-iv[0]-3.92) > 0.01 {
				t.Errorf("entry %d: interval %v", i, iv)
			}
		}
		if got.SamplingStderr != nil {
			t.Errorf("sampling error %v", got.SamplingStderr)
		}
	}
}

// Sums of projected vectors come back at full length, with what the projection loses in
// their errors.
func TestCollectProjected(t *testing.T) {
	q := recipe.Vector{Dimension: 40, Bound: 1 << 10, FracBits: 10, Proof: recipe.Pine32, Rounding: recipe.RoundNearest}
	for _, noise := range []recipe.Noise{recipe.NoNoise{}, recipe.DiscreteGaussian{Variance: recipe.Rational{Num: 1 << 13, Den: 1}, Share: recipe.DrawsAll}} {
		r := testRecipe(q, noise, dap.TimeInterval)
		r.Projection = &recipe.Projection{Entries: 100, Seed: [32]byte{3}}
		p, err := r.Projection.Map(q)
		if err != nil {
			t.Fatal(err)
		}
		x := make([]float64, 100)
		x[77] = 50
		raw := make([]int64, 40)
		length2 := 0.0
		for i, y := range p.Apply(x) {
			raw[i] = int64(math.Round(y * 1024))
			length2 += y * y
		}
		l := newLeader(t, r, [2][]int64{raw, make([]int64, 40)})
		cl := l.collector(r, nil)
		got, err := cl.Collect(t.Context(), day(cl))
		if err != nil {
			t.Fatal(err)
		}
		variance := 0.0
		if _, noisy := noise.(recipe.DiscreteGaussian); noisy {
			variance = 2 * (1 << 13) / (1024. * 1024)
		}
		want := math.Sqrt(variance + (length2-40*variance)*88/(40*127)) // 40 of 128 rows
		if len(got.Raw) != 40 || len(got.Estimate) != 100 || len(got.Stderr) != 100 || len(got.Interval95) != 100 || math.Abs(got.Estimate[77]-50) > 0.01 {
			t.Fatalf("%d raw, %d estimates, the large one %v", len(got.Raw), len(got.Estimate), got.Estimate[77])
		}
		for i, v := range got.Estimate {
			if s := got.Stderr[i]; math.Abs(s-want) > 1e-3*want || math.Abs(v-x[i]) > 5*s || math.Abs(got.Interval95[i][1]-v-1.96*s) > 1e-3*s {
				t.Errorf("%v: entry %d is %v with %v and %v, want %v with %v", noise, i, v, s, got.Interval95[i], x[i], want)
			}
		}
		if mean, stderr := got.Mean(); len(mean) != 100 || len(stderr) != 100 {
			t.Errorf("means %d, %d", len(mean), len(stderr))
		}
	}
}

// A batch of more reports than its sums have room for is refused: they could have wrapped
// around.
func TestCollectVectorWithoutRoom(t *testing.T) {
	q := recipe.Vector{Dimension: 2, Bound: 1 << 15, FracBits: 15, Proof: recipe.Pine32, Rounding: recipe.RoundNearest}
	r := testRecipe(q, recipe.NoNoise{}, dap.TimeInterval)
	most, _ := r.MostReports()
	for n, fits := range map[uint64]bool{most: true, most + 1: false} {
		l := newLeader(t, r, [2][]int64{{1, 2}, {3, 4}})
		l.change = func(a *dap.CollectionJobResp) { a.ReportCount = n }
		cl := l.collector(r, nil)
		if _, err := cl.Collect(t.Context(), day(cl)); fits != (err == nil) || !fits && !errors.Is(err, ErrAnswer) {
			t.Errorf("%d reports: %v", n, err)
		}
	}
}
