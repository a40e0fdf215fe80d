package account

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/search"
	"github.com/starling-agg/starling/recipe"
)

// A NoiseKind names a family of server noise for [Calibrate].
type NoiseKind string

const (
	GaussianNoise NoiseKind = "discrete-gaussian"
	LaplaceNoise  NoiseKind = "discrete-laplace"
	// CorrelatedNoise is the kind of [recipe.CorrelatedGaussian], for [Options].
	CorrelatedNoise NoiseKind = "correlated-gaussian"
)

// Calibrate returns the least noise of a kind, rounded up, under which rounds releases of
// the query are (epsilon, delta)-differentially private for replace-one neighbours when
// one server is honest. Each server draws all of it.
func Calibrate(q recipe.Query, kind NoiseKind, epsilon, delta recipe.Decimal, rounds uint32) (recipe.Noise, error) {
	n, err := recipe.NoiseNamed(string(kind))
	if err != nil {
		return nil, err
	}
	c, err := Contribution(q)
	if err != nil {
		return nil, err
	}
	return calibrated(n, c, release.ReplaceOne, epsilon, delta, rounds)
}

// calibrated is [Calibrate] for noise of which the parameter is left to find.
func calibrated(n recipe.Noise, c release.Contribution, of release.Neighbours, epsilon, delta recipe.Decimal, rounds uint32) (recipe.Noise, error) {
	eps, dlt := epsilon.FloatDown(), delta.FloatDown()
	if !(eps > 0) || !(dlt < 1) || dlt == 0 && !n.Pure() || rounds == 0 {
		return nil, &recipe.InvalidError{Field: "claim", Problem: "needs epsilon above 0, delta below 1, and above 0 but for discrete-laplace noise, and at least 1 round"}
	}
	m, err := n.Mechanism(c, 1)
	if err != nil {
		return nil, err
	}
	v, err := accountant.Calibrate(m, eps, dlt, of, uint64(rounds))
	if err != nil {
		return nil, fmt.Errorf("recipe: calibrate: %w", err)
	}
	return n.Sized(v), nil
}

// unsized is noise of the kind that the options name, of which the parameter is left to
// find.
func (o *Options) unsized() (recipe.Noise, error) {
	if o.Share == recipe.DrawsHalf && o.Kind != GaussianNoise {
		return nil, &recipe.InvalidError{Field: "noise.share", Problem: "is half, which is for discrete-gaussian noise"}
	}
	if o.Kind != CorrelatedNoise {
		return recipe.NoiseNamed(string(o.Kind))
	}
	if err := o.Series.Validate(); err != nil {
		return nil, &recipe.InvalidError{Field: "noise", Problem: fmt.Sprintf("cannot be drawn: %v", err)}
	}
	return recipe.CorrelatedGaussian{Series: o.Series}, nil
}

// calibrate is [Calibrate] for the recipe as it stands, with the noise divided as the
// options say. free is that of a [recipe.Situation].
func (r subject) calibrate(o *Options, claim recipe.ApproxDP, free bool) (recipe.Noise, error) {
	none, err := o.unsized()
	if err != nil {
		return nil, err
	}
	copied := *r.Recipe
	trial := subject{&copied}
	if o.Views != nil {
		trial.Claim = claim // views cost by how many of a person's reports may meet
	}
	loss := func(n recipe.Noise) (recipe.Loss, error) {
		trial.Noise, trial.Views = n, o.views(n)
		s := recipe.Situation{Servers: trial.HonestServers(claim), Hidden: r.Amplified(), Free: free}
		l, _, err := trial.proved(s, claim.Delta, claim.Rounds, trial.Neighbours())
		return l, err
	}
	if !r.Amplified() || o.Kind == CorrelatedNoise {
		c, err := r.contribution()
		if err != nil {
			return nil, err
		}
		n, err := calibrated(none, c, r.KnownNeighbours(), claim.Epsilon, claim.Delta, claim.Rounds)
		if err == nil && o.Views != nil {
			n, err = r.calibrateViews(o, n, claim, loss)
		}
		if err != nil || o.Share == recipe.DrawsAll {
			return n, err
		}
		return divide(n.(recipe.DiscreteGaussian), claim, loss)
	}
	if half, ok := none.(recipe.DiscreteGaussian); ok {
		half.Share = o.Share
		none = half
	}
	c, err := r.contribution()
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
	sized := func(x float64) (recipe.Noise, error) {
		v, err := recipe.NewRational(uint64(math.Ceil(x*float64(unit))), unit)
		return none.Sized(v), err
	}
	x, ok, err := search.Least(search.Options{
		Guess: 4 * size, Low: lowest, High: highest, Precision: 1e-3, Budget: claim.Epsilon.FloatDown(),
	}, func(x float64) (float64, error) {
		n, err := sized(x)
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
	return sized(x)
}

// calibrateViews finds the noise at which all views together hold the claim, from the least
// at which a round's own releases do. Views that state their noise keep it.
func (r subject) calibrateViews(o *Options, least recipe.Noise, claim recipe.ApproxDP, loss func(recipe.Noise) (recipe.Loss, error)) (recipe.Noise, error) {
	trial := *r.Recipe
	trial.Noise, trial.Views, trial.Claim = least, o.views(least), claim
	if err := trial.Sound(true); err != nil {
		return nil, err
	}
	most := 8.0 // by how much zCDP may be behind the accounting of one release, and more
	for _, v := range o.Views.Wider {
		most += 8 * float64(max(1, min(v.Rounds, claim.Rounds)))
	}
	from, unit := least.Parameter().Float(), 1024.0
	if !(from*most*unit < 1<<62) {
		unit = 1
	}
	sized := func(x float64) (recipe.Noise, error) {
		v := math.Ceil(from * x * unit)
		if !(v < 1<<62) {
			return nil, fmt.Errorf("recipe: calibrate: %w", release.ErrNoGuarantee)
		}
		p, err := recipe.NewRational(uint64(v), uint64(unit))
		return least.Sized(p), err
	}
	x, ok, err := search.Least(search.Options{
		Guess: min(most, float64(1+len(o.Views.Wider))), Low: 1, High: most, Precision: 1e-3, Budget: claim.Epsilon.FloatDown(),
	}, func(x float64) (float64, error) {
		n, err := sized(x)
		if err != nil {
			return 0, err
		}
		l, err := loss(n)
		return l.Epsilon, err
	})
	if err == nil && !ok {
		err = release.ErrNoGuarantee
	}
	if err != nil {
		return nil, fmt.Errorf("recipe: calibrate: noise for all views: %w", err)
	}
	return sized(x)
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
