package account

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/search"
	"github.com/starling-agg/starling/recipe"
)

// A NoiseKind names a family of server noise for [Calibrate].
type NoiseKind string

const (
	GaussianNoise NoiseKind = "discrete-gaussian"
	LaplaceNoise  NoiseKind = "discrete-laplace"
)

// CorrelatedNoise is the kind of [CorrelatedGaussian], for [Options].
const CorrelatedNoise NoiseKind = "correlated-gaussian"

// Calibrate returns the least noise of a kind, rounded up, under which rounds releases of
// the query are (epsilon, delta)-differentially private for replace-one neighbours when
// one server is honest. Each server draws all of it.
func Calibrate(q recipe.Query, kind NoiseKind, epsilon, delta recipe.Decimal, rounds uint32) (recipe.Noise, error) {
	eps, dlt := epsilon.FloatDown(), delta.FloatDown()
	if !(eps > 0) || !(dlt > 0 && dlt < 1) || rounds == 0 {
		return nil, &recipe.InvalidError{Field: "claim", Problem: "needs epsilon above 0, delta between 0 and 1, and at least 1 round"}
	}
	c, err := Contribution(q)
	if err != nil {
		return nil, err
	}
	switch kind {
	case GaussianNoise:
		v, _, err := accountant.CalibrateDiscreteGaussian(eps, dlt, c, release.ReplaceOne, uint64(rounds))
		if err != nil {
			return nil, fmt.Errorf("recipe: calibrate: %w", err)
		}
		return recipe.EachDraws(v), nil
	case LaplaceNoise:
		return calibrateLaplace(c, eps, delta, rounds)
	}
	return nil, &recipe.InvalidError{Field: "noise", Problem: fmt.Sprintf("kind %q is not %q or %q", kind, GaussianNoise, LaplaceNoise)}
}

