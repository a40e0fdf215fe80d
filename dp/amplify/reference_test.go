package amplify

import (
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

func near(t *testing.T, name string, got, want, tol float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tol) {
		t.Errorf("%s: got %.10g, want %.10g within %.1g", name, got, want, tol)
	}
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func epsilon(t testing.TB, c *Curve, delta float64) release.Guarantee {
	t.Helper()
	g, err := c.Epsilon(delta)
	if err != nil {
		t.Fatalf("%s at %v: %v", c.Theorem(), delta, err)
	}
	if !(g.EpsilonLower <= g.Epsilon) || g.Theorem == "" || g.Delta != delta || g.Neighbours != c.Neighbours() {
		t.Fatalf("%s at %v: inconsistent %+v", c.Theorem(), delta, g)
	}
	return g
}

// Reference values: the project's specification of the accounting, section 3; the numbers
// are its rows.
func TestReferenceShuffling(t *testing.T) {
	for _, r := range []struct {
		row   string
		class class
		e0    float64
		n     uint64
		delta float64
		want  float64
	}{
		{"32", anyReport, 4, 1e4, 1e-10, .8939133},
		{"32", anyReport, 1, 1e3, 1e-6, .1824123},
		{"32", anyReport, 1, 1e5, 1e-6, .0152821},
		{"32", anyReport, 6, 1e6, 1e-8, .1894656},
		{"33", kary(2), 4, 1e4, 1e-10, .6052560},
		{"33", kary(2), 1, 1e3, 1e-6, .1486706},
		{"33", columns, 1, 1e5, 1e-6, .0124299},
		{"33", kary(2), 4, 1e6, 1e-10, .0540172},
		{"35", kary(10), 4, 1e4, 1e-10, .5588605},
		{"35", kary(16), 2, 2e4, 1e-8, .0606437},
	} {
		c := must(Shuffle(r.class(r.e0), r.n))(t)
		near(t, "row "+r.row, epsilon(t, c, r.delta).Epsilon, r.want, 1e-6)
	}
	g := must(ShuffleFOCS(release.AnyReport(1), 1e5, 1e-6))(t)
	near(t, "row 34, FOCS", g.Epsilon, .0725549, 1e-7)
	g = must(ShuffleSODA(kary(2)(1), 1e5, 1e-6))(t)
	near(t, "row 34, SODA", g.Epsilon, .0603605, 1e-7)
	g = must(ShuffleSODA(columns(4), 1e6, 1e-10))(t)
	near(t, "row 34, SODA", g.Epsilon, .1832566, 1e-7)
	for _, r := range []struct {
		e0       float64
		n        uint64
		five, ef float64
	}{{1, 1e3, 1.3097238, 4.8740247}, {.25, 1e3, .0687790, .1565576}, {1, 1e4, .4077596, 1.3993487}} {
		g := must(ShuffleBKMTT(LocalDP{Report: release.AnyReport(r.e0)}, r.n, 1e-6))(t)
		near(t, "row 36, theorem 5.1", g.Epsilon, min(r.five, r.e0), 1e-6)
		near(t, "row 36, EFMRTT19", efmrtt(r.e0, float64(r.n), 1e-6), r.ef, 1e-6)
		g = must(ShuffleEFMRTT(release.AnyReport(r.e0), r.n, 1e-6))(t)
		near(t, "row 36, EFMRTT19, capped", g.Epsilon, min(r.ef, r.e0), 1e-6)
	}
}

func TestReferenceCheckIns(t *testing.T) {
	fixed := func(m uint64, p0 float64) CheckIn { return CheckIn{Schedule: release.FixedWindow, Slots: m, Rate: p0} }
	for _, r := range []struct {
		c         CheckIn
		e0, delta float64
		want      float64
	}{
		{fixed(1e3, 1), 1, 1e-6, .4749252},
		{fixed(1e3, .1), 1, 1e-6, .0471314},
		{fixed(1e4, .5), .5, 1e-8, .0252882},
		{CheckIn{Schedule: release.SlidingWindow, Slots: 100, Rate: 1}, .5, 1e-6, .4413241},
	} {
		g := must(r.c.Theorem(LocalDP{Report: release.AnyReport(r.e0)}, r.delta, 0))(t)
		near(t, "rows 37 and 38", g.Epsilon, r.want, 1e-6)
	}
	d0 := must(MaxLocalDelta(1, 1e-10))(t)
	near(t, "row 38, largest d0", d0, 1.65614e-15, 1e-20)
	slack := 1e-14
	g := must(fixed(1e5, 1).Theorem(LocalDP{release.ApproxReport(.1, must(MaxLocalDelta(.1, slack))(t)), slack}, 1e-6, 0))(t)
	near(t, "row 38, approximate", g.Epsilon, .0304076, 1e-6*.03+5e-8)
	near(t, "row 38, approximate, delta", g.Delta, 1e-6+1e5*(math.Exp(g.Epsilon)+1)*slack, 1e-15)

	averaged := CheckIn{Schedule: release.AveragedWindow, Slots: 1e3, Rate: 1, People: 1e4}
	near(t, "row 39, e1", averagedE1(1e4, 1e3, 1e-6), .0703355, 1e-6)
	// The theorem's .6596585 is above e0 = .5, so the formula is looked at below e0 too.
	g = must(averaged.Theorem(LocalDP{Report: release.AnyReport(.5)}, 1e-6, 1e-6))(t)
	near(t, "row 39, capped", g.Epsilon, .5, 1e-12)
	x, e1 := math.Expm1(.5), averagedE1(1e4, 1e3, 1e-6)
	near(t, "row 39, formula", math.Exp(2)*x*x*e1*e1/2+math.E*x*e1*math.Sqrt(2*math.Log(1e6)), .6596585, 1e-6)
	near(t, "row 39, shuffle of n", epsilon(t, must(averaged.Curve(release.AnyReport(.5), release.ReplaceOne))(t), 1e-6).Epsilon, .0204015, 1e-6)

	for _, r := range []struct {
		m             uint64
		p0            float64
		zero, replace float64
	}{{1e3, 1, .1266145, .1824123}, {1e3, .1, .0102265, .0152674}, {1e4, 1, .0356588, .0530053}} {
		for _, s := range []release.Schedule{release.FixedWindow, release.SlidingWindow} {
			c := CheckIn{Schedule: s, Slots: r.m, Rate: r.p0}
			z := epsilon(t, must(c.Curve(release.AnyReport(1), release.ZeroOut))(t), 1e-6)
			near(t, "row 41", z.Epsilon, r.zero, 1e-6)
			if s == release.FixedWindow {
				near(t, "row 41, lower", z.EpsilonLower, r.zero, 1e-6)
			}
			near(t, "row 42", epsilon(t, must(c.Curve(release.AnyReport(1), release.ReplaceOne))(t), 1e-6).Epsilon, r.replace, 2e-6)
		}
	}
	near(t, "row 40, 3.4", must(CheckIn{release.FixedWindow, 1000, .5, 4000}.DummyUpdates())(t), 135.26761, 1e-4)
	near(t, "row 40, 4.4", must(CheckIn{release.SlidingWindow, 100, 1, 1e4}.DummyUpdates())(t), 3624.0862, 1e-4)
}

func TestReferenceParticipants(t *testing.T) {
	for _, r := range []struct{ e, want float64 }{{1, .0337883}, {.61, .0166689}} {
		// Theorem 4 of paper 000 is one point of the sampled curve: (e, 1e-8) goes to
		// (want, 2e-10).
		base := must(PureDP(r.e, release.AddRemove))(t)
		near(t, "row 27", epsilon(t, must(Poisson(base, .02))(t), 1e-300).Epsilon, r.want, 1e-7)
	}
	near(t, "row 46", donation(1, 100, 1e-8), 1.0486007, 1e-6)
	g := must(DonationTime(release.AnyPresence(1), 100, 1e-8))(t)
	near(t, "row 46, capped", g.Epsilon, 1, 0)
	near(t, "row 46, capped, delta", g.Delta, 1e-8, 0)
	g = must(DonationTime(release.AnyPresence(2), 1000, 1e-9))(t)
	near(t, "row 46", g.Epsilon, 1.3168538, 1e-6)
	near(t, "row 46, delta", g.Delta, 1001e-9, 1e-15)
	for _, r := range []struct{ e, want float64 }{{1, 34.0680}, {.5, 90.1618}, {.1, 1426.456}} {
		q, g, err := DummyProbability(1e5, r.e, 1e-6)
		if err != nil || g.Epsilon != r.e || g.Delta != 1e-6 {
			t.Fatal(q, g, err)
		}
		near(t, "row 60", q*1e5, r.want, 1e-3*r.want)
	}
	if b := must(MinimumBatch(1e6, .02, 1e-9))(t); b != 19166 {
		t.Errorf("row 61: got %d, want 19166", b)
	}
	near(t, "row 61, Chernoff", must(MinimumBatchChernoff(1e6, .02, 1e-9))(t), 19089.54, .01)
}
