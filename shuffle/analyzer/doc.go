// Package analyzer implements the party that sees the messages of devices, and not whose they
// are: behind two hops it takes hop 2's batches; on the direct path, where it sees which
// messages came together, devices' envelopes.
//
// It hands the opened messages of a round to a function of its caller's, which knows the
// recipe, keeps what that makes of them durably, once, with the counts and the signatures of
// both hops ([onion.Result]), and gives it to whoever has a reader's token, at GET
// shuffles/ID/results/ROUND. The messages and the round's key are destroyed then.
//
// A batch is refused unless both hops have signed it: for this recipe and round, after
// its end and grace, of MinBatch contributions or more, of messages that are as many as m
// times that, with the root of the records that came. Messages that do not open here, or
// came twice, are counted; the tally is told how many messages are missing in all
// ([onion.Counts]), for sums of shares are wrong then. On the direct path the rules of
// hop 1 hold: package hop has them. Results are kept until the operator removes them.
//
// The package cannot read a recipe, and what it shows has what the tally says: whether that is
// private is the recipe's affair. The analyzer itself sees every message.
package analyzer