// calibrateLaplace searches the scale in units of 2^-16, between a scale that surely
// fails or is the least, and one that surely holds.
func calibrateLaplace(c release.Contribution, epsilon float64, delta recipe.Decimal, rounds uint32) (recipe.Noise, error) {
	const unit = 1 << 16
	var failure error
	holds := func(units uint64) bool {
		m := release.DiscreteLaplace{Scale: release.Rational{Num: units, Den: unit}, Contribution: c}
		l, _, err := loss([]release.Release{release.One(m)}, rounds, delta, 0, release.ReplaceOne)
		if err != nil {
			failure = err
			return false
		}
		return l.Epsilon <= epsilon
	}
	low, high := uint64(0), uint64(unit)
	if s, err := c.Sensitivity(release.ReplaceOne); err == nil { // nobody accounts for losses above 500
		high = max(high, uint64(s.Max/256*unit))
	}
	for !holds(high) {
		if failure != nil {
			return nil, failure
		}
		if low, high = high, 2*high; high > 1<<56 {
			return nil, fmt.Errorf("recipe: calibrate: %w", release.ErrNoGuarantee)
		}
	}
	for high-low > 1 {
		mid := low + (high-low)/2
		if holds(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	if failure != nil {
		return nil, failure
	}
	scale, err := recipe.NewRational(high, unit)
	return recipe.DiscreteLaplace{Scale: scale}, err
}

// CalibrateCorrelated is [Calibrate] for correlated noise: rounds are those that one
// device takes part in.
func CalibrateCorrelated(q recipe.Query, s correlated.Series, epsilon, delta recipe.Decimal, rounds uint32) (recipe.CorrelatedGaussian, error) {
	none := recipe.CorrelatedGaussian{}
	eps, dlt := epsilon.FloatDown(), delta.FloatDown()
	if !(eps > 0) || !(dlt > 0 && dlt < 1) || rounds == 0 {
		return none, &recipe.InvalidError{Field: "claim", Problem: "needs epsilon above 0, delta between 0 and 1, and at least 1 round"}
	}
	if err := s.Validate(); err != nil {
		return none, &recipe.InvalidError{Field: "noise", Problem: fmt.Sprintf("cannot be drawn: %v", err)}
	}
	c, err := Contribution(q)
	if err != nil {
		return none, err
	}
	n := recipe.CorrelatedGaussian{Series: s}
	v, _, err := accountant.CalibrateCorrelated(eps, dlt, n.Norm2(), c, release.ReplaceOne, uint64(rounds))
	if err != nil {
		return none, fmt.Errorf("recipe: calibrate: %w", err)
	}
	n.Variance = v
	return n, nil
}

// calibrate is [Calibrate] for the recipe as it stands, with the noise divided as the
// options say. free is that of a [situation].
func (r subject) calibrate(o *Options, claim recipe.ApproxDP, free bool) (recipe.Noise, error) {
	if o.Share == recipe.DrawsHalf && o.Kind != GaussianNoise {
		return nil, &recipe.InvalidError{Field: "noise.share", Problem: "is half, which is for discrete-gaussian noise"}
	}
	copied := *r.Recipe
	trial := subject{&copied}
	loss := func(n recipe.Noise) (recipe.Loss, error) {
		trial.Noise = n
		s := Situation{Servers: trial.HonestServers(claim), Hidden: r.Amplified(), Free: free}
		l, _, err := trial.proved(s, claim.Delta, claim.Rounds, trial.Neighbours())
		return l, err
	}
	if o.Kind == CorrelatedNoise {
		return CalibrateCorrelated(r.Query, o.Series, claim.Epsilon, claim.Delta, claim.Rounds)
	}
	if !r.Amplified() {
		n, err := Calibrate(r.Query, o.Kind, claim.Epsilon, claim.Delta, claim.Rounds)
		if err != nil || o.Share == recipe.DrawsAll {
			return n, err
		}
		return divide(n.(recipe.DiscreteGaussian), claim, loss)
	}
	c, err := Contribution(r.Query)
	if err != nil {
		return nil, err
	}
	sensitivity, err := c.Sensitivity(release.AddRemove)
	if err != nil {
		return nil, err
	}
	unit, size, lowest, highest := uint64(1<<10), 1.0, 0.3, float64(1<<32)
	// whose bound may be any, and whose accounting needs some noise to round
	if c.Shape == release.ShapeBall || c.Shape == release.ShapeSimplex && o.Kind == GaussianNoise {
		size, lowest = sensitivity.L2*sensitivity.L2, 16
		highest = min(highest*size, 1<<60)
		if highest > 1<<52 {
			unit = 1
		}
	}
	var make func(units uint64) (recipe.Noise, error)
	switch o.Kind {
	case GaussianNoise:
		make = func(units uint64) (recipe.Noise, error) {
			v, err := recipe.NewRational(units, unit)
			return recipe.DiscreteGaussian{Variance: v, Share: o.Share}, err
		}
	case LaplaceNoise:
		make = func(units uint64) (recipe.Noise, error) {
			v, err := recipe.NewRational(units, unit)
			return recipe.DiscreteLaplace{Scale: v}, err
		}
	default:
		return nil, &recipe.InvalidError{Field: "noise", Problem: fmt.Sprintf("kind %q is not %q or %q", o.Kind, GaussianNoise, LaplaceNoise)}
	}
	x, ok, err := search.Least(search.Options{
		Guess: 4 * size, Low: lowest, High: highest, Precision: 1e-3, Budget: claim.Epsilon.FloatDown(),
	}, func(x float64) (float64, error) {
		n, err := make(uint64(math.Ceil(x * float64(unit))))
		if err != nil {
			return 0, err
		}
		l, err := loss(n)
		return l.Epsilon, err
	})
	if err != nil {
		return nil, fmt.Errorf("recipe: calibrate: %w", err)
	}
	if !ok {
		return nil, fmt.Errorf("recipe: calibrate: %w", release.ErrNoGuarantee)
	}
	return make(uint64(math.Ceil(x * float64(unit))))
}

// divide turns noise of which each server draws all into noise of which each draws half,
// as strong for the servers that the claim needs honest: one honest server draws the
// stated variance, or two draw it together, but that their sum is no discrete Gaussian to
// the last digit.
func divide(n recipe.DiscreteGaussian, claim recipe.ApproxDP, loss func(recipe.Noise) (recipe.Loss, error)) (recipe.Noise, error) {
	n.Share = recipe.DrawsHalf
	if claim.HonestServers < 2 {
		v, err := recipe.NewRational(n.Variance.Num, n.Variance.Den)
		if err != nil {
			return nil, err
		}
		if v.Den%2 == 0 {
			v.Den /= 2
		} else if v.Num *= 2; v.Num < n.Variance.Num {
			return nil, fmt.Errorf("recipe: calibrate: %w", release.ErrNoGuarantee)
		}
		n.Variance = v
		return n, nil
	}
	for range 40 {
		l, err := loss(n)
		if err != nil || l.Epsilon <= claim.Epsilon.FloatDown() {
			return n, err
		}
		more := n.Variance.Num + max(1, n.Variance.Num>>16)
		if n.Variance, err = recipe.NewRational(more, n.Variance.Den); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("recipe: calibrate: %w", release.ErrNoGuarantee)
}
