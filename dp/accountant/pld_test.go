package accountant

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

func sampled(sigma, q float64, count uint64) event {
	return selfCompose{poissonSample{gauss(sigma), q}, count}
}

func lap(b float64) event { return laplace{b, release.Signed(1)} }

// Reference values: dp.md, section 3, PLD rows. An upper bound lies in [value - 1e-5,
// value + tol], a lower bound is at most the value.
func TestReferencePLD(t *testing.T) {
	for i, r := range []struct {
		name  string
		event event
		n     release.Neighbours
		delta float64
		want  float64
		tol   float64
	}{
		{"14a", sampled(5.1, .02, 2500), release.AddRemove, 1e-8, 1.02040, 5e-4},
		{"14b", sampled(5.1, .02, 2500), release.AddRemove, 1e-6, .83182, 5e-4},
		{"15", sampled(1.1, 256./60000, 14062), release.AddRemove, 1e-5, 2.38160, 5e-4},
		{"16a", sampled(1, .01, 1000), release.AddRemove, 1e-5, 1.82824, 5e-4},
		{"16b", sampled(1, .5, 10), release.AddRemove, 1e-6, 11.79878, 5e-4},
		{"17", sampled(4, .01, 1e4), release.AddRemove, 1e-5, .94687, 3e-4},
		{"18", sampled(.8, .001, 1e4), release.AddRemove, 1e-6, .94720, 5e-4},
		{"19a", sampled(4, .01, 1e4), release.ReplaceOne, 1e-5, 1.99312, 5e-4},
		{"19b", sampled(1, .01, 1000), release.ReplaceOne, 1e-5, 2.84344, 5e-4},
		{"19c", sampled(5.1, .02, 2500), release.ReplaceOne, 1e-8, 2.08593, 5e-4},
		{"46", sampled(5.1, .01, 100), release.AddRemove, 1e-8, .094955, 5e-5},
		{"22a", selfCompose{lap(1), 10}, release.AddRemove, 1e-6, 9.998978, 2e-4},
		{"22b", selfCompose{lap(10), 100}, release.AddRemove, 1e-6, 4.692667, 2e-4},
		{"22c", selfCompose{lap(20), 1000}, release.AddRemove, 1e-5, 7.421273, 2e-4},
		{"23a", selfCompose{poissonSample{lap(1), .1}, 50}, release.AddRemove, 1e-6, 3.201904, 2e-4},
		{"23b", selfCompose{poissonSample{lap(.5), .01}, 1000}, release.AddRemove, 1e-5, 2.682924, 2e-4},
	} {
		if i%2 == 1 && !patient() {
			continue
		}
		g := epsilon(t, r.event, r.delta, r.n)
		if g.Epsilon < r.want-1e-5 || g.Epsilon > r.want+r.tol || g.EpsilonLower > r.want+1e-5 || g.EpsilonLower < r.want*(1-1e-3) {
			t.Errorf("row %s: [%.6f, %.6f], want %.6f", r.name, g.EpsilonLower, g.Epsilon, r.want)
		}
	}
	for _, r := range []struct{ sigma, q, epsilon, want float64 }{ // row 20
		{1, .01, .5, 2.214519e-7}, {2, .1, .2, 2.885711e-4}, {.8, .5, 1, .06590701},
	} {
		g, err := deltaOf(sampled(r.sigma, r.q, 1), r.epsilon, release.AddRemove)
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(g.Delta/r.want-1) > 1e-6 || g.DeltaLower > g.Delta || g.DeltaLower < g.Delta*(1-1e-6) {
			t.Errorf("row 20: [%.9g, %.9g], want %.7g", g.DeltaLower, g.Delta, r.want)
		}
	}
	g, err := deltaOf(sampled(4, .01, 1e4), 1, release.AddRemove)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(g.Delta/4.24348e-6-1) > .005 || g.DeltaLower > 4.24349e-6 {
		t.Errorf("row 17: delta in [%v, %v]", g.DeltaLower, g.Delta)
	}
}

func byPLD(t *testing.T, e event, delta float64, n release.Neighbours) release.Guarantee {
	t.Helper()
	g, err := Options{Method: PLD}.epsilon(e, delta, n)
	if err != nil {
		t.Fatalf("%+v: %v", e, err)
	}
	if g.Method != "pld" {
		t.Fatalf("asked for pld, got %+v", g)
	}
	return g
}

