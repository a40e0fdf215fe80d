package accountant

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// near fails unless got is in [want - tol/1000, want + tol]: answers are rounded up.
// Reference values are themselves rounded, which the tolerances cover.
func near(t *testing.T, name string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s: got %.10g, want %.10g within %.1g", name, got, want, tol)
	}
}

func epsilon(t *testing.T, e event, delta float64, n release.Neighbours) release.Guarantee {
	t.Helper()
	g, err := epsilonOf(e, delta, n)
	if err != nil {
		t.Fatalf("%+v at %v: %v", e, delta, err)
	}
	if !(g.EpsilonLower <= g.Epsilon) || g.Theorem == "" || g.Method == "" || g.Neighbours != n || g.Delta != delta {
		t.Fatalf("%+v at %v: inconsistent %+v", e, delta, g)
	}
	return g
}

// epsilonOf is Options.epsilon by default.
func epsilonOf(e event, delta float64, n release.Neighbours) (release.Guarantee, error) {
	return Options{}.epsilon(e, delta, n)
}

// deltaOf is Options.delta by default.
func deltaOf(e event, epsilon float64, n release.Neighbours) (release.Guarantee, error) {
	return Options{}.delta(e, epsilon, n)
}

// reportOf is the report of an event that is a mechanism.
func reportOf(e event) release.Report {
	switch e := e.(type) {
	case gaussian:
		return release.ReportOf(release.Gaussian{Sigma: e.Sigma, Contribution: e.Contribution})
	case laplace:
		return release.ReportOf(release.Laplace{Scale: e.Scale, Contribution: e.Contribution})
	case discreteLaplace:
		return release.ReportOf(release.DiscreteLaplace{Scale: e.Scale, Contribution: e.Contribution})
	case randomizedResponse:
		return release.ReportOf(release.Response{Epsilon0: e.Epsilon0, Answers: e.K})
	case rappor:
		return release.ReportOf(release.RAPPOR{Epsilon0: e.Epsilon0, Answers: 2})
	case approxDP:
		return release.ReportOf(release.ApproxDP{Epsilon: e.Epsilon, Delta: e.Delta})
	}
	return release.ReportOf(nil)
}

func gauss(sigma float64) event { return gaussian{sigma, release.Signed(1)} }

func discrete(num, den uint64, c release.Contribution) event {
	return discreteGaussian{Sigma2: release.Rational{Num: num, Den: den}, Contribution: c}
}

