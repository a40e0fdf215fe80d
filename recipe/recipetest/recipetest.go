// Package recipetest has derandomised twins of the messengers of package recipe: messages of
// the same distribution, from a seed. They are for tests only; messages that someone else can
// recompute hide nothing.
package recipetest

import (
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/internal/twin"
	"github.com/starling-agg/starling/shuffle/cloak"
	"github.com/starling-agg/starling/shuffle/cloak/cloaktest"
)

// Messenger is that of a recipe of a cloak, with messages that are determined by the seed. It
// is not for concurrent use.
func Messenger(r *recipe.Recipe, seed [32]byte) (*recipe.Messenger, error) {
	m, err := twin.Cloak(r, func(params any) any { return cloaktest.Seeded(params.(*cloak.Params), seed) })
	if err != nil {
		return nil, err
	}
	return m.(*recipe.Messenger), nil
}