// Where a formula knows the truth, the two bounds enclose it, however small delta is.
func TestPLDEnclosesTheTruth(t *testing.T) {
	for _, e := range []event{
		gauss(1), gauss(.3), gauss(20), selfCompose{gauss(5), 100}, selfCompose{gauss(300), 1e5},
		selfCompose{randomizedResponse{.1, 2}, 1000}, selfCompose{randomizedResponse{.5, 2}, 50}, randomizedResponse{3, 2},
		selfCompose{approxDP{.1, 1e-9}, 100}, poissonSample{gauss(1), .01}, poissonSample{gauss(.7), .4},
		discrete(100, 1, release.Interval(1)), discrete(3, 2, release.Interval(4)), selfCompose{discrete(100, 1, release.Interval(1)), 100},
		selfCompose{discrete(10, 1, release.OneHot()), 100}, discrete(1<<24, 1, release.Interval(1<<10)),
		discreteLaplace{release.Rational{Num: 10, Den: 1}, release.Interval(7)}, selfCompose{discreteLaplace{release.Rational{Num: 10, Den: 1}, release.Interval(1)}, 100},
	} {
		for _, delta := range []float64{.1, 1e-5, 1e-15} {
			want, err := Options{Method: ClosedForm}.epsilon(e, delta, release.AddRemove)
			if err != nil {
				if delta > 1e-9 {
					t.Errorf("%+v at %v: %v", e, delta, err)
				}
				continue
			}
			got, err := Options{Method: PLD}.epsilon(e, delta, release.AddRemove)
			if err != nil {
				t.Errorf("%+v at %v: %v", e, delta, err)
				continue
			}
			if got.Epsilon < want.Epsilon*(1-1e-9)-1e-12 || got.EpsilonLower > want.Epsilon+1e-12 || got.Epsilon > want.Epsilon*(1+2e-4)+1e-9 {
				t.Errorf("%+v at %v: pld [%v, %v], formula [%v, %v]", e, delta, got.EpsilonLower, got.Epsilon, want.EpsilonLower, want.Epsilon)
			}
		}
	}
}

func TestComposeInAnyOrder(t *testing.T) {
	a, b, c := sampled(1.5, .01, 100), selfCompose{lap(20), 30}, selfCompose{randomizedResponse{.05, 2}, 7}
	d := discrete(400, 1, release.Interval(1))
	one := epsilon(t, composition{a, b, c, d}, 1e-7, release.AddRemove)
	two := epsilon(t, composition{d, composition{c, selfCompose{composition{lap(20)}, 30}}, a}, 1e-7, release.AddRemove)
	if math.Abs(one.Epsilon-two.Epsilon) > 2e-4*one.Epsilon {
		t.Errorf("%v and %v", one, two)
	}
	if one.EpsilonLower < one.Epsilon*(1-1e-3) {
		t.Errorf("a wide bracket: %+v", one)
	}
	alone := 0.0
	for _, e := range []event{a, b, c, d} {
		alone = max(alone, epsilon(t, e, 1e-7, release.AddRemove).Epsilon)
	}
	if one.Epsilon <= alone {
		t.Errorf("the composition %v is not above its largest part %v", one.Epsilon, alone)
	}
	// Gaussians of all sizes are one Gaussian.
	near(t, "two Gaussians", epsilon(t, composition{gauss(3), gauss(4)}, 1e-6, release.AddRemove).Epsilon,
		epsilon(t, gauss(2.4), 1e-6, release.AddRemove).Epsilon, 1e-9)
}

