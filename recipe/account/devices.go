package account

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/search"
	"github.com/starling-agg/starling/recipe"
)

// noisyVectors returns what devices add to what, if they add noise of their own to vectors.
func (r subject) noisyVectors() (z recipe.Gaussian, q recipe.Vector, ok bool) {
	if z, ok = r.Randomizer.(recipe.Gaussian); ok {
		q, ok = r.Vector()
	}
	return z, q, ok
}

// provedBound is false for recipes of which as much is proved as is answered, and for those
// that are not valid.
func (r subject) provedBound() (recipe.ProvedBound, bool) {
	bound, answer, ok := r.Randomizer.Proves(r.Query)
	if !ok || !r.Path.Proofs() {
		return recipe.ProvedBound{}, false
	}
	b := recipe.ProvedBound{Bound: bound, Answer: answer, Ratio: float64(bound) / float64(answer)}
	claim, claimed := r.Claim.(recipe.ApproxDP)
	x, err := r.Disclosure(recipe.Situation{Servers: 1, Hidden: r.Amplified()}, claim.Delta, max(1, claim.Rounds))
	if err != nil {
		return b, false
	}
	m, shuffled := x.Releases[0].Mechanism.(release.Shuffled)
	if !shuffled {
		b.Redraw, b.Delta = x.Odds, x.Redrawn
		return b, true
	}
	b.Redraw = m.Redraw
	of := claim.Delta.FloatDown() / float64(max(1, claim.Rounds)) * recipe.ShuffleShare
	if e, err := r.shuffled(m, of); err == nil && claimed {
		b.Delta = e.Delta - of
	}
	return b, true
}

// withDeviceNoise fills in what Options leave to [New] about noise of the devices' own:
// the clip, the variance and what is proved.
func withDeviceNoise(o *Options) error {
	if z, ok := o.Randomizer.(recipe.GroupRandomizer); ok {
		asked, err := withAsked(o, z)
		if err != nil {
			return err
		}
		o.Randomizer = asked
	}
	if z, ok := o.Randomizer.(recipe.LocalRandomizer); ok {
		o.Randomizer, o.Query = z.Fit(o.Query, recipe.TailOdds(o.MinBatch, o.Rounds, o.delta().FloatDown()))
		return nil
	}
	if z, ok := o.Randomizer.(recipe.Cloak); ok {
		return withCloak(o, z)
	}
	z, ok := o.Randomizer.(recipe.Gaussian)
	q, vector := o.Query.(recipe.Vector)
	if !ok || !vector || z.Clip != 0 {
		return nil
	}
	z.Clip = q.Bound
	if z.Variance == (recipe.Rational{}) {
		return calibrateDevices(o, q, z)
	}
	return boundFor(o, q, z)
}

// boundFor sets randomizer and query with the least bound for the noise. Where a batch is
// so large, or delta so small, that redraws would cost more than a hundredth of delta,
// they are made rarer.
func boundFor(o *Options, q recipe.Vector, z recipe.Gaussian) error {
	if !z.Variance.Valid() || z.Variance.Float() < recipe.MinDeviceVariance || q.Dimension < 1 || q.Dimension > recipe.MaxElements {
		o.Randomizer = z // for Validate to say why
		return nil
	}
	bits := math.Ceil(-math.Log2(recipe.TailOdds(o.MinBatch, o.Rounds, o.delta().FloatDown())))
	bound, err := z.NoisyBound(q.Dimension, int(min(bits, 900)))
	if err != nil {
		return &recipe.InvalidError{Field: "randomizer.variance", Problem: fmt.Sprintf("is so large that no bound can be proved: %v", err)}
	}
	q.Bound = bound
	o.Query, o.Randomizer = q, z
	return nil
}

// calibrateDevices finds the least variance of a device at which the claim holds.
func calibrateDevices(o *Options, q recipe.Vector, z recipe.Gaussian) error {
	if o.Epsilon == (recipe.Decimal{}) {
		return &recipe.InvalidError{Field: "randomizer.variance", Problem: "is missing, and there is no epsilon to calibrate it to"}
	}
	const digits = 1 << 6
	set := func(x float64) (*Options, error) {
		t := *o
		v, err := recipe.NewRational(uint64(math.Ceil(x*digits)), digits)
		if err != nil {
			return nil, err
		}
		z.Variance = v
		return &t, boundFor(&t, q, z)
	}
	// Of a sample a proof is by distributions on a grid, which round.
	budget := o.Epsilon.FloatDown()
	if o.Relay != nil && o.Participation != nil {
		budget *= 1 - near
	}
	clip := float64(z.Clip)
	draws := float64(max(o.MinBatch, 2) - 1)
	x, ok, err := search.Least(search.Options{
		Guess: math.Max(recipe.MinDeviceVariance, clip*clip/draws), Low: recipe.MinDeviceVariance, High: 1 << 52, Precision: 1e-3, Budget: budget,
	}, func(x float64) (float64, error) {
		t, err := set(x)
		if err != nil {
			return 0, err
		}
		return t.deviceLoss()
	})
	if err != nil {
		return fmt.Errorf("recipe: calibrate: %w", err)
	}
	if !ok {
		return fmt.Errorf("recipe: calibrate: %w", release.ErrNoGuarantee)
	}
	t, err := set(x)
	if err == nil {
		o.Query, o.Randomizer = t.Query, t.Randomizer
	}
	return err
}

// deviceLoss is epsilon of the options' recipe while it is calibrated.
func (o *Options) deviceLoss() (float64, error) {
	r := subject{&recipe.Recipe{
		Query: o.Query, Randomizer: o.Randomizer, Participation: o.Participation, Path: o.Path, Noise: recipe.NoNoise{}, MinBatch: o.MinBatch,
		Rate: o.Rate, Dummies: o.Dummies, Cover: o.Cover, Relay: o.Relay, Targeting: o.Targeting,
	}}
	if r.Participation == nil {
		r.Participation = recipe.Always{}
	}
	s := recipe.Situation{Servers: 1, Hidden: r.Amplified()}
	if s.Hidden && r.Dummies == nil {
		// Those that New chooses for this noise.
		if r.Rate == nil {
			return 0, &recipe.InvalidError{Field: "rate", Problem: "is missing: sampled recipes say how many devices decide"}
		}
		if err := r.defaultDummies(recipe.Rational{Num: 1, Den: 2}); err != nil {
			return 0, err
		}
		if err := r.settleDummies(nil); err != nil {
			return 0, err
		}
	}
	l, _, err := r.proved(s, o.delta(), max(1, o.Rounds), r.Neighbours())
	return l.Epsilon, err
}
