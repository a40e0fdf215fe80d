// Package theorem5 holds what an aggregator sees to Theorem 5 of Samplable Anonymous
// Aggregation (Feldman et al. 2024): the view of an adversary with one of the two servers
// can be simulated from the number of reports and their aggregate.
//
// simulate is that simulator. It knows the count and the aggregate and no report. Of each
// report it makes the adversary's own share (uniform, as the client's secret sharing
// makes it) and the other server's verifier share: what is missing from the adversary's
// own to a uniform verifier that accepts, which is the zero-knowledge simulator of VDAF's
// proofs (Boneh et al. 2019, "Zero-Knowledge Proofs on Secret-Shared Data via Fully
// Linear PCPs", section 4). The product's code for the adversary's side accepts every
// such report, and the aggregate shares add up to the aggregate.
//
// The tests then try to tell the simulated view from real ones. No finite test proves the
// theorem; each states its power: which leak it would find, and shows that it finds one
// that is planted.
//
// Below the minimum the honest server gives out nothing but verifier shares, which are
// part of both views; and that the two servers give it out but once is the aggregators'
// own tests' concern.
//
// Randomness is seeded. All statistics of one view together reject a true null with a
// probability of at most 1e-6.
package theorem5
