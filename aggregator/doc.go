// Package aggregator holds what the two aggregators of a task have in common: package
// leader takes reports from clients and answers the collector, package helper verifies
// with the leader and releases the second share. They meet only in bytes, over HTTP (DAP
// drafts 18 and 19); they share this package's options and the machinery below internal.
// Each is one process on a directory, or any number of processes on a [Database].
//
// # The way of a report through the two
//
//	7   leader   accept   checks that need no key, one append and fsync (or a row, or an object), then the acknowledgement
//	8   leader   begin    a worker claims a job of reports, opens its shares, takes the VDAF's first step on all
//	9   helper   runJob   opens the other shares, verifies, commits what holds and is new, stores the answer with it
//	10  leader   commit   adds what the helper confirmed to the batch, destroys the sealed shares
//	12  both     release  close the batch, add the sum's one noise, seal to the collector, in one transaction; of a recipe's task
//	                      only what its [Calendar] names, and not before its time
//
// # Failure
//
// Every durable step is one transaction of the store, and every message between the two
// can be lost, repeated or answered late. The rule is the same everywhere: whoever asked
// sends the same bytes again, whoever answered stored the answer with its effect and
// gives the same bytes back. Only a definite refusal in the protocol's own words ends an
// attempt; the work is then set aside where the operator sees it, and is never dropped in
// silence.
//
// # Limits
//
// All that a stranger can send is bounded in [Limits]: bodies, reports, the bytes held at
// one time, the time a sender may take. Beyond them the answer is 413, 408, 429 or 503,
// the latter two with a Retry-After.
package aggregator
