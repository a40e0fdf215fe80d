// Package store says what one aggregator keeps, and what it may rely on. Engines implement
// [Engine]: package sqlite is the embedded one; package storetest is the suite that each
// of them passes. Those who use one ask for the parts that they need: [Leader], [Helper],
// [Resources], [Releases], [Tasks], [Replay], [Watch], [Files].
//
// # Model
//
// A task has batches: batch buckets of one time_precision, or leader-selected ids. A
// leader gets reports by the log ([segment.Committer]), as segments that are claimed,
// sent and committed as one aggregation job each ([Leader.ClaimSegments],
// [Leader.SaveSent], [Leader.CommitSegment]). A helper gets them in aggregation jobs
// ([Helper.CommitJob]). Both commits add verified reports to their batches: check for
// replays, fold the shares, remember the ids, count. A collection takes a batch through
// drain, freeze and release at the leader, and through release alone at the helper.
//
// # Guarantees
//
//   - A report id is added to a batch at most once in its task, whatever times reports of that id have (DAP-18 section
//     4.5.3.4), in both batch modes, until the task is retired; jobs, collections and their deletion change nothing.
//   - What was added is in exactly one release, or in none yet: a batch that is frozen or closed takes nothing more, and
//     a release gives out just what the batch has when it closes.
//   - A batch is released once, with at least the task's minimum, and only together with the entry in the ledger, the
//     end of its shares and the response that is stored. The same resource answers with the same bytes for ever.
//   - Reports are accounted for: see [Counts].
//   - Noise that is correlated over releases is kept with them: what a release leaned on and what later ones lean on is there if
//     and only if the release is.
//   - A resource is its body's: two equal requests find one resource, and an id that was deleted never comes back.
//
// # Failure
//
// Every method is one transaction. On nil its effect survives the loss of power; on an error it had none, but for
// [ErrUnknown], after which the engine refuses everything: close it, open it again, and go on as at any start.
// [ErrStaleLease], [ErrTooSmall] and [ErrBusy] are the ordinary course of events; [ErrOverlap], [ErrMismatch], [ErrStep],
// [ErrNotFound] and [ErrDifferent] are permanent for that request. A resource that failed gives its *dap.Problem as the
// error of whatever would have answered it.
//
// # Staleness
//
// A method reads what was committed before it was called, through whatever handle. Three
// may answer from memory, and each says how old that may be: [Leader.BatchState] and
// [Tasks.TaskState] of what can still change, [Replay.Damaged] of what this handle has
// met. Nothing is let in by such an answer alone: the transaction that comes of it asks
// the rows.
//
// # Concurrency
//
// All methods may be called from many goroutines. Functions that the caller hands in
// (Fold, reply, Build) run outside of database transactions but under locks of their
// reports, their resource or their task: they must not commit, drain, freeze, release or
// delete.
package store