// Reference values: dp.md, section 3; the numbers are its row numbers.
func TestReferenceClosedForms(t *testing.T) {
	for _, r := range []struct {
		name  string
		event event
		delta float64
		want  float64
		tol   float64
	}{
		{"1", gauss(5.1), 1e-8, 1.0000638, 1e-6},
		{"3a", gauss(1), 1e-5, 4.3771781, 1e-6},
		{"3b", gauss(.5), 1e-6, 10.9971512, 1e-6},
		{"3c", gauss(10), 1e-12, .6470081, 1e-6},
		{"6a", selfCompose{gauss(5.1), 2500}, 1e-8, 102.288362, 1e-5},
		{"6b", selfCompose{gauss(5.1), 50}, 1e-8, 8.3433101, 1e-5},
		{"28a", discrete(100, 1, release.Interval(1)), 1e-6, .3967901, 1e-6},
		{"28b", discrete(4, 1, release.Interval(1)), 1e-6, 2.2757932, 1e-6},
		{"28c", discrete(1, 2, release.Interval(1)), 1e-5, 6.8458786, 1e-6},
		{"28d", discrete(400, 1, release.Interval(10)), 1e-6, 2.2539608, 1e-6},
		{"29a", selfCompose{discrete(100, 1, release.Interval(1)), 100}, 1e-6, 4.88672, 2e-4},
		{"29b", selfCompose{discreteLaplace{release.Rational{Num: 10, Den: 1}, release.Interval(1)}, 100}, 1e-6, 4.774568, 2e-4},
		{"30a", zcdp{.1}, 1e-6, 2.1419389, 1e-6},
		{"30b", zcdp{1}, 1e-6, 7.7662166, 1e-6},
		{"30c", zcdp{.005}, 1e-8, .5235561, 1e-6},
		{"30d", zcdp{2}, 1e-5, 10.7248241, 1e-6},
		{"31b", selfCompose{zcdp{.005}, 100}, 1e-6, 5.2215344, 1e-6},
		{"31c", selfCompose{zcdp{.0025}, 100}, 1e-6, 3.5422913, 1e-6},
		{"24a", selfCompose{approxDP{.1, 0}, 1000}, 1e-6, 19.3446714, 1e-6},
		{"24b", selfCompose{approxDP{.5, 0}, 50}, 1e-5, 18.9332833, 1e-6},
		{"25a", selfCompose{approxDP{.1, 1e-8}, 100}, 1e-5, 4.3296367, 1e-6},
		{"25b", selfCompose{approxDP{.5, 1e-9}, 30}, 1e-6, 13.9545509, 1e-6},
		{"26b", selfCompose{approxDP{.1, 0}, 100}, 1e-6, 4.7745676, 1e-6},
	} {
		near(t, "row "+r.name, epsilon(t, r.event, r.delta, release.AddRemove).Epsilon, r.want, r.tol)
	}
	g, err := deltaOf(gauss(1), 1, release.AddRemove)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "row 4", g.Delta, .126936738, 1e-9)
	near(t, "row 4, lower", g.DeltaLower, .126936738, 1e-9)
	for _, r := range []struct{ epsilon, delta, want float64 }{ // rows 2 and 5
		{1, 1e-8, 5.1003088}, {1, 1e-6, 4.2246789}, {.1, 1e-6, 36.3046904}, {8, 1e-5, .6002291}, {3, 1e-10, 2.0622532},
	} {
		sigma, g, err := CalibrateGaussian(r.epsilon, r.delta, release.Signed(1), release.AddRemove, 1)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "rows 2 and 5", sigma, r.want, 1e-6)
		if g.Epsilon > r.epsilon || g.Epsilon < r.epsilon*(1-1e-9) {
			t.Errorf("sigma %v for epsilon %v gives %v", sigma, r.epsilon, g.Epsilon)
		}
	}
	classical, err := ClassicalGaussianSigma(1, 1e-8, 1)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "row 7", classical, 6.1063613, 1e-6)
	for _, r := range []struct{ epsilon, want float64 }{{1, .0337883}, {.61, .0166689}} {
		g, err := PoissonSampledApproxDP(r.epsilon, 1e-8, .02)
		if err != nil {
			t.Fatal(err)
		}
		near(t, "row 27", g.Epsilon, r.want, 1e-7)
		near(t, "row 27, delta", g.Delta, 2e-10, 1e-18)
	}
	simple, err := SimpleZCDPEpsilon(.1, 1e-6)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "row 30, simple", simple, 2.4507880, 1e-6)
	near(t, "row 31, sigma", math.Pow(2, 16)/math.Sqrt(2*.005), 655360, 1e-6)
	rho, err := discreteGaussian{Sigma2: release.Rational{Num: 655360 * 655360, Den: 1}, Contribution: release.Ball(1000, 65536)}.rho(release.ZeroOut)
	if err != nil {
		t.Fatal(err)
	}
	near(t, "row 31, rho", rho, .005, 1e-9)
	// Row 63 is tau of the literature's bound on a sum of two discrete Gaussians. Ours,
	// which is proved, takes its place: it counts the term e^(-pi^2 s2) four times where
	// tau counts it ten times.
	for _, r := range []struct{ s2, tau float64 }{{1, 5.172319e-4}, {4, 7.157166e-17}} {
		near(t, "row 63", latticeSlop(2, r.s2), .4*r.tau, 1e-3*r.tau)
	}
}

