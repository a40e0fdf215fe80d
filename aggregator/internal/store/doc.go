// Package store says what one aggregator keeps, and what it may rely on. Engines implement
// [Engine]: package sqlite is the embedded one; package storetest is the suite that each
// of them passes. Those who use one ask for the parts that they need: [Leader], [Helper],
// [Resources], [Releases], [Tasks], [Registry], [Replay], [Watch], [Files].
//
// # Model
//
// A task has batches: batch buckets of one time_precision, or leader-selected ids. A
// leader gets reports by the log ([segment.Committer]), as slices of which jobs are made
// that are claimed, sent and committed ([Jobs.ClaimJobs], [Jobs.SaveSent],
// [Jobs.FinishJob]). A helper gets them in aggregation jobs
// ([Helper.CommitJob]). Both commits add verified reports to their batches: check for
// replays, fold the shares, remember the ids, count. A collection takes a batch through
// drain, freeze and release at the leader, and through release alone at the helper.
//
// # Guarantees
//
//   - A report id is added to a batch at most once in its task, whatever times reports of
//     that id have (DAP-18 section 4.5.3.4), in both batch modes, until the task is
//     retired; jobs, collections and their deletion change nothing.
//   - What was added is in exactly one release, or in none yet: a batch that is frozen or
//     closed takes nothing more, and a release gives out just what the batch has when it
//     closes. Of a task with views that holds of each view: the first release of a batch
//     bucket closes it, and its sum is kept, sealed, until it was released in every view or
//     [Releases].EndViews ends it.
//   - A batch is released once, with at least the task's minimum, and only together with
//     the entry in the ledger, the end of its shares and the response that is stored. The
//     same resource answers with the same bytes for ever.
//   - Reports are accounted for: see [Counts].
//   - Noise that is correlated over releases is kept with them: what a release leaned on
//     and what later ones lean on is there if and only if the release is.
//   - A resource is its body's: two equal requests find one resource, and an id that was
//     deleted never comes back.
//
// # Failure
//
// Every method is one transaction. On nil its effect survives the loss of power; on an
// error it had none, but for [ErrUnknown]. [ErrStaleLease], [ErrTooSmall] and [ErrBusy] are
// the ordinary course of events; [ErrOverlap], [ErrMismatch], [ErrStep], [ErrNotFound] and
// [ErrDifferent] are permanent for that request. A resource that failed gives its
// *dap.Problem as the error of whatever would have answered it.
//
// # Unknown outcomes
//
// A transaction's outcome is unknown where its commit failed half-way, or the answer to it
// was lost. An engine over a network finds it out by itself. Each transaction inserts a
// row with a token of its own, drawn before it begins; where no answer comes the engine
// inserts that token once more, alone. The token is unique, so that this waits for a
// transaction that is still under way. If it is taken, the transaction took place, and the
// method returns what it would have returned; if it is not, the transaction did not take
// place and never will. Tokens go when they are older than any transaction.
//
// ErrUnknown is what is left: the handle refuses everything from then on. Its caller closes
// it, opens it again, and goes on as at any start. The embedded engine has no tokens and
// stops at once, for what a disk holds after a failed sync only a restart tells.
//
// After that a caller asks again, and what took place is not done twice:
//
//   - The answer is that of the first time: PutTask, Register (made none), CloseTask, CommitLog, BeginLogs, ForgetLog,
//     Spend, SaveSent, RenewJob, Move, HoldTask, Resume and GiveUp (of no reports), Create (not made), Forgo, CommitJob, Advance,
//     Fail, Drain, Freeze, Release, EndViews, Retire, Sweep, Bury, NoteKeys, SaveTime and those of
//     [datakey.Book].
//   - ErrStaleLease, for the lease went with the first: FinishJob, RetryJob, QuarantineJob,
//     ParkJob. Jobs that ClaimJobs has leased come back when the lease ends.
//   - What is left, or ErrStaleLease where nothing was: SetAside.
//   - ErrNotFound: Delete, Withdraw, Mend. ErrDifferent: Reseal, whose caller reads the
//     resource.
//   - AddRefused alone counts twice: reports that nobody was promised.
//
// # Staleness
//
// A method reads what was committed before it was called, through whatever handle. Three
// may answer from memory, and each says how old that may be: [Leader.BatchState] and
// [Tasks.TaskState] of what can still change, [Replay.Damaged] of what this handle has
// met. Nothing is let in by such an answer alone: the transaction that comes of it asks
// the rows.
//
// # Locks
//
// All methods may be called from many goroutines, and through many handles. Locks are rows,
// or in memory where one process has all handles. They are taken in this order:
//
//  1. the resource: alone, by whatever answers, reseals or ends it;
//  2. the task: shared by the commits of jobs and logs; alone by Drain, Freeze, Release,
//     EndViews and Retire, and by Fail, Delete and Withdraw of a collection. An interval closes batch
//     buckets that have no row yet, so that locks on those alone would not do;
//  3. the batches of a commit, ascending;
//  4. the report ids of a commit in its task, ascending: of two commits that have one in
//     common the second waits for what becomes of the first, whatever their batches;
//  5. the ledger: each release is the next one of its task and of the store.
//
// The functions that a caller hands in (Fold, reply, Draw, Build) run under these locks, so
// that what they were told still holds when it is committed. They may read through the
// engine, which answers however many of them run, and must not write through it. Two
// commits of one batch may go side by side or one after the other.
//
// Leases are rows too. They end by the time that callers state, and an engine that one
// process has alone may void those of its earlier lives.
//
// The check for replays, in a commit and in Seen, comes under the lock of the ids and knows
// every run that is committed by then. An engine that keeps runs in memory first reads what
// has come since; the numbers of a sequence tell that only where transactions are committed
// in their order.
//
// # Files
//
// A file is durable before the transaction that names it. It goes by a tombstone, a row
// written by the transaction that takes its last name away, and never because no row names
// it: another process may have written it a moment ago. Where handles are in several
// processes a tombstone has an age, and the file goes when whoever read its row before the
// end must be done. A file that no row names and no tombstone is kept; see package lost.
package store
