// Package hop implements the two hops of the shuffled path: hop 1 takes devices'
// envelopes, hop 2 takes hop 1's batches. Each opens its layer of a whole round at once
// and hands it on in an order of its own, so that nobody who does not hold both knows
// whose a message is.
//
// # The work of a hop
//
// For each round of a recipe it makes an HPKE key before the round begins, and signs a
// list of those to come at GET shuffles/ID/keys. Hop 1 appends envelopes that come at
// POST shuffles/ID/contributions to the round's log and answers after the fsync; it opens
// none. At the end of the round and its grace, by the hop's own clock, the round is
// flushed, whole: all that does not open is dropped, the rest is written in an order
// drawn by Fisher and Yates from crypto/rand, and handed to the next party with a
// manifest that the hop has signed. Below [Shuffle]'s MinBatch nothing is handed on,
// ever, and all is destroyed.
//
// The order is drawn once. Its output is on the disk before anything leaves, and the same
// bytes leave again until the next party has signed that it has them. Key and envelopes are
// destroyed before anything leaves, the output with the receipt; a disk may keep what was
// overwritten or removed, as flash does.
//
// # Answers
//
// To contributions: 200 and nothing else, whether they counted, came again, were late, of
// another size or round, above what a round takes, or will not open; [Status] counts
// which. Bytes that are no envelopes are refused with 400, and a request for which the
// disk has no room with 503, whatever is in it. Nothing of a later hop reaches a device.
//
// # Bad envelopes
//
// An envelope that does not open at hop 1 (malformed, of another round, recipe or key) is
// dropped before the count of contributions, and no message of it goes on. One that came
// before counts once, over restarts. A contribution of m onions of which some do not open at
// hop 2 counts: the messages are missing, which makes sums of shares wrong; hop 2's
// manifest says how many, and so the analyzer is told. An onion that came twice at hop 2
// counts once, and as missing the second time. Below MinBatch times m messages hop 2 hands
// nothing on: the batch is smaller than it looks.
//
// # Lying hops, in the mode counted
//
// Hop 2 refuses a batch of hop 1 that is early, below the least batch, unsigned, a second
// one for the round, of other counts than contributions times m, or of another root; and
// the analyzer one of hop 2 alike, with hop 1's signature in it. Not seen: hop 1 may drop
// contributions before it counts, and may pad the batch with its own; hop 2 may replace
// messages by its own. So the guarantee says that hop 1 is trusted not to pad, and that
// one of the hops keeps its order to itself.
//
// # Lying hops, in the mode tokens
//
// Every contribution shows hop 1 a token, and each of its messages one to hop 2 ([Tokens]): a
// hop counts only what shows one that holds for the layer it opened, and of which no other
// with the same tag was counted in the round. So a hop that pads needs credentials of devices,
// and hop 2 hands on no batch with fewer than MinBatch times m messages of devices that have
// some. A contribution whose token does not hold is dropped before the count, as one that
// does not open; such a message is one that did not open, and one whose tag was counted has
// come again. [Status] counts both ("unproved" and "spent"). Tags are in memory alone, while
// the round is opened.
//
// # Failure
//
// Run fails where the disk does; the hop is opened anew then, by the code that recovers
// from a loss of power. A round that nothing came of within Hold of its time ends, and
// [Status] counts it; so does one whose hop was off for as long. A clock that is set
// forward costs the rounds under way, and set back again no other: a round has one key,
// ever.
package hop
