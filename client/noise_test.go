package client

import (
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// noisyRecipe is a recipe of vectors whose devices add noise.
func noisyRecipe(t *testing.T, dim uint32, p recipe.VectorProof, clip uint64, variance recipe.Rational) *recipe.Recipe {
	t.Helper()
	r, err := account.New(account.Options{
		DAP:  speaks,
		Name: "Gradients", Query: recipe.Vector{Dimension: dim, Bound: clip, FracBits: 10, Proof: p},
		Randomizer: recipe.Gaussian{Variance: variance}, Delta: recipe.Decimal{Coefficient: 1, Scale: 6},
		Leader: "https://leader.example/v1/", Helper: "https://helper.example" + helperPath, MinBatch: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What devices send is their clipped vector and the noise that the recipe states, no
// more: the sum over n reports, a device without an answer among them, has n times the
// variance in each entry. The statistic is chi-square with dim degrees of freedom up to
// the noise's being whole numbers; it leaves 6 deviations once in 10^8.
func TestNoisyReports(t *testing.T) {
	const n, dim, clip, variance = 12, 400, 1 << 10, 400
	for _, p := range []recipe.VectorProof{recipe.Pine32, recipe.Pine40, recipe.Pine64, recipe.Pine128} {
		r := noisyRecipe(t, dim, p, clip, recipe.Rational{Num: variance, Den: 1})
		if q := r.Query.(recipe.Vector); q.Bound <= clip || q.Bound > 2*clip {
			t.Fatalf("%v: proves %d", p, q.Bound)
		}
		s := newServers(t, r)
		cl := s.client(nil)
		x := make([]float64, dim)
		x[0] = -1e30 // clipped to 1
		for i := range n {
			v := Reals(x)
			if i == 0 {
				v = NoValue()
			}
			if err := cl.Report(t.Context(), v); err != nil {
				t.Fatal(err)
			}
		}
		sums := s.sums()
		if off := float64(sums[0]) + (n-1)*clip; math.Abs(off) > (n-1)*110+6*math.Sqrt(n*variance) { // encoding leaves room of up to 110 units
			t.Errorf("%v: the clipped entry sums to %d", p, sums[0])
		}
		chi := 0.0
		for _, y := range sums[1:] {
			chi += float64(y) * float64(y) / (n * variance)
		}
		if d := dim - 1.; math.Abs(chi-d) > 6*math.Sqrt(2*d) {
			t.Errorf("%v: the noise has %v times the variance", p, chi/d)
		}
		e, err := r.Estimate(sums, n)
		if err != nil {
			t.Fatal(err)
		}
		if want := math.Sqrt(n*variance) / 1024; math.Abs(e.StdDev[0]-want) > 1e-9 {
			t.Errorf("%v: standard deviation %v, want %v", p, e.StdDev[0], want)
		}
		var bad *ValueError
		for _, v := range []Value{Bool(true), Reals(x[:3]), Reals(append(make([]float64, dim-1), math.NaN()))} {
			if err := cl.Report(t.Context(), v); !errors.As(err, &bad) {
				t.Errorf("%v: a bad value gives %v", p, err)
			}
		}
	}
}

// With a projection the device's noise is on what is sent: the sum is that of the
// projected vectors, with the stated noise.
func TestNoisyProjectedReports(t *testing.T) {
	const n, dim, clip, variance = 12, 400, 1 << 10, 400
	r := noisyRecipe(t, dim, recipe.Pine40, clip, recipe.Rational{Num: variance, Den: 1})
	r.Projection = &recipe.Projection{Entries: 1000, Seed: [32]byte{9}}
	q := r.Query.(recipe.Vector)
	p, err := r.Projection.Map(q)
	if err != nil {
		t.Fatal(err)
	}
	s := newServers(t, r)
	cl := s.client(nil)
	x := make([]float64, 1000)
	for i := range x {
		x[i] = math.Sin(float64(i)) / 50 // about 0.45 long
	}
	for i := range n {
		v := Reals(x)
		if i == 0 {
			v = NoValue()
		}
		if err := cl.Report(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	chi := 0.0
	want := p.Apply(x)
	for i, y := range s.sums() {
		off := float64(y) - (n-1)*1024*want[i]
		chi += off * off / (n * (variance + 1./12)) // rounding has the same sign at all devices: at most half a unit each
	}
	if math.Abs(chi-dim) > 6*math.Sqrt(2*dim)+0.1*dim {
		t.Errorf("what was sent is off by %v times the noise's variance", chi/dim)
	}
}

// Where devices decide by coins, a dummy of a vector adds nothing if the servers add the
// noise, and noise alone if the devices do; it cannot be told from an answer by its size.
func TestVectorDummies(t *testing.T) {
	q := recipe.Vector{Dimension: 50, Bound: 8, FracBits: 3, Proof: recipe.Pine32, Rounding: recipe.RoundNearest}
	x := make([]float64, 50)
	x[7] = 0.5
	for _, devices := range []bool{false, true} {
		r := sampled(q)
		if devices {
			q := q
			q.Bound = 110
			r.Query, r.Noise, r.Randomizer = q, recipe.NoNoise{}, recipe.Gaussian{Variance: recipe.Rational{Num: 60, Den: 1}, Clip: 8}
		}
		s := newServers(t, r)
		cl := s.client(nil)
		if err := cl.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		answer, err1 := cl.Prepare(Reals(x), now)
		dummy, err2 := cl.Prepare(NoValue(), now)
		if err1 != nil || err2 != nil || answer.Size() != dummy.Size() {
			t.Fatalf("an answer of %d bytes, a dummy of %d: %v, %v", answer.Size(), dummy.Size(), err1, err2)
		}
		if _, err := cl.Upload(t.Context(), []dap.Report{answer, dummy}); err != nil {
			t.Fatal(err)
		}
		squares := 0.0
		for i, y := range s.sums() {
			if i == 7 {
				y -= 4
			}
			squares += float64(y * y)
		}
		// 120 times chi-square with 50 degrees of freedom: above 120 with a probability of 1e-7.
		if most := 120. * 120; !devices && squares != 0 || devices && (squares > most || squares < 120*10) {
			t.Errorf("noise of devices %v: what is left of the sum has squares %v", devices, squares)
		}
		if err := cl.Report(t.Context(), Reals(x)); !errors.Is(err, ErrCoins) {
			t.Errorf("sent without a coin: %v", err)
		}
	}
}
