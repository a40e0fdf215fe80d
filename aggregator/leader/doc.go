// Package leader implements the DAP leader: it takes uploads, verifies them with the
// helper in aggregation jobs, and answers the collector.
//
// # Uploads
//
// An upload is acknowledged after its reports are durable in an append log, or, with a
// database, in an object that has a row, and opened only when a worker claims them. Faults that only a key can tell (a share that does not
// open, a replay, a false proof) are found then, and counted as rejected.
//
// # Aggregation jobs
//
// A worker claims a job under a lease, slices of the logs that the reports lie in, verifies
// it, writes down which reports go into the request and the request's digest, and sends. Until the helper has answered, the
// same bytes are sent again, after pauses that grow: the helper may have committed. An
// answer that names other reports, or in another order, a refusal of the whole job in the
// protocol's own words, and a helper at another step end the job: it is parked, with its
// reports still waiting, until the operator decides
// ([Leader.Resume]). Several of them in a row hold the whole task: no uploads, no jobs,
// until the same. Nothing that strangers can put into a report holds a task
// ([store.Conduct]). A request that cannot be built again is quarantined: set aside with
// the reason, its reports counted as rejected.
//
// A VDAF of several rounds takes continuation steps (DAP-18 section 4.5.4). Before the
// request of a step leaves, the helper's answer to the one before is stored with the
// digest of the new request; verify state never is. A repetition computes every step
// again from the reports and those answers. A helper that has lost the job, or says that
// it is at another step, is told it again from the beginning, and the job goes on if it
// answers as it did.
//
// # Replicas
//
// With a database any number of leaders share the work. One of them keeps in memory what is
// about itself: which collections it has looked at, which uploads are under way. Uploads are
// everybody's once they are acknowledged. A claim is renewed by the worker that has it; it
// fences whatever a worker does whose claim has ended. Collections are driven by all: each
// step has one outcome, whoever takes it, and the helper hears the same request from all.
//
// # Collections
//
// A collection waits until its batch has the minimum of verified reports; then uploads to
// it are refused (batch_collected), what was acknowledged is finished, the batch is
// frozen, the helper asked for its share, and ours released with it. Each step survives a
// crash. A refusal by the helper ends the collection with its problem and leaves the
// batch as it was. A frozen batch with far more reports than the task expects
// ([aggregator.Expectation]) is held: it waits for the operator, and the collector with
// it. The helper decides the same for itself.
//
// # The end of a task
//
// A task is retired some time after the end of its interval
// ([aggregator.Options.Retention]): refused from then on, and erased but for its counts
// and the ledger. The helper does the same by its own clock and configuration.
//
// # Keys
//
// With a KeySchedule the leader makes its HPKE keys by itself and destroys each once it
// takes no more uploads and no report in the log or in a waiting slice was sealed to it
// (package keyset).
//
// # Workers
//
// [Leader.Run] works until its context ends; [Leader.Step] does one round for tests and
// simulations.
package leader
