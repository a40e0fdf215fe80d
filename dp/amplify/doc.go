// Package amplify computes the privacy gained by hiding who sent a message, when, or
// whether at all: by sampling, shuffling, random check-ins, a random time of donation,
// and dummy reports.
//
//	c, err := amplify.Shuffle(release.AnyReport(4), 10_000) // messages of epsilon0 4
//	g, err := c.Epsilon(1e-10)                              // (0.894, 1e-10)-DP
//
// docs/accounting.md names the paper of each theorem; bounds that no paper states as they
// are used here are proved in docs/proofs: shuffling.md, check-ins.md, allocation.md,
// participants.md.
//
// # Curves
//
// An exact bound is a [Curve], delta as a function of epsilon, that answers Epsilon and
// Delta questions with the Guarantee of package release: rounded up, naming its theorem
// and the neighbouring relation. EpsilonLower and DeltaLower, where they are not 0, are
// attained by one mechanism that the theorem is about, usually binary randomized
// response; so they say how much the theorem could be improved, not that a given
// mechanism is as bad. Theorems that papers state as formulas are functions that return a
// Guarantee; the curves are tighter.
//
// # Which bound for shuffling
//
// [Shuffle] takes a release.Message, which names its randomizer. The clone bound holds
// for any randomizer. The stronger clone bound was withdrawn in general, so only the two
// for which docs/proofs/shuffling.md proves it directly have it.
//
// # Premises
//
// No theorem takes a local epsilon as a number. Those in which another's input may stand
// in place of a person's take a release.Report, which is about replacing an input; those
// about a step that a person takes or does not, a release.Presence. A curve carries its
// relation, and sampling refuses one that is about another.
//
// # How sums are evaluated
//
// All bounds are expectations over binomial distributions. Windows around the mean hold
// all but a stated miss, which is added to delta; within them terms are positive, or come
// from the positive continued fraction of the incomplete beta function, whose convergents
// bracket it. Numbers of clones beyond some thousands are taken in blocks, each counted
// at its worst member, so 10^12 users take well under a second. The error of float64
// evaluation is bounded and added.
//
// Parameters out of range, NaN and infinities among them, give an error that matches
// release.ErrParameter; questions no theorem covers one that matches
// release.ErrUnsupported; both are never a number.
package amplify
