package accountant

import (
	"github.com/starling-agg/starling/dp/release"

	"errors"
	"math"
	"testing"
)

// Reference values of zCDP to approximate DP (dp_accounting 0.6.0 and an own code agree
// on them), reached through the formula rho = k |c|^2 L2^2/(2 sigma^2) worked by hand.
func TestCorrelated(t *testing.T) {
	for _, tc := range []struct {
		e     correlated
		n     release.Neighbours
		count uint64
		delta float64
		want  float64
	}{
		{correlated{release.Rational{Num: 10, Den: 1}, release.Rational{Num: 2, Den: 1}, release.Interval(1)}, release.ReplaceOne, 1, 1e-6, 2.1419389},            // rho 0.1
		{correlated{release.Rational{Num: 40, Den: 1}, release.Rational{Num: 3, Den: 2}, release.Ball(1000, 2)}, release.ZeroOut, 4, 1e-6, 0},                     // rho 0.3
		{correlated{release.Rational{Num: 40, Den: 1}, release.Rational{Num: 5, Den: 4}, release.Ball(1000, 4)}, release.AddRemove, 4, 1e-6, 7.7662166},           // rho 1
		{correlated{release.Rational{Num: 40, Den: 1}, release.Rational{Num: 5, Den: 4}, release.Ball(1000, 2)}, release.ReplaceOne, 4, 1e-6, 7.7662166},          // rho 1
		{correlated{release.Rational{Num: 400, Den: 1}, release.Rational{Num: 2, Den: 1}, release.OneHot()}, release.ReplaceOne, 1, 1e-8, 0.5235561},              // rho 0.005
		{correlated{release.Rational{Num: 1 << 20, Den: 1}, release.Rational{Num: 4, Den: 1}, release.Ball(1<<20, 512)}, release.ReplaceOne, 1, 1e-5, 10.7248241}, // rho 2
	} {
		g, err := epsilonOf(selfCompose{tc.e, tc.count}, tc.delta, tc.n)
		if err != nil {
			t.Fatal(err)
		}
		want := tc.want
		if want == 0 {
			z, err := epsilonOf(zcdp{0.3}, tc.delta, tc.n)
			if err != nil {
				t.Fatal(err)
			}
			want = z.Epsilon
		}
		if math.Abs(g.Epsilon-want) > 2e-6 || g.Theorem != correlatedTheorem || g.Method != "zcdp" || g.EpsilonLower != 0 {
			t.Errorf("%+v: %+v, want epsilon %v", tc.e, g, want)
		}
		if z, err := (Options{Method: ZCDPMethod}).epsilon(selfCompose{tc.e, tc.count}, tc.delta, tc.n); err != nil || math.Abs(z.Epsilon-want) > 2e-6 {
			t.Errorf("%+v by the sum of rhos: %v, %v", tc.e, z.Epsilon, err)
		}
		if r, err := (Options{Method: RDP}).epsilon(selfCompose{tc.e, tc.count}, tc.delta, tc.n); err != nil || r.Epsilon < want-1e-6 || r.Epsilon > want*1.01 {
			t.Errorf("%+v by Renyi divergences: %v, %v", tc.e, r.Epsilon, err)
		}
		list := []release.Release{release.Times(tc.count, release.CorrelatedGaussian{Variance: tc.e.Sigma2, Norm2: tc.e.Norm2, Contribution: tc.e.Contribution})}
		if c, err := Certify(list, tc.delta, tc.n); err != nil || c.Check() != nil {
			t.Errorf("%+v has no certificate: %v", tc.e, err)
		}
	}
}

// With one band it is never better than what is known of independent noise, and equal
// where that is zCDP too.
func TestCorrelatedOfOneBand(t *testing.T) {
	for _, c := range []release.Contribution{release.Interval(3), release.OneHot(), release.Ball(50, 9)} {
		for _, count := range []uint64{1, 7} {
			one := correlated{release.Rational{Num: 225, Den: 1}, release.Rational{Num: 1, Den: 1}, c}
			own := discreteGaussian{Sigma2: release.Rational{Num: 225, Den: 1}, Contribution: c}
			a, err1 := epsilonOf(selfCompose{one, count}, 1e-7, release.ReplaceOne)
			b, err2 := epsilonOf(selfCompose{own, count}, 1e-7, release.ReplaceOne)
			if err1 != nil || err2 != nil || a.Epsilon < b.Epsilon*(1-1e-9) || c.Shape == release.ShapeBall && a.Epsilon > b.Epsilon*(1+1e-9) {
				t.Errorf("%+v times %d: %v, %v; independent %v, %v", c, count, a.Epsilon, err1, b.Epsilon, err2)
			}
		}
	}
}

func TestCalibrateCorrelated(t *testing.T) {
	for _, tc := range []struct {
		epsilon, delta float64
		norm           release.Rational
		c              release.Contribution
		count          uint64
	}{
		{1, 1e-9, release.Rational{Num: 157, Den: 100}, release.Ball(1000, 1<<15), 4}, {0.1, 1e-6, release.Rational{Num: 1, Den: 1}, release.OneHot(), 1}, {8, 1e-5, release.Rational{Num: 9, Den: 2}, release.Interval(1), 2},
		{50, 1e-5, release.Rational{Num: 1, Den: 1}, release.Interval(1), 1},
	} {
		v, g, err := CalibrateCorrelated(tc.epsilon, tc.delta, tc.norm, tc.c, release.ReplaceOne, tc.count)
		if err != nil {
			t.Fatal(err)
		}
		at := func(f float64) float64 {
			less := release.Rational{Num: uint64(float64(v.Num) * f * 1024), Den: v.Den * 1024}
			g, err := epsilonOf(selfCompose{correlated{less, tc.norm, tc.c}, tc.count}, tc.delta, release.ReplaceOne)
			if err != nil {
				t.Fatal(err)
			}
			return g.Epsilon
		}
		if g.Epsilon > tc.epsilon || at(1) > tc.epsilon*(1+1e-11) || at(1-1e-5) < tc.epsilon {
			t.Errorf("%+v: sigma^2 = %v gives %v; a little less gives %v", tc, v, g.Epsilon, at(1-1e-5))
		}
	}
}

func TestCorrelatedRefusals(t *testing.T) {
	for _, e := range []correlated{
		{}, {Sigma2: release.Rational{Num: 1, Den: 1}, Contribution: release.OneHot()}, {release.Rational{Num: 1, Den: 1}, release.Rational{Num: 1, Den: 2}, release.OneHot()},
		{release.Rational{Num: 1, Den: 1}, release.Rational{Num: 1, Den: 1}, release.Interval(0.5)}, {release.Rational{Num: 1, Den: 1 << 40}, release.Rational{Num: 1, Den: 1}, release.OneHot()},
	} {
		if _, err := epsilonOf(e, 1e-6, release.ReplaceOne); !errors.Is(err, release.ErrParameter) {
			t.Errorf("%+v: %v", e, err)
		}
	}
	if _, _, err := CalibrateCorrelated(1, 1e-6, release.Rational{Num: 1, Den: 1}, release.OneHot(), release.ReplaceOne, 0); !errors.Is(err, release.ErrParameter) {
		t.Error(err)
	}
	if _, _, err := CalibrateCorrelated(0, 1e-6, release.Rational{Num: 1, Den: 1}, release.OneHot(), release.ReplaceOne, 1); !errors.Is(err, release.ErrParameter) {
		t.Error(err)
	}
}
