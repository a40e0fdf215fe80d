// Package sqlite is the embedded engine of an aggregator's store: one SQLite file beside
// segment and run files, owned by one process.
//
// # What is where
//
// SQLite alone knows what is claimed, committed, closed and released. Reports lie in
// segment files, the ids already aggregated in sorted run files of their task, and what
// credentials have shown in those of its round; a row names each such file by length and
// checksum, and a file is durable before the row that names it. A file goes by its
// tombstone alone.
//
// The aggregate share of a batch is one value, which each commit replaces. To append a
// partial share with each and to add them up at the freeze costs twice the bytes, and three
// times where shares are small: as many pages are written for a new row as for an old one,
// and those of rows that go are erased.
//
// # Concurrency
//
// One process owns the database, so the locks of package store are in its memory; handles
// on one engine share them, and each reads the replay protection for itself. Database
// transactions are serial and short; nothing that costs (proofs, folding, drawing noise,
// sealing, writing run files) happens inside one. Instead, in this order:
//
//   - a lock per resource makes each reply and each release happen once;
//   - a gate per task is held shared by commits, from the first look at a batch to the
//     end of the transaction, and alone by whoever drains, freezes or closes: so the
//     verdicts given to Fold still hold when they are committed;
//   - a commit claims its report ids, by task, from before the replay check until the run
//     that has them is known: another commit that has one of them waits, all others go on
//     beside it. A list of marks does the same with them.
//
// # Closing
//
// What closes a batch is a row of the ledger, "release": an interval of time or a batch
// id. Batch buckets are never enumerated, so an interval may be as long as it likes;
// whether a batch bucket is closed is one binary search in memory. A collection that
// drains or has frozen its batch is such a row too, in "hold", and goes with its
// resource.
//
// # Failure
//
// A commit whose outcome is unknown makes every later call fail with [store.ErrUnknown]:
// the process must close the store and open it again. Leases are void after that, since
// their holders are gone.
package sqlite
