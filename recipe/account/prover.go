package account

import "github.com/starling-agg/starling/recipe"

// Prover proves guarantees by the accountant, for [recipe.Open].
var Prover recipe.Prover = prover{}

type prover struct{}

// Prove implements [recipe.Prover].
func (prover) Prove(r *recipe.Recipe) (recipe.Proof, error) {
	g, err := Guarantee(r)
	if err != nil {
		return nil, err
	}
	return &proof{r, g}, nil
}

type proof struct {
	recipe    *recipe.Recipe
	guarantee *recipe.Guarantee
}

func (p *proof) Guarantee() *recipe.Guarantee { return p.guarantee }

func (p *proof) After(rounds uint32) (recipe.Loss, error) { return LossAfter(p.recipe, rounds) }

func (p *proof) UnconditionalAfter(rounds uint32) (recipe.Loss, error) {
	return UnconditionalAfter(p.recipe, rounds)
}
