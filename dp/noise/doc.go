// Package noise draws exact discrete Gaussian and discrete Laplace noise.
//
//	g, err := noise.NewDiscreteGaussian(655360*655360, 1) // sigma^2 = num/den
//	g.Sample(dst)                                         // one draw for each element
//
// The samplers are those of Canonne, Kamath and Steinke ("The Discrete Gaussian for
// Differential Privacy", NeurIPS 2020, algorithms 1 to 3): every decision is a comparison
// of a uniform real, whose bits are drawn only as far as the comparison needs them, with
// a rational number held in 64-bit and 128-bit integers. No floating point stands between
// the random bits and the sample, so the output has exactly the stated distribution,
// given uniform bits, and there are no low-order bits to attack (Mironov, CCS 2012).
//
// One thing differs from the paper. It proposes from a discrete Laplace distribution of
// integer scale t = floor(sigma)+1 and accepts with probability exp(-(|Y|-sigma^2/t)^2/(2
// sigma^2)). Any scale t > 0 gives the same output distribution, so we take t = sigma^2/m
// with the integer m = max(1, floor(sigma)). The exponent is then (|Y|-m)^2/(2 sigma^2),
// and for sigma^2 = a/b it has the denominator 2a: one machine word, where the paper's
// choice needs four.
//
// A [DiscreteLaplaceShare] is one user's part of such noise, for sums in which the users
// themselves hide each other.
//
// Bits come from crypto/rand, or from a [Key] that is 32 bytes of it: noise that must not
// change when a server's files are put back is a function of the key and of what it
// covers. Public calls take no other randomness; package noisetest has derandomised twins
// for tests.
//
// # Timing
//
// Rejection sampling takes a time that depends on the values drawn (never on anybody's
// data, of which a Key's draws are independent for all who lack the key). Release the
// noised result at a time that the drawing did not set, as the aggregators do: they draw
// in a batch of work whose end nobody sees but as a poll's answer (Jin et al., "Are We
// There Yet? Timing and Floating-Point Attacks on Differential Privacy Systems", 2022).
package noise
