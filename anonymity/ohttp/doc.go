// Package ohttp implements Oblivious HTTP (RFC 9458) over binary HTTP (RFC 9292): one
// request, sealed to a gateway and sent through a relay, so that the relay sees the
// sender and not the content, and the gateway the content and not the sender.
//
// # Codec
//
// [KeyConfig] is a gateway's public key. [Encapsulate] seals a message to it and
// [Keyring] opens it at the gateway; each returns the other half of an exchange,
// [ResponseOpener] and [ResponseSealer]. Messages are a [Request] or a [Response] in
// binary HTTP: we write the known-length form, with every length there, and read both
// forms. [Pad] brings messages to sizes that all recipes share. Chunked Oblivious HTTP is
// left out: a report is of use only whole.
//
// The KEM is the key's choice: X25519, or X-Wing (ML-KEM-768 with X25519), which a
// recording made today withstands when there are quantum computers. It costs 1,088 bytes
// more a request; docs/bench/ohttp.md has the times.
//
// # Device
//
// [Transport] is the device's side as an [http.RoundTripper]. The uses that a key has
// stand in a [Manifest], which also holds the aggregators' keys, so that a device need
// not fetch those from servers that it hides from. There is no way around the relay in
// it.
//
// # What it does not hide
//
// Relay and gateway together see everything: they must have different owners. The relay,
// and an observer of the device's network, see that a device sends something, when, and a
// size out of few; cover requests ([MethodCover]) are for that. A manifest must be the
// same for all devices.
package ohttp
