// Package onion has the bytes of the shuffled and of the direct path: what a device sends,
// what hops and analyzer say to each other, and who has signed it. It knows no recipe, no
// network and no clock.
//
// # Layers
//
// A contribution is what one device sends in a round: m messages of one size. Each message
// is sealed to the analyzer, that to hop 2, and the m results, in an order that the device
// draws, to hop 1, as one envelope ([Shape.Seal]). On the direct path the m messages are
// sealed to the analyzer at once ([Shape.SealDirect]). All envelopes of a recipe are of one
// size. Layers are HPKE (RFC 9180, base mode, X25519, HKDF-SHA256, AES-128-GCM), with
//
//	info = "starling shuffle v1" || role uint8 || recipe id[32] || round uint64
//
// so that nothing opens at another party, for another recipe or in another round.
//
//	struct {
//	    uint8 version = 1; uint24 length; uint64 round;  (length: of all that follows it)
//	    opaque enc[32]; opaque ciphertext[length - 40];  (to hop 1, or to the analyzer)
//	} Envelope;
//	struct { opaque token[EnvelopeToken]; Onion onions[m]; } to hop 1;
//	struct { opaque enc[32]; opaque ciphertext[..]; } Onion;       (to hop 2)
//	struct { opaque token[MessageToken]; Sealed sealed; } to hop 2;
//	struct { opaque enc[32]; opaque ciphertext[Size + 16]; } Sealed; (to the analyzer)
//
// The round stands in the clear, for a hop that opens nothing before the flush has to know
// which round's batch an envelope is for; it tells no more than the time of sending does.
// Changed, it makes an envelope that does not open.
//
// Tokens are presentations of a fixed size, bound to the layer below them and to what it is
// sealed under and beside ([Shape.AAD]). In the mode counted there are none, and their size
// is zero.
//
// # Signatures
//
// A [KeyList] has a party's HPKE keys of some rounds. A [Manifest] is what a hop says of a
// batch that it hands on: how many contributions, how many messages, and the root of the
// Merkle tree (RFC 9162 section 2.1) of the records in their order. Hop 2's holds hop 1's, so
// whoever has it holds both to the rules of the [Shuffle] ([OpenManifest]). A [Receipt] is
// the word of the next party that it has the whole batch. A [Result] is the analyzer's.
// All of them are by online keys, for which the root keys of a recipe's path vouch
// (package signed).
package onion
