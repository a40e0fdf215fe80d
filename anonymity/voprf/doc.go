// Package voprf is the verifiable oblivious pseudorandom function of RFC 9497 with the suite
// P256-SHA256, and tokens for admission that are made with it.
//
// A server with a key evaluates the function on what it cannot see: a client blinds its
// input ([Blind]), the server evaluates and proves that it did so with the key that
// everybody knows ([Key.Evaluate]), the client checks that and takes the blind off
// ([Blinding.Finalize]). Nobody can link the output to the request, whatever the server
// keeps; and nobody can have more outputs than it evaluated (docs/proofs/tokens.md, theorem
// 6).
//
// A gateway admits one request of a device in a round for one [Token] of that round's key:
// reports, dummies and covers alike, so that a round's size counts devices. A token is
// verified by its issuer alone, with one multiplication and a hash; credentials of package
// arc would cost several times that, and are for who verifies rarely.
package voprf
