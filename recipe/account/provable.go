package account

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/recipe"
)

// A recipe that is made here has a certificate of exactly what it claims. The checker
// rounds outward more than the accountant, so noise that is calibrated to a claim, and a
// claim that is computed from noise, are settled by what a certificate proves, a little
// above what the accountant says.

// claimRoom is by how much, relative to what the accountant says, a computed claim may be
// above it.
var claimRoom = []float64{2e-3, 2e-2}

// proves returns the least epsilon that a proof of the claim shows, as the recipe stands.
func (r subject) proves(claim recipe.ApproxDP, limit float64) (float64, error) {
	copied := *r.Recipe
	copied.Claim = claim
	trial := subject{&copied}
	statements, err := trial.Statements()
	if err != nil {
		return 0, err
	}
	c, err := trial.prove(statements[0], limit, func() (recipe.Loss, error) { return recipe.Loss{Epsilon: limit}, nil })
	if err != nil {
		return 0, err
	}
	if more := statements[0].More(); more > 0 {
		return outward.Above(c.Epsilon + more), nil
	}
	return c.Epsilon, nil
}

// settleNoise returns noise that was calibrated to the claim, or as little more as a
// certificate of the claim needs.
func (r subject) settleNoise(o *Options, n recipe.Noise, claim recipe.ApproxDP) (recipe.Noise, error) {
	copied := *r.Recipe
	trial := subject{&copied}
	// The share by which noise grows first: about what a formula rounds, or a grid does.
	bits := 16
	if r.Amplified() || o.Views != nil {
		bits = 11
	}
	var why error
	for trial.Noise = n; bits >= 5; bits-- {
		trial.Views = o.views(trial.Noise)
		if _, why = trial.proves(claim, claim.Epsilon.FloatDown()); why == nil {
			return trial.Noise, nil
		} else if !errors.Is(why, recipe.ErrNoCertificate) {
			break
		}
		var err error
		if trial.Noise, err = n.Stronger(math.Ldexp(1, -bits)); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("recipe: calibrate: %w", why)
}

// settleClaim returns the claim with the epsilon of a proof, rounded up, where what the
// accountant says, rounded up, is not proved.
func (r subject) settleClaim(claim recipe.ApproxDP, computed float64) (recipe.ApproxDP, error) {
	_, err := r.proves(claim, claim.Epsilon.FloatDown())
	for _, room := range claimRoom {
		if err == nil || !errors.Is(err, recipe.ErrNoCertificate) {
			break
		}
		// A claim has to be there for a proof to be of it; this one is settled below.
		wide := claim
		if wide.Epsilon, err = recipe.DecimalAbove(outward.Widened(computed, room), 6); err != nil {
			return claim, err
		}
		var least float64
		if least, err = r.proves(wide, wide.Epsilon.FloatDown()); err == nil {
			claim.Epsilon, err = recipe.DecimalAbove(least, 4)
		}
	}
	return claim, err
}
