// Package local randomizes a device's own value before it sends anything, and estimates
// sums of values from such answers without bias, with variances.
//
//   - [Response]: binary and k-ary randomized response.
//   - [RAPPOR]: one-hot with every bit flipped, symmetric or optimised, with or without a
//     bound on the weight.
//   - [Projective]: projective geometry response, for large domains at the price of log K
//     bits.
//   - [Gaussian]: a clipped vector with discrete Gaussian noise, with or without a random
//     projection before it.
//   - [Question] and [RandomGroup]: sums of values by secret group (paper 002), and sizes
//     and means of the groups. [PlanGroups] chooses; docs/proofs/groups.md has the proofs.
//
// For example, a yes or no with epsilon 1, asked of many:
//
//	r, err := local.NewResponse(2, 1)
//	answer, err := r.Randomize(secret)   // on each device
//	estimates, err := r.Estimate(counts) // of how often each answer came
//
// # Epsilon
//
// A local epsilon is about one of two relations, and the same number means different
// things under them. [Replacement]: any two values give answers with probabilities within
// e^epsilon. [Deletion]: any value and the reference do, which is the answer of no value
// where there is one, else a uniform one. Deletion epsilon implies replacement 2 epsilon.
// Each randomizer states both, for the probabilities that it really draws, rounded up.
// docs/proofs/local.md has the proofs.
//
// # Dummies
//
// A device that sends a dummy, to hide whether it takes part, gives [NoValue] to
// Response, RAPPOR or Projective: same draws, same time, an answer of the same form.
// RAPPOR and [NewOptionalResponse] then debias by the total count, however many dummies
// it has; for [NewResponse], whose dummies are uniform answers,
// Response.EstimateWithDummies takes their expected number and its variance.
//
// # Randomness
//
// Floating point decides no draw. Each probability is rounded to a multiple of 2^-64, to
// the side that protects more, and a draw is a comparison of 64 bits of crypto/rand with
// it; uniform integers come by rejection. Estimators use the rounded probabilities.
// Answers are computed without branches or addresses that depend on the value. The number
// of repeated draws may show; it is as likely for all values of Response and RandomGroup,
// and for any two values of RAPPOR (but not quite for a value and a dummy of a bounded
// RAPPOR: 2^-40 at most), to 2^-40 for all of Projective, and to m^2/2^63 for all groups
// of Question; and whatever the floating point of Gaussian shows of its vector. Package
// localtest has derandomised twins. Rows of queries and projections are public and drawn
// by cSHAKE128 (NIST SP 800-185).
//
// # Estimates
//
// An [Estimate] is unbiased for the value over the devices that reported, over the draws
// alone; its variance does not count who was asked. Where the variance depends on the
// truth, the estimate stands in for it; the Variance methods take the truth. Exceptions
// say so: a bounded RAPPOR has a bias of 2^-40 or so, Gaussian estimates the sum after
// clipping.
package local
