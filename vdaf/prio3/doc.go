// Package prio3 implements Prio3 (VDAF-18 section 7): counts, sums, vectors, histograms
// and multi-hot counts of measurements that no aggregator sees, each proved valid without
// being shown. Any number of aggregators from 2 to 255, one round.
//
// Each type is made by its own constructor, which refuses parameters outside the bounds
// below with [ErrParameter]; so parameters may come from a stranger. An instance is
// immutable and safe for concurrent use.
//
//	[Count]           one bit
//	[Sum]             an integer of 0..max
//	[SumVec]          a vector of such integers; optionally over Field64 with several proofs
//	[Histogram]       one bucket of several
//	[MultihotCountVec] a vector of bits of bounded weight
//	[L1BoundSum]      a vector of integers from 0 on that adds up to at most a bound
//	[Columns]         a value of a secret group, by a column of a public table of the report
//	[L2Vec]           a real vector of L2 norm below 1, the encoding of paper 003
//
// # Memory and speed
//
// A [vdaf.State] is reused from batch to batch. VerifyInit, Combine, Check and Accumulate
// then allocate nothing for good reports; an error allocates. Verification takes time
// linear in the measurement (package vdaf/internal/flp says how).
//
// # Timing
//
// Sharding and verification do not branch on, index by or bound loops with a measurement,
// share, seed or proof. The code leaks lengths; that a measurement was refused, and
// whether an encoding or a proof was refused; and the rejections of the XOF, whose odds
// do not depend on secrets (package vdaf/internal/xof).
package prio3
