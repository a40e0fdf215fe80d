// Package accountant computes differential-privacy guarantees: from a list of releases,
// which says what was told and with what noise, to (epsilon, delta), and back to the
// noise that a wanted guarantee takes.
//
// # Releases and questions
//
// A [release.Release] says nothing about who is hidden from whom. A question puts a list
// of them together with a relation of neighbours ([release.Neighbours]), which is a
// parameter of every call and never implied:
//
//	g, err := accountant.Epsilon(list, 1e-8, release.ReplaceOne)
//
// [Certify] makes a certificate of the same list. Inside, each release becomes an event
// (releases.go), an event a closed formula, a Renyi divergence or a dominating pair of
// distributions (pair.go), and pairs are composed.
//
// The change that one person can make follows from what one person may contribute (a
// [release.Contribution]: one bucket of a histogram, a number of an interval, a vector of
// bounded norm) and from the relation. Where the number of reports is public, as it is
// between two aggregators, ReplaceOne is the relation to ask about.
//
// # Rounding
//
// Every answer is a [release.Guarantee] that brackets the truth: Epsilon and Delta are
// rounded up, EpsilonLower and DeltaLower down. Expressions are evaluated in float64 with
// a stated bound on their error, which is then added to the answer; a bound that does not
// exist is 0 below and an error above, never an optimistic number. Theorem names the
// result that the answer rests on.
//
// docs/accounting.md names the paper of each theorem, and docs/proofs has the proofs of
// those that no paper states as they are used here.
//
// # Two servers
//
// Each aggregator adds noise of its own. The guarantee stands on the noise of one honest
// server: what the other adds is post-processing, whoever plays it. Honest = 2 in
// [release.DiscreteGaussian] and its siblings claims the noise of both.
package accountant
