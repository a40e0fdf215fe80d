// Package correlated draws noise that cancels over rounds: matrix factorisation with a
// banded Toeplitz strategy (paper 000, section 5.4 names it as open for two servers;
// Choquette-Choo et al., "(Amplified) Banded Matrix Factorization", NeurIPS 2023; Kalinin
// and Lampert, "Banded Square Root Matrix Factorization", NeurIPS 2024).
//
//	s, err := correlated.Optimize(8, 100, 8) // 8 bands, for 100 rounds
//	g, err := s.Sampler(100, 1)              // sigma^2 = 100
//	g.Sample(z)
//	w, err := s.Next(past, z) // past: the last 7 vectors that Next returned, newest first
//	s.Round(noise, w)         // is added to the sum of the round
//
// # What is released
//
// Round t has the exact sum x_t. With a [Strategy] c_0 = 1, c_1 ... c_(b-1), multiples of
// 2^-k, and independent discrete Gaussian draws z_t on the multiples of 2^-k, whoever
// draws keeps the last b-1 values
//
//	w_t = z_t - R(c_1 w_(t-1) + ... + c_(b-1) w_(t-b+1)),
//
// R rounding half up to a multiple of 2^-k, and adds round(w_t), a whole number, to x_t.
// All w are held as whole multiples of 2^-k in 64 bits; no floating point stands between
// the draws and the noise. The w of one round undo much of the noise of those before: the
// sum over all rounds so far is far less noisy than with draws of its own for each round,
// a single round somewhat more.
//
// # Why it is private
//
// Every release is computed from y = Cx + z alone, for every x: x is whole, so c_j
// x_(t-j) is a multiple of 2^-k, and R moves with it. A person who takes part in rounds
// at least b apart touches disjoint rows of C, so each time costs |c|^2 = 1 + c_1^2 + ...
// of squared sensitivity, at once for all rounds, and nothing else. There is no sampling
// and nobody needs to be hidden. The rounds may be chosen knowing all results before.
// docs/proofs/correlated-noise.md has the proofs.
//
// # Rounds and releases
//
// A release covers a [Span] of rounds of the calendar by which devices keep their
// distance ([Series].Separation), and releases come in the order of time: [Series.Next].
// A release leans on earlier ones only as far as no device can be in both; what is
// skipped costs nothing and is not made up for.
package correlated
