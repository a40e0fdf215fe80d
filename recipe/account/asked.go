package account

import (
	"fmt"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/search"
	"github.com/starling-agg/starling/recipe"
)

// withAsked finds the epsilon of one answer in a group of which all rounds have the options'
// own, where the randomizer leaves it open. The claim is then that of the options.
func withAsked(o *Options, z recipe.GroupRandomizer) (recipe.GroupRandomizer, error) {
	if z.Local0() != (recipe.Decimal{}) || o.Path == nil {
		return z, nil // Validate says what is wrong with two servers
	}
	if o.Epsilon == (recipe.Decimal{}) {
		return nil, &recipe.InvalidError{Field: "randomizer.epsilon0", Problem: "is missing, and there is no epsilon to calibrate it to"}
	}
	at := func(inverse float64) (recipe.GroupRandomizer, error) {
		e, err := below(1 / inverse)
		return z.At(e), err
	}
	budget := o.Epsilon.FloatDown() * (1 - near)
	x, ok, err := search.Least(search.Options{Guess: 1 / budget, Low: 1. / mostAsked, High: 1e3 / budget, Precision: 1e-3, Budget: budget},
		func(inverse float64) (float64, error) {
			z, err := at(inverse)
			if err != nil {
				return 0, err
			}
			trial := *o
			trial.Randomizer = z
			return trial.deviceLoss()
		})
	if err != nil {
		return nil, fmt.Errorf("recipe: calibrate: %w", err)
	}
	if !ok {
		return nil, fmt.Errorf("recipe: calibrate: %w", release.ErrNoGuarantee)
	}
	return at(x)
}

// mostAsked is the largest epsilon of one answer that is chosen.
const mostAsked = 16
