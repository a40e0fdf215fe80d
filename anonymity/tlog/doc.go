// Package tlog reads, writes and verifies what a transparency log holds and what its
// witnesses say of it, without a network, a disk, a clock or a log of its own.
//
// A log is a list of entries that only grows. A [Checkpoint] names its size and the root
// of the Merkle tree over it (RFC 6962); the log signs it, and witnesses, who each
// remember the last one that they saw, add a cosignature if the new tree continues the
// old. A device with a checkpoint that has enough of them ([Policy]) knows that nobody was
// shown another log, as long as one witness of each quorum is honest. All of it is as
// C2SP has it: signed-note, tlog-checkpoint, tlog-cosignature with Ed25519 and ML-DSA-44,
// tlog-witness, tlog-policy, tlog-proof and tlog-tiles, of July 2026. The Merkle trees
// are golang.org/x/mod/sumdb/tlog's, which the Go checksum database runs on.
//
// An [Entry] has one encoding, and what follows from entries is a [Register]: which end
// others and which hold at a time. A log keeps one, and whoever watches a log makes the
// same of it.
//
// A device fetches one file, the [Bundle]: all entries that hold now, each with the proof
// that it is in the log, under one checkpoint. Which entries that are is an entry itself,
// one for each period, so that a bundle for one person alone would stand in the log for
// all to see. [Bundle.Open] verifies it offline and against the device's [Memory]: a log
// that went back, shows two trees or fell silent is refused with an error of its own, and
// the two checkpoints of a fork are kept, since their signatures prove it.
//
// The log is no trust anchor for what its entries say: whoever uses one verifies its
// owners' signatures as before.
package tlog