// Terms below one ulp of 1 count too: there may be 10^12 of them. To the first order a
// term is 4q.
func TestLatticeSlopOfManyDraws(t *testing.T) {
	const k = 1e12
	for _, s2 := range []float64{1.7, 1.8, 2, 3} {
		want := 0.0
		for j := 1.0; j <= 64; j++ {
			times := 1.0
			if j == 64 {
				times = k - j
			}
			want += 4 * math.Exp(-2*math.Pi*math.Pi*s2*j/(j+1)) * times
		}
		if got := latticeSlop(k, s2); got < want*(1-1e-12) || got > want*(1+1e-6) {
			t.Errorf("sigma^2 %v: %v, want %v", s2, got, want)
		}
	}
}

// bruteDelta is delta(epsilon) of a discrete mechanism with shift d in each of k
// coordinates, by summing over the whole grid of k outcomes.
func bruteDelta(p func(y int) float64, r, d, k int, epsilon float64) float64 {
	var walk func(k int, a, b float64) float64
	walk = func(k int, a, b float64) float64 {
		if k == 0 {
			return max(0, a-math.Exp(epsilon)*b)
		}
		s := 0.0
		for y := -r; y <= r; y++ {
			s += walk(k-1, a*p(y), b*p(y-d))
		}
		return s
	}
	return walk(k, 1, 1)
}

func TestDiscreteAgainstBruteForce(t *testing.T) {
	for _, tc := range []struct {
		s2   release.Rational
		c    release.Contribution
		n    release.Neighbours
		k, d int
		r    int
	}{
		{release.Rational{Num: 1, Den: 2}, release.OneHot(), release.AddRemove, 1, 1, 40},
		{release.Rational{Num: 1, Den: 2}, release.OneHot(), release.ReplaceOne, 2, 1, 40},
		{release.Rational{Num: 9, Den: 4}, release.OneHot(), release.ReplaceOne, 2, 1, 60},
		{release.Rational{Num: 9, Den: 1}, release.OneHot(), release.ReplaceOne, 2, 1, 100},
		{release.Rational{Num: 30, Den: 1}, release.Interval(3), release.ReplaceOne, 1, 3, 200},
		{release.Rational{Num: 30, Den: 1}, release.Signed(3), release.ReplaceOne, 1, 6, 200},
		{release.Rational{Num: 3, Den: 1}, release.Vector(2, 2), release.ZeroOut, 2, 2, 60},
		{release.Rational{Num: 1, Den: 1}, release.Vector(3, 1), release.ZeroOut, 3, 1, 14},
	} {
		s2 := tc.s2.Float()
		total := 0.0
		for y := -1000; y <= 1000; y++ {
			total += math.Exp(-float64(y*y) / (2 * s2))
		}
		p := func(y int) float64 { return math.Exp(-float64(y*y)/(2*s2)) / total }
		for _, e := range []float64{0, .1, .5, 1, 2, 3.3} {
			g, err := deltaOf(discreteGaussian{Sigma2: tc.s2, Contribution: tc.c}, e, tc.n)
			if err != nil {
				t.Fatal(err)
			}
			want := bruteDelta(p, tc.r, tc.d, tc.k, e)
			if g.Delta < want*(1-1e-12) || g.DeltaLower > want*(1+1e-12) || g.Delta > want*(1+1e-9)+1e-14 {
				t.Errorf("%+v at %v: [%v, %v], brute force %v", tc, e, g.DeltaLower, g.Delta, want)
			}
		}
	}
	for _, tc := range []struct{ c release.Contribution }{{release.Interval(1)}, {release.Interval(4)}, {release.Interval(5)}} {
		d := int(tc.c.Max)
		total := 0.0
		for y := -400; y <= 400; y++ {
			total += math.Exp(-math.Abs(float64(y)) / 2.5)
		}
		p := func(y int) float64 { return math.Exp(-math.Abs(float64(y))/2.5) / total }
		for _, e := range []float64{0, .1, .39, .5, 1, 1.5, 1.99} {
			g, err := deltaOf(discreteLaplace{release.Rational{Num: 5, Den: 2}, tc.c}, e, release.AddRemove)
			if err != nil {
				t.Fatal(err)
			}
			want := bruteDelta(p, 400, d, 1, e)
			if g.Delta < want-1e-14 || g.DeltaLower > want+1e-14 || g.Delta > want+1e-12 {
				t.Errorf("discrete Laplace %v at %v: [%v, %v], brute force %v", d, e, g.DeltaLower, g.Delta, want)
			}
		}
	}
	// One server's noise in two coordinates is what two servers' noise is in one, up to
	// the loss: check the charge for the sum of two draws against its exact law.
	s2 := 2.5
	p1 := gaussianPMF(s2)
	p2 := convolve(p1, p1, 4*len(p1))
	r := len(p2) / 2
	law := func(y int) float64 {
		if y < -r || y > r {
			return 0
		}
		return p2[y+r]
	}
	for _, e := range []float64{0, .1, .5, 1, 2} {
		g, err := deltaOf(discreteGaussian{Sigma2: release.Rational{Num: 5, Den: 2}, Contribution: release.OneHot(), Honest: 2}, e, release.ZeroOut)
		if err != nil {
			t.Fatal(err)
		}
		want := bruteDelta(law, 50, 1, 1, e)
		if g.Delta < want || g.DeltaLower > want || e > 0 && g.Delta > want*1.001 {
			t.Errorf("two honest servers at %v: [%v, %v], exact %v", e, g.DeltaLower, g.Delta, want)
		}
	}
}

