package amplify

import (
	"errors"
	"math"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

func TestShuffleProperties(t *testing.T) {
	for i, class := range []class{anyReport, kary(2), columns, kary(8)} {
		last := math.Inf(1)
		for _, n := range []uint64{1, 2, 10, 100, 1000, 100_000, 1e9} {
			if i == 3 && n > 10_000 {
				continue
			}
			g := epsilon(t, must(Shuffle(class(1.5), n))(t), 1e-7)
			if !(g.Epsilon <= last && g.Epsilon <= 1.5 && g.Epsilon > 0) {
				t.Errorf("%d: epsilon %v at n = %d, after %v", i, g.Epsilon, n, last)
			}
			last = g.Epsilon
		}
	}
	// One user alone has the local guarantee.
	g := epsilon(t, must(Shuffle(release.AnyReport(1.5), 1))(t), 1e-12)
	near(t, "n=1", g.Epsilon, 1.5, 1e-10)
	// The general bound is above the special one, which is above the attack of one known
	// instance.
	for _, n := range []uint64{1, 50, 5000, 200_000} {
		general := epsilon(t, must(Shuffle(release.AnyReport(2), n))(t), 1e-6)
		special := epsilon(t, must(Shuffle(kary(2)(2), n))(t), 1e-6)
		if !(general.Epsilon >= special.Epsilon && special.Epsilon >= special.EpsilonLower && special.EpsilonLower > 0) {
			t.Errorf("n=%d: %v, %v", n, general, special)
		}
		five := must(ShuffleBKMTT(LocalDP{Report: release.AnyReport(2)}, n, 1e-6))(t)
		focs := must(ShuffleFOCS(release.AnyReport(2), n, 1e-6))(t)
		old := must(ShuffleEFMRTT(release.AnyReport(2), n, 1e-6))(t)
		if !(general.Epsilon <= min(five.Epsilon, focs.Epsilon) && five.Epsilon <= old.Epsilon) {
			t.Errorf("n=%d: exact %v, theorem 5.1 %v, closed form %v, 2019 %v", n, general.Epsilon, five.Epsilon, focs.Epsilon, old.Epsilon)
		}
	}
	// Falling in epsilon, and never NaN.
	c := must(Shuffle(release.AnyReport(3), 2000))(t)
	last := 1.0
	for e := 0.0; e < 3.2; e += 0.01 {
		g := must(c.Delta(e))(t)
		if !(g.Delta <= last && g.DeltaLower <= g.Delta && g.DeltaLower >= 0) {
			t.Fatalf("at %v: %+v after %v", e, g, last)
		}
		last = g.Delta
	}
}

// The closed forms that papers state are never below the sums that they bound
// (docs/proofs/shuffling.md).
func TestClosedFormsCoverTheSums(t *testing.T) {
	amplified := 0
	for _, e0 := range []float64{.1, 1, 3} {
		for _, n := range []uint64{1000, 200_000} {
			for _, delta := range []float64{1e-9, 1e-4} {
				any := epsilon(t, must(Shuffle(release.AnyReport(e0), n))(t), delta).Epsilon
				binary := epsilon(t, must(Shuffle(kary(2)(e0), n))(t), delta).Epsilon
				for _, r := range []struct {
					g   release.Guarantee
					sum float64
				}{
					{must(ShuffleFOCS(release.AnyReport(e0), n, delta))(t), any},
					{must(ShuffleBKMTT(LocalDP{Report: release.AnyReport(e0)}, n, delta))(t), any},
					{must(ShuffleEFMRTT(release.AnyReport(e0), n, delta))(t), any},
					{must(ShuffleSODA(kary(2)(e0), n, delta))(t), binary},
				} {
					if r.g.Epsilon < r.sum {
						t.Errorf("e0=%v n=%d delta=%v: %v, by the sum %v: %s", e0, n, delta, r.g.Epsilon, r.sum, r.g.Theorem)
					}
					if r.g.Epsilon < e0 {
						amplified++
					}
				}
			}
		}
	}
	if amplified < 30 {
		t.Errorf("only %d of the formulas are below epsilon0", amplified)
	}
}

func TestAllocationProperties(t *testing.T) {
	// One slot is no amplification.
	near(t, "t=1", epsilon(t, must(Allocation(release.AnyPresence(1), 1, 1))(t), 1e-14).Epsilon, 1, 1e-12)
	last := 1.0
	for _, slots := range []uint64{1, 2, 10, 100, 10_000, 1_000_000, MaxCount} {
		c := must(Allocation(release.AnyPresence(1), slots, 1))(t)
		g := epsilon(t, c, 1e-6)
		if !(g.Epsilon <= last && g.Epsilon-g.EpsilonLower <= 1e-6*g.Epsilon) {
			t.Errorf("t=%d: %+v after %v", slots, g, last)
		}
		last = g.Epsilon
		half := epsilon(t, must(Allocation(release.AnyPresence(1), slots, .5))(t), 1e-6)
		if g.Epsilon > 0 && half.Epsilon >= g.Epsilon {
			t.Errorf("t=%d: halving the chance gives %v after %v", slots, half.Epsilon, g.Epsilon)
		}
		// Sampling the whole curve from outside is no tighter than the exact sum, and not
		// far off.
		outer := epsilon(t, must(Poisson(c, .5))(t), 1e-6)
		if !(outer.Epsilon >= half.Epsilon*(1-1e-9) && outer.Epsilon <= 1.5*half.Epsilon) {
			t.Errorf("t=%d: exact %v, sampled curve %v", slots, half.Epsilon, outer.Epsilon)
		}
	}
}

func TestCheckInProperties(t *testing.T) {
	for _, s := range []release.Schedule{release.FixedWindow, release.AveragedWindow, release.SlidingWindow} {
		c := CheckIn{Schedule: s, Slots: 2000, Rate: 1, People: 10_000}
		exact := epsilon(t, must(c.Curve(release.AnyReport(.5), release.ReplaceOne))(t), 1e-6)
		theorem := must(c.Theorem(LocalDP{Report: release.AnyReport(.5)}, 5e-7, 5e-7))(t)
		if !(exact.Epsilon < theorem.Epsilon) {
			t.Errorf("%v: %v, theorem %v", s, exact.Epsilon, theorem.Epsilon)
		}
		if p, err := release.ParseSchedule(s.String()); err != nil || p != s {
			t.Error(p, err)
		}
	}
	fixed := CheckIn{Schedule: release.FixedWindow, Slots: 2000, Rate: .3}
	z := epsilon(t, must(fixed.Curve(release.AnyReport(1), release.ZeroOut))(t), 1e-6)
	r := epsilon(t, must(fixed.Curve(release.AnyReport(1), release.ReplaceOne))(t), 1e-6)
	if !(z.Epsilon < r.Epsilon && r.EpsilonLower <= z.Epsilon) {
		t.Errorf("zero-out %v, replace %v", z, r)
	}
	whole := epsilon(t, must(Shuffle(release.AnyReport(1), 2000))(t), 1e-6)
	slots := epsilon(t, must(CheckIn{Schedule: release.FixedWindow, Slots: 2000, Rate: 1}.Curve(release.AnyReport(1), release.ReplaceOne))(t), 1e-6)
	near(t, "m slots as m users", slots.Epsilon, whole.Epsilon, 1e-9)
}

// gaussian is the curve of Gaussian noise at a distance of mu of its deviations.
func gaussian(mu float64, n release.Neighbours) *Curve {
	tail := func(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }
	return &Curve{neighbours: n, theorem: "the normal law", end: math.Inf(1), upper: func(e float64) float64 {
		return tail(e/mu-mu/2) - math.Exp(e)*tail(e/mu+mu/2)
	}}
}

func TestSampling(t *testing.T) {
	base := must(PureDP(1, release.AddRemove))(t)
	all := must(Poisson(base, 1))(t)
	near(t, "q=1", epsilon(t, all, 1e-6).Epsilon, epsilon(t, base, 1e-6).Epsilon, 1e-9)
	// Randomized response of a sampled bit is randomized response with a smaller epsilon;
	// the curve covers both ways.
	q, e0 := 0.3, 1.0
	c := must(Poisson(base, q))(t)
	al := 1 / (1 + math.Exp(-e0))
	p := map[string]float64{"1": (1-q)*(1-al) + q*al, "0": (1-q)*al + q*(1-al)}
	absent := map[string]float64{"1": 1 - al, "0": al}
	for _, e := range []float64{0.01, 0.1, 0.3} {
		g := must(c.Delta(e))(t)
		if exact := hockey(p, absent, e); !(g.Delta >= exact-1e-15 && g.Delta <= exact+1e-9) {
			t.Errorf("at %v: %v, exact %v", e, g.Delta, exact)
		}
	}
	gauss := gaussian(1, release.AddRemove)
	// Row 20 of the reference values: one step of the sampled Gaussian.
	sampled := must(Poisson(gauss, .01))(t)
	near(t, "row 20", must(sampled.Delta(.5))(t).Delta, 2.214519e-7, 1e-12)
	replace := gaussian(1, release.ReplaceOne)
	subset := epsilon(t, must(WithoutReplacement(replace, 100, 10_000))(t), 1e-6)
	if whole := epsilon(t, replace, 1e-6); !(subset.Epsilon < whole.Epsilon/10) {
		t.Errorf("a hundredth of the records: %v of %v", subset.Epsilon, whole.Epsilon)
	}
	if _, err := Poisson(replace, .1); !errors.Is(err, release.ErrUnsupported) {
		t.Error(err)
	}
	if _, err := WithoutReplacement(gauss, 1, 2); !errors.Is(err, release.ErrUnsupported) {
		t.Error(err)
	}
}

func TestParticipants(t *testing.T) {
	last := 1.0
	for _, n := range []uint64{1000, 100_000, 1_000_000_000, MaxCount} {
		q, g, err := DummyProbability(n, 1, 1e-6)
		if err != nil || q >= last {
			t.Fatal(n, q, err)
		}
		if d := must(must(DummyReports(n, q))(t).Delta(1))(t); d.Delta > g.Delta || d.Delta < .99*g.Delta {
			t.Errorf("n=%d: delta %v at %v", n, d.Delta, q)
		}
		last = q
	}
	if _, _, err := DummyProbability(3, .1, 1e-9); !errors.Is(err, release.ErrNoGuarantee) {
		t.Error(err)
	}
	for _, k := range []uint64{1, 10, 1e6, 1e9, MaxCount} {
		b := must(MinimumBatch(k, .02, 1e-9))(t)
		low := must(MinimumBatchChernoff(k, .02, 1e-9))(t)
		if float64(b) < math.Floor(low) || float64(b) > .02*float64(k) {
			t.Errorf("k=%d: %d, Chernoff %v", k, b, low)
		}
	}
}

// Extreme questions get an answer or a typed error, never NaN and never less than what
// holds.
func TestExtremes(t *testing.T) {
	for _, e0 := range []float64{1e-12, 2, 99, 101, 1e6} {
		for _, n := range []uint64{1, 1e5} {
			for _, delta := range []float64{1e-300, .5} {
				for _, p0 := range []float64{1e-12, 1} {
					curves := []*Curve{must(Allocation(release.AnyPresence(e0), n, p0))(t), must(Shuffle(release.AnyReport(e0), n))(t),
						must(CheckIn{Schedule: release.FixedWindow, Slots: n, Rate: p0}.Curve(release.AnyReport(e0), release.ReplaceOne))(t)}
					for _, c := range curves {
						g := epsilon(t, c, delta)
						if !(g.Epsilon >= 0 && g.Epsilon <= e0) {
							t.Errorf("e0=%v n=%d delta=%v p0=%v: %+v", e0, n, delta, p0, g)
						}
					}
				}
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	ok := CheckIn{Schedule: release.FixedWindow, Slots: 10, Rate: 1, People: 10}
	base := must(PureDP(1, release.AddRemove))(t)
	_, theorem := ok.Theorem(LocalDP{release.ApproxReport(1, .1), 1e-9}, 1e-6, 0)
	_, noSlack := ok.Theorem(LocalDP{Report: release.ApproxReport(1, 1e-20)}, 1e-6, 0)
	_, sliding := CheckIn{Schedule: release.SlidingWindow, Slots: 10, Rate: .5}.Theorem(LocalDP{Report: release.AnyReport(1)}, 1e-6, 0)
	refused := []error{theorem, noSlack, sliding}
	for _, x := range []float64{nan, inf, -inf, -1, 0, 1e7} {
		_, e1 := Shuffle(release.AnyReport(x), 10)
		_, e2 := Allocation(release.AnyPresence(x), 10, 1)
		_, e3 := ok.Curve(release.AnyReport(x), release.ReplaceOne)
		_, e4 := PureDP(x, release.ZeroOut)
		_, e5 := ShuffleFOCS(release.AnyReport(x), 10, .1)
		_, e6 := DonationTime(release.AnyPresence(x), 10, .1)
		_, _, e7 := DummyProbability(10, x, .1)
		_, e8 := MaxLocalDelta(x, .1)
		refused = append(refused, e1, e2, e3, e4, e5, e6, e7, e8)
	}
	for _, x := range []float64{nan, inf, -1, 0, 1.0001} {
		_, e1 := Allocation(release.AnyPresence(1), 10, x)
		_, e2 := Poisson(base, x)
		_, e3 := DummyReports(10, x)
		_, e4 := MinimumBatch(10, x, .1)
		_, e5 := base.Epsilon(x)
		_, e6 := ShuffleEFMRTT(release.AnyReport(1), 10, x)
		_, e7 := MinimumBatch(10, .1, x)
		e8 := CheckIn{Schedule: release.FixedWindow, Slots: 1, Rate: x}.Validate()
		_, e9 := ok.Theorem(LocalDP{Report: release.AnyReport(1)}, x, 0)
		_, e10 := CheckIn{Schedule: release.AveragedWindow, Slots: 1, Rate: 1, People: 1}.Theorem(LocalDP{Report: release.AnyReport(1)}, .1, x)
		refused = append(refused, e1, e2, e3, e4, e5, e6, e7, e8, e9, e10)
	}
	for _, n := range []uint64{0, MaxCount + 1, math.MaxUint64} {
		_, e1 := Shuffle(release.AnyReport(1), n)
		_, e2 := Allocation(release.AnyPresence(1), n, 1)
		_, e3 := DummyReports(n, .1)
		_, e4 := ShuffleBKMTT(LocalDP{Report: release.AnyReport(1)}, n, .1)
		e5 := CheckIn{Schedule: release.FixedWindow, Slots: n, Rate: 1}.Validate()
		_, e6 := MinimumBatch(n, .1, .1)
		_, e7 := WithoutReplacement(base, n, 10)
		_, e8 := CheckIn{Schedule: release.FixedWindow, Slots: 10, Rate: 1, People: n}.DummyUpdates()
		refused = append(refused, e1, e2, e3, e4, e5, e6, e7, e8)
	}
	_, e1 := base.Delta(nan)
	_, e2 := base.Delta(-1)
	_, e3 := Shuffle(nil, 10)
	_, e4 := Shuffle(kary(1)(1), 10)
	_, e5 := PureDP(1, 9)
	_, e6 := ok.Curve(release.AnyReport(1), 0)
	_, e7 := release.ParseSchedule("often")
	_, e8 := CheckIn{Schedule: release.SlidingWindow, Slots: 10, Rate: 1, People: 5}.DummyUpdates()
	e9 := CheckIn{Schedule: release.AveragedWindow, Slots: 10, Rate: .5, People: 5}.Validate()
	refused = append(refused, e1, e2, e3, e4, e5, e6, e7, e8, e9, CheckIn{}.Validate())
	for i, err := range refused {
		if !errors.Is(err, release.ErrParameter) {
			t.Errorf("refusal %d: got %v", i, err)
		}
	}
	for _, c := range []class{anyReport, kary(4)} {
		if _, err := ShuffleSODA(c(1), 1000, 1e-6); !errors.Is(err, release.ErrUnsupported) {
			t.Errorf("%+v: the withdrawn bound answers %v", c, err)
		}
	}
	if _, err := (CheckIn{release.AveragedWindow, 10, 1, 10}).Curve(release.AnyReport(1), release.AddRemove); !errors.Is(err, release.ErrUnsupported) {
		t.Error(err)
	}
}

// TestSamplingAtTinyRates: e^epsilon/q overflows a float64, and the curve is still that
// of q delta(ln(1 + (e^epsilon-1)/q)).
func TestSamplingAtTinyRates(t *testing.T) {
	base, err := PureDP(2000, release.AddRemove)
	if err != nil {
		t.Fatal(err)
	}
	const q = 1e-306
	c, err := Poisson(base, q)
	if err != nil {
		t.Fatal(err)
	}
	// 700 - ln q is 1404.6, far below 2000, where the base has delta 1.
	if g, err := c.Delta(700); err != nil || g.Delta < q {
		t.Errorf("delta(700) of a sample at rate %v is %v (%v), want at least the rate", q, g.Delta, err)
	}
	// Beyond the end of the base, delta is zero.
	if g, err := c.Delta(1996); err != nil || g.Delta != 0 {
		t.Errorf("delta(1996) is %v (%v), want 0", g.Delta, err)
	}
}
