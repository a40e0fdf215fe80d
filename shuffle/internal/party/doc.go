// Package party is what hops and analyzers have in common: they take contributions or
// batches, open a whole round at once, and hand a batch on or tally it.
//
// # A round
//
// For each round of a recipe a party makes an HPKE key before the round begins, on its disk
// before it is in a list. A party that gathers (hop 1, and the analyzer of the direct path)
// appends envelopes to the round's log, opens none of them, and answers after the fsync. When
// the time has come, by its own clock, it closes the round and works on it. A party behind a
// hop takes that hop's batch in pieces, held to the signed manifest, and works on it when it
// is whole.
//
// To work on a round is to open all records, to drop what does not open or came twice, to
// refuse what is left below the least batch, and then, at a hop, to draw an order, to
// write the records in it into one file, and to sign its manifest. The manifest's file is
// the commit: without it nothing has left, and all is done again with another order; with
// it the same bytes leave again and again until the next party's receipt. The key and
// what came in are destroyed after the commit, before anything leaves: then nothing here
// links what came to what goes. The output goes with the receipt.
//
// An analyzer writes the result in the place of manifest and output.
//
// # The end of a round
//
// A round ends once, in one write of the recipe's state: delivered, tallied, few (below
// the least batch), none (no contribution came, or no batch within Hold of its time), or
// expired (the next party did not take it within Hold). Counts of that are in the same
// write. Its files are removed after, and so they are at a start that finds them.
//
// # Failure
//
// Where the disk fails, nothing more is taken, Run fails, and the party must be opened
// anew: the code that opens it recovers from a loss of power too. A directory that was
// put back to an older copy brings back keys of rounds that are over, and a batch in
// another order: the next party refuses it, for it has signed for the other
// ([ErrConflict]).
package party
