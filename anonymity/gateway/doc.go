// Package gateway is the party that sees what is uploaded and not by whom: it opens the encapsulated requests that a relay
// brings (RFC 9458), and passes the uploads in them on to the leader.
//
// # What is passed on
//
// An upload to a target of the configuration, and nothing else: the gateway is no proxy. What an upload is, and how many
// are one, it asks a [Protocol] that whoever wires it brings along, for code of this wing cannot parse a report. A cover
// request is dropped.
//
// # Rounds
//
// Uploads of one window go on together ([Options.Window]), in an order drawn anew, many joined in one request, and their
// answers go back together at the end of a later window, as do those of cover requests. Neither the leader nor the relay
// learns from order or time which request became what; a round whose leader was slower than a window says only that it held
// at least one upload. An answer is the leader's: an upload is acknowledged when the leader has stored it, and the gateway
// stores none.
//
// What a round hides is who among its requests sent what: whoever watches the network on both sides of the gateway sees them
// come in, covers among them, and something go on. A round of one hides nothing. [Options.MinRound] sets the least: a round
// below it stays for further windows, and is refused as a whole when its first request has waited for [Options.MaxDelay] or
// the gateway stops; no upload ever goes on among fewer. The refusals are sealed, of one size, at the end of a window, as all
// answers. Each is then one of MinRound for a watcher who only watches. One who also sends, or a relay that holds requests back,
// can fill a round with its own and know the one that is left: a number of requests is no number of devices before tokens tell
// one device's from another's.
//
// Joined uploads do not share a fate: each was well-formed by itself, and where the leader refuses a joined request as a
// whole, its parts are sent one by one.
//
// # Keys
//
// Keys change while the gateway runs ([Gateway.SetKeys]). A process finds them in a directory ([Config.Epochs]), each beside
// the manifest that tells devices of it: a key is used from when both are there until some time after the end of the
// manifest ([Config.Overlap]), so that epochs overlap and no device is refused that followed its manifest. Then what it has
// opened is forgotten and its file removed; a recording of its requests cannot be opened any more, but for what a disk keeps of
// removed files. A request under a key that is gone is refused with the problem type of RFC 9458 section 5.3.
//
// # Replays
//
// A request is opened once in its key's life. A fingerprint of each is durable before the request is passed on
// ([disk.Log], with one fsync for many), so a crash forgets none; it is 8 bytes of SHA-256 over the encapsulated key, which
// under one key belongs to one request. Two different requests collide with a probability of n/2^64; the device then
// encapsulates anew. Memory is bounded: after [Options.MaxOpened] requests a key opens no more, until a new epoch brings
// another. A key that leaves takes its fingerprints with it, and a note is kept that it may never come back. Whoever loses
// the directory must change the key.
//
// Uploads are idempotent at the leader, so replays would not be counted twice. The gateway refuses them because a relay
// could otherwise ask one request's question again and watch how the answer's size or time changes.
package gateway
