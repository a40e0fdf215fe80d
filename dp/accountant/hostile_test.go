package accountant

import (
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/starling-agg/starling/dp/release"
)

// hostile calls f with copies of e, each with one number in it replaced by an odd one.
func hostile(e event, f func(event)) {
	var walk func(v reflect.Value, rebuild func(reflect.Value) event)
	walk = func(v reflect.Value, rebuild func(reflect.Value) event) {
		switch v.Kind() {
		case reflect.Interface:
			walk(v.Elem(), rebuild)
		case reflect.Struct:
			for i := range v.NumField() {
				if !v.Type().Field(i).IsExported() {
					continue
				}
				walk(v.Field(i), func(x reflect.Value) event {
					out := reflect.New(v.Type()).Elem()
					out.Set(v)
					out.Field(i).Set(x)
					return rebuild(out)
				})
			}
		case reflect.Float64:
			for _, x := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, -1, 1e308, 5e-324, 1e-12, 2} {
				f(rebuild(reflect.ValueOf(x)))
			}
		case reflect.Uint64:
			for _, x := range []uint64{0, 1, math.MaxUint64, 1 << 53, 1e12} {
				f(rebuild(reflect.ValueOf(x)))
			}
		case reflect.Int:
			for _, x := range []int{-1, 0, math.MaxInt} {
				f(rebuild(reflect.ValueOf(x)))
			}
		}
	}
	walk(reflect.ValueOf(e), func(x reflect.Value) event { return x.Interface().(event) })
}

// Whatever number comes in, what comes out is a typed error or a guarantee that makes
// sense. Every 31st question is asked but where CI=true.
func TestHostileNumbers(t *testing.T) {
	typed := func(err error) bool {
		return errors.Is(err, release.ErrParameter) || errors.Is(err, release.ErrUnsupported) || errors.Is(err, release.ErrNoGuarantee)
	}
	sane := func(what any, g release.Guarantee, err error) {
		t.Helper()
		switch {
		case err != nil && !typed(err):
			t.Errorf("%+v: an untyped error: %v", what, err)
		case err == nil && !(g.Epsilon >= 0 && g.Epsilon <= release.MaxEpsilon && g.EpsilonLower <= g.Epsilon && g.Delta >= g.DeltaLower && g.Delta <= 1):
			t.Errorf("%+v: %+v", what, g)
		}
	}
	asked, stride := 0, 31 // a prime, so that each odd number comes up
	if patient() {
		stride = 1
	}
	for _, base := range []event{
		gauss(2), lap(2), randomizedResponse{1, 3}, approxDP{.1, 1e-9}, zcdp{.1}, discrete(100, 1, release.OneHot()), selfCompose{gauss(2), 5},
		discreteGaussian{release.Rational{Num: 100, Den: 1}, release.Interval(3), 2}, discreteLaplace{release.Rational{Num: 10, Den: 1}, release.Interval(3)}, poissonSample{gauss(2), .1},
		selfCompose{poissonSample{gauss(2), .1}, 5}, fixedSample{gauss(2), .1}, dummyCount{100, .5}, allocation{gauss(2), 10, 1},
		shuffled{release.AnyReport(1), 100},
	} {
		hostile(base, func(e event) {
			if asked++; asked%stride != 0 {
				return
			}
			g, err := Options{Tolerance: .1}.epsilon(e, 1e-6, release.AddRemove)
			sane(e, g, err)
			g, err = Options{Tolerance: .1}.delta(e, 1, release.AddRemove)
			sane(e, g, err)
			g, err = Options{Tolerance: .1}.epsilon(e, 1e-6, release.ReplaceOne)
			sane(e, g, err)
		})
	}
	if asked < 150 {
		t.Errorf("only %d questions", asked)
	}
	odd := []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 5e-324, 1e-300, .5, 1, 1e308}
	for _, x := range odd {
		for _, y := range odd {
			number := func(what string, v float64, err error) {
				t.Helper()
				if err != nil && !typed(err) || err == nil && !(v >= 0 && !math.IsInf(v, 1)) {
					t.Errorf("%s(%v, %v): %v, %v", what, x, y, v, err)
				}
			}
			g, err := AdvancedComposition(x, y, 10, .1, release.AddRemove)
			sane("advanced composition", g, err)
			g, err = PoissonSampledApproxDP(x, y, .1)
			sane("sampled", g, err)
			g, err = PoissonSampledApproxDP(1, x, y)
			sane("sampled", g, err)
			s, err := ClassicalGaussianSigma(x, y, 1)
			number("classical sigma", s, err)
			s, err = SimpleZCDPEpsilon(x, y)
			number("simple zCDP", s, err)
			s, g, err = CalibrateGaussian(x, y, release.Signed(1), release.AddRemove, 1)
			number("calibrated sigma", s, err)
			sane("calibrated", g, err)
			_, g, err = CalibrateDiscreteGaussian(x, y, release.OneHot(), release.ReplaceOne, 1)
			sane("calibrated", g, err)
			s, err = renyiDivergence(gaussian{x, release.Signed(1)}, y, release.AddRemove)
			number("Renyi divergence", s, err)
			if _, err := Certify([]release.Release{release.One(release.Gaussian{Sigma: x, Contribution: release.Signed(1)})}, y, release.AddRemove); err != nil && !typed(err) {
				t.Errorf("certificate of sigma %v at %v: %v", x, y, err)
			}
		}
	}
}
