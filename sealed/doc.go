// Package sealed seals and opens messages with HPKE (RFC 9180, base mode, one message a
// context) over crypto/hpke. It knows suites, key pairs, key rings and batches, and
// nothing of the protocol: callers bring info, additional data and bytes.
//
// [PublicKey] seals. [KeyPair] is the private side, with a file format of its own; it
// never prints its secret. A [Keyring] holds the key pairs that an aggregator or
// collector accepts at one time, found by their one-byte config id. [Keyring.OpenBatch]
// opens many messages on workers that the caller brings; the package starts no
// goroutines.
//
// Destroying a key pair destroys what was sealed to it; that is how stored reports are
// shredded.
//
// A batch saves time: nearly all of an opening is one X25519 scalar multiplication, which
// crypto/hpke repeats for every message because each has a fresh ephemeral key. Key pairs
// are parsed, and public keys derived, once.
package sealed