func TestPLDMonotone(t *testing.T) {
	eps := func(sigma, q float64, count uint64, delta float64) float64 {
		return epsilon(t, sampled(sigma, q, count), delta, release.AddRemove).Epsilon
	}
	last := 0.0
	rates, counts := []float64{1e-4, .01, .1, .5, .999, 1}, []uint64{1, 10, 1000, 1e5, 1e6}
	if patient() { // few steps at a tiny rate take seconds
		rates, counts = append([]float64{1e-6}, rates...), append([]uint64{1, 2}, counts[1:]...)
	}
	for _, q := range rates {
		if e := eps(2, q, 50, 1e-6); e <= last {
			t.Errorf("rate %v: %v is not above %v", q, e, last)
		} else {
			last = e
		}
	}
	near(t, "rate 1", last, epsilon(t, selfCompose{gauss(2), 50}, 1e-6, release.AddRemove).Epsilon, 1e-9)
	last = 0
	for _, count := range counts {
		if e := eps(20, .001, count, 1e-6); e < last {
			t.Errorf("%d releases: %v is below %v", count, e, last)
		} else {
			last = e
		}
	}
	last = math.Inf(1)
	for _, delta := range []float64{1e-12, 1e-9, 1e-5, .01, .5} {
		if e := eps(1, .1, 20, delta); e >= last {
			t.Errorf("delta %v: %v is not below %v", delta, e, last)
		} else {
			last = e
		}
	}
	// Refining narrows the bracket and never moves it outside the wider one.
	var prev release.Guarantee
	for i, tol := range []float64{1e-1, 1e-3, 1e-5} {
		g, err := Options{Method: PLD, Tolerance: tol}.epsilon(sampled(5.1, .02, 2500), 1e-8, release.AddRemove)
		if err != nil {
			t.Fatal(err)
		}
		if g.Epsilon-g.EpsilonLower > tol*g.Epsilon {
			t.Errorf("tolerance %v: %+v", tol, g)
		}
		if i > 0 && (g.Epsilon < prev.EpsilonLower || g.EpsilonLower > prev.Epsilon) {
			t.Errorf("brackets do not meet: %+v, %+v", g, prev)
		}
		prev = g
	}
}

func TestSampledNeedsAHiddenCount(t *testing.T) {
	for _, n := range []release.Neighbours{release.AddRemove, release.ReplaceOne, release.ZeroOut} {
		counted := release.One(release.Gaussian{Sigma: 1, Contribution: release.Signed(1)}).Sampled(release.CountedPoisson{Rate: .01, People: 100})
		if _, err := Epsilon([]release.Release{counted}, 1e-6, n); !errors.Is(err, release.ErrUnsupported) {
			t.Errorf("%v: %v", n, err)
		}
	}
	for _, e := range []event{poissonSample{gauss(1), 0}, poissonSample{gauss(1), 2}, poissonSample{gauss(1), math.NaN()},
		randomizedResponse{0, 2}, randomizedResponse{1, 1}, randomizedResponse{math.Inf(1), 2}, laplace{0, release.Signed(1)}, laplace{1, release.Contribution{}},
		laplace{1e-9, release.Signed(1)}, composition{}} {
		if _, err := epsilonOf(e, 1e-6, release.AddRemove); !errors.Is(err, release.ErrParameter) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	if _, err := (Options{Method: "guess"}).epsilon(gauss(1), 1e-6, release.AddRemove); !errors.Is(err, release.ErrParameter) {
		t.Error(err)
	}
	if _, err := (Options{Tolerance: -1}).epsilon(gauss(1), 1e-6, release.AddRemove); !errors.Is(err, release.ErrParameter) {
		t.Error(err)
	}
}

func TestFFT(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{4, 8, 64, 1024} {
		x := make([]float64, n)
		for i := range x {
			x[i] = rng.Float64()
		}
		z := plan(n).forward(x)
		sum := 0.0
		for _, v := range x {
			sum += v
		}
		for j := 0; j <= n/2; j += max(1, n/16) {
			var want complex128
			for i, v := range x {
				s, c := math.Sincos(2 * math.Pi * float64(i*j%n) / float64(n))
				want += complex(v*c, -v*s)
			}
			if d := z[j] - want; math.Hypot(real(d), imag(d)) > fftError(n)*sum+1e-13 {
				t.Errorf("n = %d: coefficient %d is %v, want %v", n, j, z[j], want)
			}
		}
		for i, v := range plan(n).inverse(z) {
			if math.Abs(v-x[i]) > 1e-14 {
				t.Fatalf("n = %d: entry %d comes back as %v, was %v", n, i, v, x[i])
			}
		}
	}
}

func BenchmarkSampledGaussian(b *testing.B) {
	for b.Loop() {
		if _, err := epsilonOf(sampled(5.1, .02, 2500), 1e-8, release.AddRemove); err != nil {
			b.Fatal(err)
		}
	}
}
