// Package signed signs and verifies for owners of servers: their Ed25519 keys, the
// statements that they sign, and the keys that a device knows.
//
// Each owner has a root key, which stays offline and stands in recipes, and signs an
// online key for at most [MaxOnline] ([Delegate]); the server signs with that one. A
// [Signature] carries the whole chain, so that a verifier who knows the root needs
// nothing else. A signature is over a domain string, a zero byte and the message, so that
// no signature passes for one about something else.
//
// A [List] is the HPKE keys that one aggregator offers, for one deployment, role, address
// and time. [Anchors] are the root keys that come with the software, apart from recipes:
// a device takes part only where the keys of a recipe are among them and belong to
// different owners. A [Record] remembers what a party has signed, so that it never signs
// two manifests of one epoch.
//
// Keys of small order and keys with more than one encoding are refused everywhere
// ([ErrKey]): under the former many messages verify with one signature, and the latter
// would let one key pass for two.
package signed
