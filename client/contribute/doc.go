// Package contribute answers recipes of the shuffled and of the direct path on a person's
// device: it makes one contribution of an answer, sealed to two hops and an analyzer, or to
// an analyzer alone, and sends it.
//
// [New] opens a recipe's file as package client does, and refuses what that refuses.
// [Contributor.Refresh] fetches the key lists of all parties that a contribution reaches,
// [Contributor.Prepare] makes an envelope without network, and [Contributor.Send] sends
// envelopes: several in a request to the first hop or the analyzer, or through a relay and a
// gateway each alone, by the fixed tries that all devices have (client.Tries). The answer is
// a constant, whatever is in an envelope. The same envelope counts once, however often it is
// sent; a new one of the same answer counts again, so that who keeps a ledger (package
// participate) prepares once a round.
//
// # Key lists
//
// A list is taken if it is signed under the party's root key, which stands in the recipe's
// path and is one of the device's anchors; for this recipe and this party; not issued later
// than now; and with a key of the present round, each until that round's flush. No key
// stands for two rounds or two parties. All lists are fetched together, whichever is
// missing, once the last ones have no key of the present round.
//
// Lists are public. They come from the manifest of [Options.Client].Via where that pins
// them, and else straight from each party, for relay and gateway carry uploads alone.
// Then each party sees the network address of a device that follows the recipe, and when
// it asked; so a device asks at times that do not depend on whether, or what, it answers.
//
// Where the recipe names a log the lists come from there, one key of a party for a round, and
// from nowhere else ([ErrNotLogged]); so does the manifest behind a relay.
//
// # Credentials
//
// In the mode tokens a contribution shows hop 1 a credential, and each message one to hop 2
// (package showing). A device makes one contribution a round: a second in one process is
// refused ([ErrOnce]), and over restarts it is the ledger that prepares no second one. Where
// a ledger was put back, the hops count the first of two, and know that both are one device's.
//
// # What a device cannot see
//
// A party that gives each device a list of its own knows by the key which device's layer
// it opens. An analyzer that does so, and whom the device asks itself, reads whose
// messages are whose, past both hops. A device sees that a party changes the key of a
// round ([ErrConflict]), as long as the process lives, and nothing of what others were
// given. Lists that the manifest pins are the same for all devices if the gateway, which
// signs it, signs one of an epoch. Lists of a log are the same for all devices without
// anybody's word: the log takes one key of a round, and witnesses see that it shows one
// tree.
package contribute
