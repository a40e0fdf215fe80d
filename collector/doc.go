// Package collector asks the leader for a batch and turns the two aggregate shares that
// come back into a [Result]: the estimate with its error, and the guarantee that its
// people have.
//
// [Collector.Collect] does all of it. Its parts are [Collector.Start], which creates a
// collection job at the leader, [Job.Wait], which polls until both shares are there and
// opens them, and [Job.Delete]. Each request may be repeated: the same query is the same
// job, with the same noise, for ever.
//
// # Losing nothing
//
// Options.Save is handed a [State] whenever there is something new to lose: the job's id,
// then the leader's answer. A collector that stopped goes on with [Collector.Resume]. The
// answer in a State is still sealed to the collector's key.
//
// # Leader-selected batches
//
// There every request has the same bytes, and so is the same job, until the job is
// deleted (DAP-18 sections 3.2 and 5.2). Hence one job at a time: [ErrBusy] otherwise.
// Collect deletes the job once its answer is saved, and the next call gets the next
// batch. A job that failed stays, so that its error can be asked for again, until it is
// deleted.
//
// # Without a leader
//
// A [Reader] reads the results of the shuffled and the direct path from their analyzer.
package collector
