// Package agent takes part in trainings for processes that come and go: a training
// process, in any language, hands its update to the agent of its machine and may end. The
// agent outlives it, and has what a device must not lose: the ledger, the coins, the
// credentials, and the time at which something is sent.
//
// # What is decided here
//
// Which recipes are answered, for how much privacy and with which data, is a matter of the
// agent's own file and of nobody who speaks to its socket ([Policy]). A process that is not
// in good faith can contribute nonsense within the recipe's bound; it cannot contribute
// more, more often, under another recipe, or learn what the coin said.
//
// # One contribution
//
// A contribution that is malformed, of another round or model, or against the policy is
// refused before a coin is tossed: so no refusal depends on one. Then the ledger is charged
// and the coins are tossed (package participate), and the answer is the same whatever they
// say: it is given before anything is sent, and after the same work. Sending goes on by
// itself, at fixed times through the relay.
//
// The same update for the same round again is answered alike and tosses nothing; another
// one is [ErrContributed]. After a restart every update of a round that was paid for is: what
// was not sent before is lost, and not sent twice.
//
// Where devices wait for a slot of a round ([recipe.Recipe.Slotted]) a process contributes
// in each slot, and the agent uses the one of the slot that it drew. In every other slot it
// changes its disk as if it were that one. The slot of each round is drawn in the one before.
//
// # Whose data
//
// One update is of one unit of the recipe. An agent of a site may take the updates of
// several persons of the site at a time: each is cut to the clipping norm and counts a P-th,
// where P is the most that recipe or policy allow. Where the recipe says so, its guarantee is
// about one of them, and else about the whole contribution, whoever makes it. That one
// person of P moves it by a P-th is this site's work, and rests on trusting the site
// (docs/proofs/units.md).
package agent
