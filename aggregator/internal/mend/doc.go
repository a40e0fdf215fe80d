// Package mend puts damaged replay protection right, from the report ids that the other
// aggregator holds.
//
// # What is known
//
// A run file is a function of the set of its ids, and its row has its SHA-256: whoever
// gives the ids, that value proves them. (DAP's checksum would not: it is an XOR, which a
// lying peer can meet with other ids.) Of several runs that were lost together nobody
// knows which id was in which: they become one, proved by the sum of their digests, which
// are keyed ([segment.SetDigest]). Both aggregators aggregate the same reports, so the
// peer holds the ids of the run among those of its range. It holds more:
//
//   - those of our other runs, which we know;
//   - at the helper, those of jobs that it has answered and we have not committed: it marks
//     what is in answers that nobody has deleted yet, and of these we leave out what we
//     have sent and not committed;
//   - at the leader, those that it has sent and not committed, which it offers and marks:
//     of these the helper leaves out what it has not finished in a job.
//
// A run holds only what was committed before it was damaged, so whatever is uncommitted
// when a page is looked at is not of it, and whatever is committed is in a run: pages may
// come while jobs go on.
//
// # Who asks whom
//
// The leader calls, for the helper knows no way to it: it takes ids for its own runs,
// asks which runs the helper lacks, and gives ids for those. Requests are bounded, bear
// the peer's token and lie below tasks/{task}/starling_replay, which is ours, not the
// draft's:
//
//	GET   starling_replay        what is damaged: a sequence of Need
//	POST  starling_replay/ids    { low[16], high[16] }: a Page
//	POST  starling_replay/give   Gift: { uint8 outcome, next[16] }
//
// An Entry is { id[16], uint8 mark }, a Page as many of them as fit into [PageSize],
// ascending; one that is shorter is the last. Memory is that of the ids of one damage,
// maxIDs at most.
//
// # When it fails
//
// Nothing goes on without replay protection: what may be in the run waits. A peer that
// lies, by other ids, in another order, by too many, is refused, and asked again later,
// as is one that is down. Where the peer lacks ids as well, or has some that only it
// committed, nothing can be proved: [ErrFew], [ErrMany], [ErrProof] and [ErrLarge] say so
// in words.
package mend
