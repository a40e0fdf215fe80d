package account

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/search"
	"github.com/starling-agg/starling/recipe"
)

// withCloak fills in what Options leave to [New] about a cloak: epsilon and delta of a round
// such that all rounds together have the options' own, and what messages hold.
func withCloak(o *Options, z recipe.Cloak) error {
	claimed := o.delta()
	rounds := max(1, o.Rounds)
	var err error
	if z.Delta == (recipe.Decimal{}) {
		// A proof of the claim rounds a little up; and of several rounds half is left for
		// their composition.
		share := 0.99
		if rounds > 1 {
			share = 0.5 / float64(rounds)
		}
		if z.Delta, err = below(claimed.FloatDown() * share); err != nil {
			return err
		}
	}
	if z.Epsilon == (recipe.Decimal{}) {
		switch {
		case z.Kind == recipe.SumPreservingCloak:
			z.Epsilon = recipe.Decimal{Coefficient: 1}
		case o.Epsilon == (recipe.Decimal{}):
			return &recipe.InvalidError{Field: "randomizer.epsilon", Problem: "is missing, and there is no epsilon to calibrate it to"}
		case rounds == 1:
			z.Epsilon = o.Epsilon
		default:
			if z.Epsilon, err = roundEpsilon(o.Epsilon, claimed, z, rounds); err != nil {
				return err
			}
		}
	}
	if z.Kind == recipe.SumPreservingCloak && o.Epsilon != (recipe.Decimal{}) {
		return &recipe.InvalidError{Field: "claim.epsilon", Problem: "is claimed of a sum that is exact: a sum-preserving cloak hides all but the sum, " +
			"by an epsilon of its own"}
	}
	expected := uint64(0)
	if o.Population != nil {
		expected = o.Population.Expected
	}
	fitted, err := z.Fit(o.Query, o.MinBatch, expected)
	if err != nil {
		// Validate finds it again, beside all else that is wrong; but it wants numbers.
		return &recipe.InvalidError{Field: "randomizer", Problem: fmt.Sprintf("has no messages that hide answers: %v", err)}
	}
	o.Randomizer = fitted
	return nil
}

// below is a decimal of a few digits that is not above x: the least that is not below x
// less a little more than one in the last digit.
func below(x float64) (recipe.Decimal, error) {
	const digits = 4
	return recipe.DecimalAbove(x*(1-1.1*math.Pow10(1-digits)), digits)
}

// roundEpsilon is the largest epsilon of a round, about, of which all rounds have no more than
// the whole, at delta.
func roundEpsilon(whole, delta recipe.Decimal, z recipe.Cloak, rounds uint32) (recipe.Decimal, error) {
	budget := whole.FloatDown()
	// A proof of a claim wants a little room above what is computed.
	composed := func(each float64) (float64, error) {
		e, err := below(each)
		if err != nil {
			return 0, err
		}
		m := release.ApproxDP{Epsilon: e.FloatDown(), Delta: z.Delta.FloatDown()}
		l, _, err := loss([]release.Release{release.One(m)}, rounds, delta, 0, release.ReplaceOne)
		return l.Epsilon, err
	}
	least := budget / float64(rounds)
	x, ok, err := search.Least(search.Options{
		Guess: 1 / least / 2, Low: 1 / budget, High: 1.01 / least, Precision: 1e-3, Budget: budget * (1 - near),
	}, func(inverse float64) (float64, error) { return composed(1 / inverse) })
	if err != nil {
		return recipe.Decimal{}, fmt.Errorf("recipe: calibrate: %w", err)
	}
	if !ok || math.IsInf(x, 0) {
		return recipe.Decimal{}, fmt.Errorf("recipe: calibrate: %w", release.ErrNoGuarantee)
	}
	return below(1 / x)
}
