// Package gateway implements the party that sees uploads and not their senders: it opens
// the encapsulated requests that a relay brings (RFC 9458), keeps the uploads in them,
// and passes them on to the leader.
//
// # What is passed on
//
// An upload to a target of the configuration, and nothing else: the gateway is no proxy.
// Code of this wing cannot parse a report, so the gateway asks a [Protocol], which its
// caller provides, whether a request is an upload, which id the report in it has, and how
// uploads are joined. A cover request is dropped, and so is a report that came before.
//
// # One answer
//
// The requests between two ticks, the multiples of [Options.Window], make one round. At
// the tick it is written to the disk as a whole; at the first tick after that all its
// requests are answered at once, in a drawn order, by one constant: status 202, nothing
// else, of one size, whatever is inside. (Requests that are for nobody here get another
// constant, 421, which no two kinds of one recipe's requests differ in.) Only then, at a
// later tick, does the leader hear anything. So no answer, its bytes or its time, depends
// on what the leader does, or on whether a request was a report. A refusal in the clear
// depends on nothing of the plaintext. The package that passes rounds on can import
// neither a request nor an answer, and the one that answers cannot import it;
// docs/proofs/exchange.md has what follows.
//
// # What 202 promises
//
// The upload is on the disk, and will be offered to its target, once and as it is, until
// the target has said its last word. It is lost only with the disk; when the target is
// away for longer than [Options.Hold], after which it would refuse the report itself;
// where [Options.MinRound] is above 1 and too few others have come by then; and when the
// target has closed the batch in the meantime. [Status] counts each, over all starts. Hold
// is counted in time that a running gateway has seen pass, so no clock that is set and no
// stop ends it; and a target that says that it has no such task is asked until then, for
// it may have been started wrongly.
//
// # Rounds
//
// Rounds of one task go on together, at the next multiple of [Options.Mix] at which they
// hold [Options.MinRound] requests, in an order drawn anew, many joined in one request.
// Neither the leader nor the relay learns from order or time which request became what.
// An upload is in one batch only and its request is the same bytes every time, over
// crashes too.
//
// A round hides which of its senders sent which request: an observer of the network on
// both sides of the gateway sees the requests come in, covers among them, and some go on.
// A round of one hides nothing. MinRound sets the least. Each is then one of MinRound for
// a watcher who only watches. One who also sends, or a relay that holds requests back,
// can fill a round with its own and know the one that is left: a number of requests is no
// number of devices, but where tokens tell one device's from another's.
//
// # Admission
//
// A task that was ever given keys for tokens ([Options.Admission], or a directory of
// them) asks for one in every request, covers included: package admission has the field.
// Only the first request with a token of a round whose time it is counts in MinRound, and
// only its upload goes on. Every other is a cover that does not count, is answered as all
// others, and takes room until then and no longer. That tells nothing of what was drawn:
// a device has one token for its unit of a round, whatever that is, and shows it in each
// try. All there is to compute is computed before anything depends on the kind of a
// request.
//
// A token is known by 16 bytes of a keyed hash, on the disk with its round as the names
// of reports are, and in a log of the list of its key, which the journal vouches for. It
// is forgotten with that list, when the grace of the last round is over: then the list
// may never come back. A list lets in [Options.MaxOpened] tokens at most. At the turn of
// a round the same device may show a token of either: what waits goes on once MinRound
// requests with tokens of one round wait, and so as many devices. Such a device's two
// requests are of two rounds for leader and helper too, which count each where it
// belongs.
//
// # Room
//
// A request that counts takes room from when it arrives until its round is done with,
// covers like reports, for as long: else an attacker who filled all the room but one
// place, and looked whether a stranger's request took it, would learn its kind. So a
// round that holds only covers of a task is done with when the target has answered an
// empty request. Room is given back per task, in the order of its rounds, at ticks.
// Without room all kinds are refused; nothing that was acknowledged ever goes for it.
//
// # Keys
//
// Keys change while the gateway runs. A process finds them in a directory (epochs in
// gateway.toml), each beside the manifest that tells devices of it: a key is used from
// when both are there until some time after the end of the manifest (overlap in
// gateway.toml), so that epochs overlap and no device is refused that followed its
// manifest. Then what it has opened is forgotten and its file removed; a recording of its
// requests cannot be opened any more, but for what a disk keeps of removed files. A
// request under a key that is gone is refused with the problem type of RFC 9458 section
// 5.3.
//
// # Replays
//
// A request is opened once in its key's life. A fingerprint of each is durable before it
// is answered or passed on, so a crash forgets none; it is 8 bytes of SHA-256 over the
// encapsulated key, which under one key belongs to one request. Two different requests
// collide with a probability of n/2^64; the device then encapsulates anew. Memory is
// bounded: after [Options.MaxOpened] requests a key opens no more. A key that leaves
// takes its fingerprints with it, and a note is kept that it may never come back.
//
// An operator who loses the directory must change the key, and the gateway sees to it: a
// second directory, the record, holds how far the first has come, and a note beside a key
// with which state it was used ([Key.Note]). Directories that do not fit each other, that
// were damaged or put back, are refused ([StateError]).
//
// The names of reports live as long as the fingerprints of the key under which they came:
// a device that was not answered comes again under a fresh encapsulation, and its report
// is passed on once.
package gateway
