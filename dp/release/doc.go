// Package release describes releases in one vocabulary for everybody who speaks of their
// privacy: recipes, the accountant, the calculator and the checker of certificates. It
// imports nothing of this module.
//
// A [Release] is a number of results by one [Mechanism] about the records that a
// [Sampling] takes; a list of them is everything that is told. It does not say who is
// hidden from whom: how far apart neighbours are follows from the [Contribution] of one
// person and from the relation of [Neighbours], which every question states. For one
// relation a release is a [Term], as certificates list them.
//
//	// ten histograms, with noise of variance 100, of a secret hundredth of the people
//	release.Repeated([]release.Release{
//		release.One(release.DiscreteGaussian{Variance: release.Rational{Num: 100, Den: 1}, Contribution: release.OneHot()}).
//			Sampled(release.Poisson{Rate: 0.01}),
//	}, 10)
//
// Beside these stand what each person sends ([Message], [Premise], [Presence]), what is
// proved ([Guarantee]), and why nothing is ([ErrParameter], [ErrUnsupported],
// [ErrNoGuarantee]).
package release
