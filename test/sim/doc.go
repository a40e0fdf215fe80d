// Package sim runs the whole system, client, leader, helper and collector, through seeded
// lists of operations on simulated disks, on a simulated network and under a fake clock.
//
// # One run
//
// A seed chooses a deployment (batch mode, minimum batch, synchronous or deferred helper,
// segment size) and then a list of operations: uploads of good, bad and repeated reports,
// steps of leader and helper, collections, polls, deletions, time passing, and faults.
// Requests and answers get lost, are duplicated, held back and delivered later, cut
// short, or sent again long after, also to a server that has restarted in between. While
// a message is under way other operations run, so that two workers meet in every order
// that matters. A server loses power at a named failpoint or at any one call on its disk,
// and finds afterwards what [disktest.Mem] says that it finds; or an operation that was
// done is reported failed.
//
// In lively runs leader and helper have their own workers, side by side, as in
// production, in place of steps.
//
// Then the faults stop, and everything must come to its end within a bounded time of the
// fake clock.
//
// # The oracle
//
// Each report has a bucket of one long histogram for itself and, in most worlds, no noise
// is added, so every element of every released aggregate is 0 or 1, and any 2 is a report
// counted twice. The oracle watches what the servers answer, whether or not the answer
// arrives, and checks after each operation and at the end:
//
//   - acknowledged = aggregated + rejected + waiting, at both servers, and their own
//     audits find nothing;
//   - no report is in two results, none that is invalid or was never uploaded is in any;
//   - no result has fewer reports than the minimum batch, and its count is that of its
//     ones;
//   - the same request gets the same bytes for ever, from the helper and from the leader,
//     across restarts;
//   - at rest nothing waits, every good report that was acknowledged is in a result, or
//     counted as rejected because its batch had been collected, and every collection has
//     its result, its problem, or too few reports.
//
// In some time-interval worlds the task has a calendar and the servers' clocks differ.
// There the oracle demands of every share and every result that it is of whole rounds,
// each alone where they are, and after end, grace and skew by the clock of whoever gave
// it out; and that no report is acknowledged that says when in its round it was made. In
// all of them no unit of time is in two answers of one server.
//
// In the worlds of TestDamage a file of one server's replay protection is damaged on its
// way. All of the above holds there, what may be in the file waits, and at rest it is
// made again.
//
// In some time-interval worlds both servers add noise that is correlated over releases,
// from samplers whose draws the oracle repeats. It sees on each disk what a server keeps
// of a release before the release is made, and demands that this is a draw, never one
// that another release has, less the strategy's part of exactly those earlier releases
// that the rule names; that releases come in the order of time; and that a result without
// the noise that both keep is again zeros and ones.
//
// With the tag postgres there are worlds whose leader, helper or both are two or three
// processes on one PostgreSQL each ([TestReplicas]): requests go to any of them, one stops
// between two of its transactions while others go on, some are killed and never come back. On
// their lines to the server connections break before a COMMIT, after it and during it,
// conflicts and deadlocks are said to be there, and in some worlds the server is killed; for
// some time it is away, or has no room. What a leader takes lies in rows, or, above some
// kilobytes, in object storage that refuses, is slow, is full, or lies. There the oracle
// demands besides that nobody answers 500 whatever the database does; that a report which was
// acknowledged is in no result only if object storage said that it keeps it, and did not; and
// that all such reports are counted as dropped.
//
// # Reproducing
//
// All randomness, that of crypto/rand included, comes from the seed, and all goroutines
// live in a [testing/synctest] bubble; only lively runs depend on the scheduler too, and
// are for the race detector most of all. A failure prints the command that runs its seed
// alone; a seed that found a fault stays as a named test.
package sim