// The three ways to evaluate the lattice agree where they meet.
func TestLatticeEngines(t *testing.T) {
	for _, sigma := range []float64{128.5, 200, 1000} {
		v := sigma * sigma
		l := &lattice{k: 1, d: 30, s2: v, v: v}
		direct := &lattice{k: 1, d: 30, s2: v, v: v, pmf: gaussianPMF(v)}
		for _, e := range []float64{0, .01, .1, .5, 1, 1.3} {
			lo, hi := l.delta(e)
			lo2, hi2 := direct.delta(e)
			if lo > hi2 || lo2 > hi || hi > hi2*(1+1e-7)+1e-15 || lo < lo2*(1-1e-7)-1e-15 {
				t.Errorf("sigma %v at %v: smooth [%v, %v], direct [%v, %v]", sigma, e, lo, hi, lo2, hi2)
			}
		}
	}
	// A wide discrete Gaussian is a Gaussian.
	for _, r := range []struct{ num, d uint64 }{{1 << 40, 1 << 20}, {655360 * 655360, 65536}, {1 << 62, 1 << 30}, {1 << 40, 1}} {
		d := epsilon(t, discrete(r.num, 1, release.Interval(float64(r.d))), 1e-9, release.AddRemove)
		g := epsilon(t, gauss(math.Sqrt(float64(r.num))/float64(r.d)), 1e-9, release.AddRemove)
		if math.Abs(d.Epsilon/g.Epsilon-1) > 1e-6 || d.Epsilon-d.EpsilonLower > 1e-6*d.Epsilon {
			t.Errorf("%+v: discrete [%v, %v], Gaussian %v", r, d.EpsilonLower, d.Epsilon, g.Epsilon)
		}
	}
}

func TestMills(t *testing.T) {
	for x := -8.0; x < 60; x += .25 {
		// An independent value: Simpson's rule on the integral of e^(-xt - t^2/2) over t
		// >= 0.
		const n = 40000
		top := 40.0
		if x > 1 {
			top = min(40/x, 40)
		} else if x < 0 {
			top = 12 - x
		}
		h := top / n
		s := 1 + math.Exp(-x*top-top*top/2)
		for i := 1; i < n; i++ {
			u := float64(i) * h
			s += float64(2+2*(i%2)) * math.Exp(-x*u-u*u/2)
		}
		if got, want := mills(x), s*h/3; math.Abs(got/want-1) > 2e-12 {
			t.Fatalf("mills(%v) = %v, want %v", x, got, want)
		}
		if x > 3 { // both forms, to the precision that is claimed
			b := math.Sqrt(math.Pi/2) * math.Exp(x*x/2) * math.Erfc(x/math.Sqrt2)
			if x < 5 && math.Abs(mills(x)/b-1) > 3e-14 {
				t.Fatalf("mills(%v) = %v, by erfc %v", x, mills(x), b)
			}
		}
	}
}

