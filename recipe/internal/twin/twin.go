// Package twin lets package recipetest derandomise the messengers of package recipe.
package twin

// Cloak makes the messenger of a *recipe.Recipe of a cloak, whose *cloak.Params are what with
// makes of them. Package recipe sets it.
var Cloak func(recipe any, with func(params any) any) (messenger any, err error)
