// Package cloak adds up numbers in the shuffled model: each user splits a number into
// random residues that only their sum ties together, a shuffler mixes the residues of all
// users, and an analyzer learns the sum and nothing else (the "invisibility cloak").
//
//	o := cloak.Options{Users: 10_000, Honest: 9_000, Precision: 1 << 20, Epsilon: 1, Delta: 1e-6}
//	p, err := cloak.Modern(o)
//	messages, err := p.Encode([]float64{0.25}) // each user, for the shuffler
//	sums, err := p.Analyze(shuffled)           // all users' messages, in any order
//
// The source is Ghazi, Pagh and Velingker, "Scalable and Differentially Private
// Distributed Aggregation in the Shuffled Model" (2019): algorithm 1 encodes and
// algorithm 2 analyzes. Three constructors choose its parameters:
//
//   - [Modern]: for neighbours that differ in one user's values. Every user adds a share
//     of discrete Laplace noise, and the number of messages is the least for which the
//     bound of docs/proofs/cloak.md, theorem 3, holds.
//   - [SingleUser]: the paper's theorem 1, for the same neighbours, with constants that
//     its lemmas certify. A few users, chosen at random, add large noise.
//   - [SumPreserving]: the paper's theorem 2, for neighbours of the same sum. Nobody adds
//     noise, so that the analyzer learns the sum exactly.
//
// # Vectors
//
// A user has a value for each of Entries sums. Noise and delta are those of what one user's
// values can change of them ([Options.Changed], [Options.Moved]): two entries of a histogram,
// however long. A message carries residues for the entries of one block ([Options.Block]):
// larger blocks need more messages each and fewer in all.
//
// # Who is trusted
//
// The shuffler, to mix the messages of all users and to drop none; and Honest of the
// users, to follow the protocol and to keep what they draw to themselves. The others may
// show the analyzer all that they know: what they add to the sum protects nobody and is
// not counted. No user is held to the range of a value, or to what Changed and
// Moved say of them: one that lies adds any residues, and sets the sums to what it likes. A missing message makes a sum uniformly random, so
// [Params.Analyze] wants every message.
//
// # Timing
//
// Encode takes no branch, index or loop bound from a value, once the value is known to be
// a number between 0 and 1 (a value below 2^-1022 may take the processor longer). The
// time that noise takes depends on the noise alone (package dp/noise says more).
package cloak
