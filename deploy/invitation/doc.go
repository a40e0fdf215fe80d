// Package invitation lets two owners share secrets without ever sending one.
//
// Each party of a deployment makes a long-term X25519 key ([Key]), which never leaves it,
// and an [Invitation]: a short text with its role, its owner, its address and the public
// half of the key. Invitations are public, and travel by any way. A party that takes one
// first has its owner read out the fingerprint, over another way: from then on nobody
// between the two can pass for either.
//
// From its own key and another's invitation a party computes the [Secret] of the two:
// X25519, and HKDF-SHA-256 over it with both roles and both public keys as context, so
// that neither side can be made to take the other for a third. Of it follow, for each
// task, a bearer token and the VDAF verification key, the latter by taskprov's derivation
// ([dap.DeriveVerifyKey]). Two who hold each other's true invitation hold the same of
// all of it; nothing else is left to be compared.
//
// The addresses and certificates of an invitation do not enter the secret, so
// that a new certificate changes no key.
package invitation
