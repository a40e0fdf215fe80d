// Package simulator plays rounds of a vector recipe in one process, with the integers of the
// running system and without its cryptography: what comes out for a seed is what leader,
// helper and collector would release of the same reports and the same noise.
//
// Each step is the product's own code. A device's vector is clipped and rounded by
// [pine.Encode] under the recipe's [recipe.Vector.Encoding], as client does it; sums are
// aggregate shares in the field of the recipe's proof; each server adds the draws of the
// recipe's sampler by a [noise.Key], as package release of the aggregator does, and where
// noise is correlated over rounds makes it of the draws by package correlated, as its store
// does; shares are put together by [pine.Pine.Unshard], and [recipe.Recipe.Estimate] undoes the coins, as
// collector does. A test holds a round against real proofs, and lab one against real
// servers.
//
// Left out are the steps that cost time and change no integer: shares that are random each
// (their sum is not), proofs, and encryption. A report whose proof cannot hold is told by
// its norm: it is rejected where the squared norm of its integers is over the square of the
// recipe's bound, which is what a proof shows but for odds that docs/pine.md states.
//
// Where noise is correlated devices keep the recipe's separation: device i has its turn in
// the rounds that leave the remainder i over it.
//
// A round has one of three ends: a [Sum]; a [*TooFewError], where fewer reports than the
// recipe's threshold came and nothing is released; a [*BudgetError], where the rounds that
// the recipe's guarantee covers are over, before anything is computed. A round that was
// begun is spent, whatever its end: its coins were tossed.
//
// Coins and noise are functions of the seed, so a simulation can be run again, and protects
// nobody. It is for curves and forecasts on data that may be seen.
package simulator
