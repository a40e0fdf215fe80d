// Package showing has the credentials of the shuffled path, between package arc, which knows
// no onion, and the hops, which know no credential: what a device shows with a contribution
// ([Device]), and how a hop verifies it ([Verifier]).
//
// In the mode tokens a contribution shows hop 1 a presentation without a limit, and each of its m
// messages shows hop 2 one under the limit m; where m is 1 that too is one without a limit.
// Their contexts are
//
//	arc.NewPresentationContext(arc.Hop1 or arc.Hop2, recipe id, round, key of the hop's issuer)
//
// so that a device counts once a round at hop 1, and m times at hop 2. Each is bound
// (arc.Bind) to what its layer is sealed under and beside, and to all that the layer holds
// behind it: to m onions at hop 1, to one sealed message at hop 2. So none holds for another
// message, contribution, round, recipe or hop.
//
// docs/proofs/tokens.md proves what follows (theorems 8 to 11).
package showing
