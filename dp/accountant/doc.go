// Package accountant computes differential-privacy guarantees: from an event, which says what was released and with
// what noise, to (epsilon, delta), and back to the noise that a wanted guarantee takes.
//
// # Events and questions
//
// An [Event] describes releases; it says nothing about who is hidden from whom. A question puts an event together
// with a relation of neighbours ([release.Neighbours]), which is a parameter of every call and never implied:
//
//	g, err := accountant.Epsilon(event, 1e-8, release.ReplaceOne)
//
// What one person can change follows from what one person may contribute (a [release.Contribution]: one bucket of a
// histogram, a number of an interval, a vector of bounded norm) and from the relation. Where the number of reports
// is public, as it is between two aggregators, ReplaceOne is the relation to ask about.
//
// # Rounding
//
// Every answer is a [release.Guarantee] that brackets the truth: Epsilon and Delta are rounded up, EpsilonLower and
// DeltaLower down. Expressions are evaluated in float64 with a stated bound on their error, which is then added to
// the answer; a bound that does not exist is 0 below and an error above, never an optimistic number. Theorem names
// the result that the answer rests on.
//
// # Two servers
//
// Each aggregator adds noise of its own. The guarantee stands on the noise of one honest server: what the other adds
// is post-processing, whoever plays it. Honest = 2 in [DiscreteGaussian] claims the noise of both, as
// [LaplaceSum] and [DiscreteLaplaceSum] do.
package accountant
