// Package release describes releases in one vocabulary for everybody who speaks of their
// privacy: recipes, the accountant, the calculator and the checker of certificates. It
// imports nothing of this module.
//
// A [Release] is so many results by one [Mechanism] about what a [Sampling] takes of the
// records; a list of them is everything that is told. Nothing is said there of who is
// hidden from whom: how far apart neighbours are follows from the [Contribution] of one
// person and from the relation of [Neighbours], which every question states. For one
// relation a release is a [Term], as certificates list them.
//
// Beside these stand what each person sends ([Message], [Premise], [Presence]), what is
// proved ([Guarantee]), and why nothing is ([ErrParameter], [ErrUnsupported],
// [ErrNoGuarantee]).
package release