func TestMonotone(t *testing.T) {
	last := math.Inf(1)
	for _, num := range []uint64{1, 2, 3, 4, 5, 8, 16, 64, 100, 1000, 1 << 14, 1<<14 + 1, 1 << 15, 1 << 20, 1 << 40} {
		for _, n := range []release.Neighbours{release.AddRemove, release.ReplaceOne, release.ZeroOut} {
			e := epsilon(t, discrete(num, 1, release.OneHot()), 1e-6, n)
			if n == release.ReplaceOne {
				if e.Epsilon >= last {
					t.Errorf("epsilon %v at sigma^2 = %d is not below %v", e.Epsilon, num, last)
				}
				last = e.Epsilon
				z := epsilon(t, zcdp{1 / float64(num)}, 1e-6, n)
				if e.Epsilon > z.Epsilon*(1+1e-9) {
					t.Errorf("sigma^2 = %d: exact %v above zCDP %v", num, e.Epsilon, z.Epsilon)
				}
			}
		}
	}
	last = 0
	for _, count := range []uint64{1, 2, 3, 10, 100, 1e4, 1e6, 1e9} {
		e := epsilon(t, selfCompose{discrete(1<<30, 1, release.OneHot()), count}, 1e-8, release.ReplaceOne)
		if e.Epsilon <= last {
			t.Errorf("epsilon %v after %d releases is not above %v", e.Epsilon, count, last)
		}
		last = e.Epsilon
	}
}

func TestCalibrateDiscreteGaussian(t *testing.T) {
	for _, c := range []release.Contribution{release.OneHot(), release.MultiHot(5), release.Interval(1000), release.Vector(10, 255), release.Ball(100, 65536)} {
		for _, eps := range []float64{.1, 1, 5} {
			for _, count := range []uint64{1, 50} {
				r, g, err := CalibrateDiscreteGaussian(eps, 1e-8, c, release.ReplaceOne, count)
				if err != nil {
					t.Fatal(err)
				}
				if g.Epsilon > eps || g.Epsilon < eps*(1-1e-5) {
					t.Errorf("%+v, %v, %d: sigma^2 = %v gives %v", c, eps, count, r, g.Epsilon)
				}
			}
		}
	}
	// Noise that is always enough: the least that the sampler draws.
	if r, _, err := CalibrateDiscreteGaussian(100, 1e-3, release.OneHot(), release.ZeroOut, 1); err != nil || r.Float() != .25 {
		t.Errorf("%v, %v", r, err)
	}
	if _, _, err := CalibrateDiscreteGaussian(.001, 1e-8, release.Interval(1<<40), release.ZeroOut, 1); !errors.Is(err, release.ErrNoGuarantee) {
		t.Errorf("noise beyond 2^62: %v", err)
	}
}

