package account

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
)

// Contribution is what one report can add to the aggregate.
func Contribution(q recipe.Query) (release.Contribution, error) {
	if q == nil {
		return release.Contribution{}, errors.New("recipe: the query is missing")
	}
	return q.Contribution(), nil
}

// contribution is what one unit of the recipe can.
func (r subject) contribution() (release.Contribution, error) {
	if c, err := Contribution(r.Query); err != nil {
		return c, err
	}
	return r.Contribution(), nil
}

// loss is the proved loss of a number of rounds at the delta, of which spent is charged
// for what the releases of one round leave out. The accountant is asked about a float64
// below, and what it proves holds for the delta itself, which is reported.
func loss(list []release.Release, rounds uint32, delta recipe.Decimal, spent float64, n release.Neighbours) (recipe.Loss, string, error) {
	rest := delta.FloatDown() - spent
	if !(rest > 0) && (rest < 0 || delta != recipe.Decimal{}) {
		return recipe.NoPrivacy, "", nil
	}
	g, err := epsilon(release.Repeated(list, uint64(rounds)), rest, n)
	if errors.Is(err, release.ErrNoGuarantee) {
		return recipe.NoPrivacy, "", nil
	}
	if err != nil {
		return recipe.Loss{}, "", &recipe.InvalidError{Field: "guarantee", Problem: fmt.Sprintf("cannot be computed: %v", err)}
	}
	return recipe.Loss{Epsilon: g.Epsilon, Delta: delta.Float()}, g.Theorem, nil
}

// epsilon is the accountant's answer, computed once.
func epsilon(list []release.Release, delta float64, n release.Neighbours) (release.Guarantee, error) {
	key := releases{delta: delta, neighbours: n}
	if copy(key.list[:], list) < len(list) {
		return accountant.Epsilon(list, delta, n)
	}
	return losses.once(key, func() (release.Guarantee, error) { return accountant.Epsilon(list, delta, n) })
}
