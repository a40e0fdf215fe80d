// Package calculator answers questions about privacy as people ask them: how much does
// this noise protect, released so often, about a secret sample, through a shuffler, or
// among random check-ins; and, the other way round, how much noise, how small a sample or
// how few releases does a wanted epsilon take.
//
// It computes nothing of its own. An [Ask] is a question as flags state it. It becomes a
// [Question], which is about a list of releases ([release.Release]) and names its
// relation, and is answered by package accountant or a curve of package amplify, with the
// theorem that the answer rests on and the assumptions that it needs. A question that no
// theorem covers is refused with an [*Error] that says why and what to ask instead; there
// is no optimistic default.
//
//	a, err := calculator.Ask{
//		Line:  calculator.Line{Mechanism: release.NameGaussian, Sigma: 5.1, Sampling: 0.02, Steps: 2500},
//		Delta: 1e-8,
//	}.Answer() // epsilon 1.020
//
// # Who is hidden from whom
//
// Sensitivity is the most that one person's record can add, C. Add-remove and zero-out neighbours are then C apart and
// replace-one neighbours 2C, because a record may go from -C to C.
//
// The relation is stated or follows from the question: replace for local reports
// (randomized response, RAPPOR, anything shuffled) and wherever the count is public; what
// hides of a report that it was sent at all (LDP deletion) is about zero-out neighbours,
// or add-remove ones under sampling; all else is add-remove. The answer names it.
//
// # The count
//
// An observer of the number of reports can, if all others hold -C and one person holds C,
// single that person out. So Poisson sampling and random allocation amplify only while
// the count is hidden, for which something (dummy reports, say) has to pay with an event
// of its own. With a public count a secret sample is accounted as sampling without
// replacement, for replace-one neighbours: of a fixed size or, if the people toss coins,
// at the upper quantile of its size.
//
// docs/accounting.md has the rules with their reasons.
//
// Hints name the flags of `starling account`.
package calculator
