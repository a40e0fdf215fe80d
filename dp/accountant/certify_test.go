package accountant

import (
	"errors"
	"testing"

	"github.com/starling-agg/starling/dp/certificate"
	"github.com/starling-agg/starling/dp/release"
)

func TestCertify(t *testing.T) {
	for _, tc := range []struct {
		e     Event
		delta float64
		n     release.Neighbours
	}{
		{gauss(1), 1e-6, release.AddRemove},
		{SelfCompose{gauss(5), 40}, 1e-9, release.ReplaceOne},
		{sampled(5.1, .02, 2500), 1e-8, release.AddRemove},
		{sampled(1, .01, 1000), 1e-5, release.ZeroOut},
		{SelfCompose{lap(3), 20}, 1e-6, release.AddRemove},
		{SelfCompose{Sampled{lap(1), .1, CountHidden}, 50}, 1e-6, release.AddRemove},
		{SelfCompose{RandomizedResponse{.5, 2}, 30}, 1e-6, release.ReplaceOne},
		{discrete(100, 1, release.OneHot()), 1e-8, release.ReplaceOne},
		{SelfCompose{discrete(25, 1, release.Interval(3)), 10}, 1e-7, release.ZeroOut},
		{Compose{sampled(2, .05, 50), SelfCompose{lap(20), 5}, ApproxDP{.1, 0}}, 1e-7, release.AddRemove},
		{SelfCompose{ApproxDP{.1, 1e-9}, 100}, 1e-6, release.ReplaceOne},
		{SelfCompose{RandomizedResponse{1, 3}, 7}, 1e-6, release.ReplaceOne},
		{Compose{ZCDP{.1}, SelfCompose{ZCDP{.01}, 5}}, 1e-6, release.AddRemove},
		{SelfCompose{discrete(655360*655360, 1, release.Ball(1000, 65536)), 100}, 1e-6, release.ZeroOut},
		{SelfCompose{discrete(1<<40, 1, release.Vector(100, 1<<10)), 10}, 1e-8, release.ReplaceOne},
		{discrete(1, 2, release.OneHot()), 1e-5, release.ReplaceOne},
		{DiscreteGaussian{Sigma2: release.Rational{Num: 200, Den: 3}, Contribution: release.OneHot(), Honest: 2}, 1e-8, release.ReplaceOne},
		{DiscreteLaplace{release.Rational{Num: 10, Den: 1}, release.Interval(7)}, 1e-6, release.ReplaceOne},
		{SelfCompose{DiscreteLaplace{release.Rational{Num: 10, Den: 1}, release.OneHot()}, 50}, 1e-6, release.ReplaceOne},
		{SelfCompose{FixedSample{gauss(3), .05}, 200}, 1e-6, release.ReplaceOne},
		{FixedSample{gauss(1), .1}, 1e-6, release.ReplaceOne},
		{Sampled{discrete(100, 1, release.Interval(1)), .1, CountHidden}, 1e-8, release.AddRemove},
		{SelfCompose{Sampled{discrete(100, 1, release.Interval(1)), .1, CountHidden}, 300}, 1e-8, release.ZeroOut},
		{SelfCompose{Sampled{RandomizedResponse{2, 2}, .1, CountHidden}, 20}, 1e-6, release.AddRemove},
		// Beside the count of dummies, of few and of many.
		{Sampled{Compose{DummyCount{50000, .01}, discrete(9, 1, release.Interval(1))}, .1, CountHidden}, 1e-6, release.AddRemove},
		{Sampled{Compose{DummyCount{25000, .05}, discrete(16, 1, release.OneHot())}, .5, CountHidden}, 1e-9, release.AddRemove},
		{Sampled{Compose{discrete(400, 1, release.Interval(7)), DummyCount{1e7, .1}}, .5, CountHidden}, 1e-9, release.ZeroOut},
		{SelfCompose{Sampled{Compose{DummyCount{30000, .02}, discrete(9, 1, release.OneHot())}, .2, CountHidden}, 30}, 1e-8, release.AddRemove},
		{SelfCompose{Sampled{Compose{DummyCount{1e6, .1}, discrete(900, 1, release.Interval(3))}, .01, CountHidden}, 1000}, 1e-8, release.AddRemove},
		{Sampled{Compose{DummyCount{5000, .1}, DiscreteLaplace{release.Rational{Num: 5, Den: 2}, release.Interval(1)}}, .3, CountHidden}, 1e-6, release.AddRemove},
		{SelfCompose{Sampled{Compose{DummyCount{5000, .1}, ApproxDP{.8, 1e-9}}, .3, CountHidden}, 5}, 1e-6, release.AddRemove},
		{Sampled{Compose{DummyCount{40, .5}, discrete(4, 1, release.Interval(1))}, .1, CountHidden}, 1e-3, release.AddRemove},
		{Sampled{Compose{DummyCount{50000, .01}, discrete(2, 1, release.Vector(3, 1))}, .01, CountHidden}, 1e-6, release.AddRemove},
		// That all 57 send a dummy has a probability below 10^-17, and must not get lost.
		{SelfCompose{Sampled{Compose{DummyCount{57, .5}, discrete(1667, 256, release.Interval(1))}, .5, CountHidden}, 2}, 1e-6, release.AddRemove},
		// Vectors of bounded norm, and two servers' noise.
		{SelfCompose{Sampled{Compose{DummyCount{5000, .1}, discrete(10000, 1, release.Ball(1000, 100))}, .1, CountHidden}, 3}, 1e-6, release.AddRemove},
		{SelfCompose{FixedSample{discrete(10000, 1, release.Ball(1000, 20)), .1}, 30}, 1e-6, release.ReplaceOne},
		{SelfCompose{Sampled{DiscreteGaussian{Sigma2: release.Rational{Num: 20, Den: 1}, Contribution: release.MultiHot(3), Honest: 2}, .1, CountHidden}, 10}, 1e-6, release.AddRemove},
		// Shuffled.
		{Shuffled{AnyReport(4), 1e4}, 1e-10, release.ReplaceOne},
		{Shuffled{ReportOf(RandomizedResponse{1, 2}), 1e5}, 1e-6, release.ReplaceOne},
		{Shuffled{ColumnsOf(RAPPOR{4}), 1e6}, 1e-10, release.ZeroOut},
		{Shuffled{ReportOf(RandomizedResponse{4, 10}), 1e4}, 1e-10, release.ReplaceOne},
		{Shuffled{ReportOf(RandomizedResponse{2, 16}), 2e4}, 1e-8, release.ReplaceOne},
		// Allocated.
		{Allocated{ApproxDP{1, 0}, 1000, 1, CountHidden}, 1e-6, release.AddRemove},
		{Allocated{RandomizedResponse{.5, 2}, 100, 1, CountHidden}, 1e-6, release.ZeroOut},
	} {
		c, err := Certify(tc.e, tc.delta, tc.n)
		if err != nil {
			t.Errorf("%+v: %v", tc.e, err)
			continue
		}
		want := epsilon(t, tc.e, tc.delta, tc.n)
		if c.Epsilon < want.EpsilonLower || c.Epsilon > want.Epsilon*1.01+1e-6 || c.Delta != tc.delta || c.Neighbours != release.Neighbours(tc.n) {
			t.Errorf("%+v: certified (%v, %v), want %v", tc.e, c.Epsilon, c.Delta, want)
		}
		// It survives the wire, and stops holding for a little less.
		b, err := c.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		var back certificate.Certificate
		if err := back.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		if err := back.Check(); err != nil {
			t.Errorf("%+v: after the wire: %v", tc.e, err)
		}
		back.Epsilon = want.EpsilonLower * 0.999
		var e *certificate.Error
		if err := back.Check(); !errors.As(err, &e) {
			t.Errorf("%+v: epsilon below what can be true: %v", tc.e, err)
		}
		if len(b) > 30_000 {
			t.Errorf("%+v: %d bytes", tc.e, len(b))
		}
		t.Logf("%d bytes, epsilon %.5f of %.5f", len(b), c.Epsilon, want.Epsilon)
	}
	several := Allocated{RandomizedResponse{1, 2}, 20, 3, CountHidden} // has no certificate, least of all that of one pick
	for _, e := range []Event{allocated(1, 1, 10), several, Sampled{gauss(1), .1, CountPublic}, Compose{ZCDP{.1}, lap(1)}, FixedSample{gauss(1), .1}} {
		if _, err := Certify(e, 1e-6, release.AddRemove); !errors.Is(err, release.ErrUnsupported) {
			t.Errorf("%+v: %v", e, err)
		}
	}
}
