// Package vdaf defines what all verifiable distributed aggregation functions here share
// (VDAF drafts 18 to 20, which are the same on the wire): the interfaces of client and
// aggregator, aggregate shares and the ping-pong messages by which two aggregators verify
// a report. Packages prio3 and pine have the functions themselves.
//
// # Model
//
// A client splits a measurement into one input share per aggregator, with a proof that it
// is valid. The aggregators verify the proof without seeing the measurement, turn each
// input share into an output share, and add those up; the collector adds the aggregate
// shares of all. Any set of aggregators but all of them learns nothing beyond that the
// measurement is valid. A client that cheats is caught but for a negligible chance, as
// long as all aggregators are honest: a malicious aggregator can spoil a result, not read
// a measurement.
//
// # Batches
//
// An aggregator verifies a batch: memory is laid out by column and reused, so that a
// batch costs no allocation per report, and the verdict on one report never depends on
// another. A single report is a batch of one. Nothing in this module's pure packages
// starts goroutines: for several cores, give each worker a [State] of its own.
//
// # Failure
//
// A stranger's bad report gives an error wrapping [ErrDecode] or [ErrVerify] for that
// report, and changes nothing else. Panics mean misuse by the caller.
package vdaf