func TestBadInput(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, delta := range []float64{0, 1, -1, 2, nan, inf, -inf} {
		if _, err := epsilonOf(gauss(1), delta, release.AddRemove); !errors.Is(err, release.ErrParameter) {
			t.Errorf("delta %v: %v", delta, err)
		}
		if _, _, err := CalibrateDiscreteGaussian(1, delta, release.OneHot(), release.AddRemove, 1); !errors.Is(err, release.ErrParameter) {
			t.Errorf("calibrate at delta %v: %v", delta, err)
		}
		if _, _, err := CalibrateGaussian(1, delta, release.OneHot(), release.AddRemove, 1); !errors.Is(err, release.ErrParameter) {
			t.Errorf("calibrate at delta %v: %v", delta, err)
		}
	}
	for _, e := range []event{
		nil, gauss(0), gauss(nan), gauss(inf), gauss(-1), gaussian{1, release.Contribution{}}, gaussian{1, release.Signed(nan)},
		gaussian{1, release.Signed(-1)}, gaussian{1, release.Ball(3, inf)}, gaussian{1, release.Ball(0, 1)}, gaussian{1e-310, release.Signed(1e300)},
		selfCompose{gauss(1), 0}, selfCompose{nil, 1}, selfCompose{gauss(1), 1 << 60}, zcdp{nan}, zcdp{-1}, zcdp{inf},
		approxDP{nan, 0}, approxDP{1, 1}, approxDP{1, nan}, approxDP{-1, 0}, approxDP{inf, 0},
		selfCompose{selfCompose{gauss(1), 1e9}, 1e9}, selfCompose{approxDP{1, 0}, 1e9},
		discrete(0, 1, release.OneHot()), discrete(1, 0, release.OneHot()), discrete(1, 5, release.OneHot()), discrete(1<<63, 1, release.OneHot()),
		discrete(1, 1, release.Interval(.5)), discrete(1, 1, release.Contribution{}), discreteGaussian{release.Rational{Num: 1, Den: 1}, release.OneHot(), -1},
		discreteLaplace{release.Rational{Num: 0, Den: 1}, release.OneHot()}, discreteLaplace{release.Rational{Num: 1, Den: 1}, release.Interval(1.5)},
	} {
		if _, err := epsilonOf(e, 1e-6, release.AddRemove); !errors.Is(err, release.ErrParameter) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	for _, n := range []release.Neighbours{0, 4, 255} {
		if _, err := epsilonOf(gauss(1), 1e-6, n); !errors.Is(err, release.ErrParameter) {
			t.Errorf("neighbours %d: %v", n, err)
		}
	}
	for _, e := range []float64{-1, nan, inf} {
		if _, err := deltaOf(gauss(1), e, release.AddRemove); !errors.Is(err, release.ErrParameter) {
			t.Errorf("epsilon %v: %v", e, err)
		}
		if _, err := PoissonSampledApproxDP(e, .1, .1); !errors.Is(err, release.ErrParameter) {
			t.Errorf("epsilon %v: %v", e, err)
		}
	}
	for _, q := range []float64{0, -1, nan, 1.5} {
		if _, err := PoissonSampledApproxDP(1, .1, q); !errors.Is(err, release.ErrParameter) {
			t.Errorf("q %v: %v", q, err)
		}
	}
	if _, err := epsilonOf(approxDP{1, 1e-3}, 1e-6, release.AddRemove); !errors.Is(err, release.ErrNoGuarantee) {
		t.Errorf("delta below the event's: %v", err)
	}
	// Very weak protection is an honest large number or an error, never a small one.
	if g, err := epsilonOf(selfCompose{gauss(.01), 1e3}, 1e-6, release.AddRemove); err == nil && g.Epsilon < 1e6 {
		t.Errorf("no noise to speak of: %+v", g)
	}
	var p *release.ParameterError
	if _, err := epsilonOf(gauss(1), 2, release.AddRemove); !errors.As(err, &p) || p.Parameter != "delta" {
		t.Errorf("%v", err)
	}
}

func TestNeighboursText(t *testing.T) {
	for n := release.AddRemove; n <= release.ZeroOut; n++ {
		if m, err := release.ParseNeighbours(n.String()); err != nil || m != n {
			t.Errorf("%v: %v, %v", n, m, err)
		}
	}
	if _, err := release.ParseNeighbours("both"); !errors.Is(err, release.ErrParameter) {
		t.Error(err)
	}
	b, err := json.Marshal(epsilon(t, zcdp{.1}, 1e-6, release.ZeroOut))
	if err != nil {
		t.Fatal(err)
	}
	var back map[string]any
	if err := json.Unmarshal(b, &back); err != nil || back["neighbours"] != "zero-out" || back["method"] != "zcdp" {
		t.Errorf("%s: %v", b, err)
	}
	if _, err := release.Neighbours(9).MarshalText(); !errors.Is(err, release.ErrParameter) {
		t.Error(err)
	}
}
