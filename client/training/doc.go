// Package training is a device's side of a training: it fetches the session of a recipe,
// the newest announcement and the model that it names, and believes nothing that the
// recipe's controller has not signed.
//
// # Who learns what
//
// What is fetched, and where, follows from the recipe and from what is announced to all: no
// device, and no coin of one, changes a path, a header or an order of requests. From a relay
// ([Remote.URL]) they come out of its memory, where it has what it asked the controller for
// on its own account, at times that no device has a part in. So the relay knows that an
// address takes an interest in a training, as it knows that one sends; the controller knows
// of no device. A device that fetches a model only for what its coin has it report would
// tell the relay of its coin: fetch it in each round, or in none that matters.
//
// Without a relay the controller sees addresses, and who asks. It sees no report in either
// case.
package training
