// Package arc has anonymous rate-limited credentials: a device shows that it holds a
// credential of an issuer, at most once in a context (ARC-1) or as often as a limit says
// (ARC), and nothing else of itself. Presentations cannot be linked to each other, nor to
// the issuance of the credential, by anybody, the issuer included.
//
// # Why there are two of each
//
// A credential is verified with the key that issues it, so that whoever verifies can mint.
// There are therefore two issuers, one beside each aggregator, and a device has a
// credential of each for every key epoch; a report carries a presentation to each
// aggregator, inside the share that is sealed to it. Forging takes leader and helper
// together, or the attester that vouches for devices. Each of the two hops of a shuffler
// has an issuer of its own for the same reason: no hop can fill a batch for the other.
// docs/proofs/tokens.md has the argument whole.
//
// # The way of a credential, a file for each verb
//
//	key.go       an issuer makes a key pair; the public key is logged
//	context.go   contexts: bytes that device and verifier derive alike, of logged facts only
//	request.go   a device asks for a credential: [NewPending]
//	respond.go   the issuer answers without learning the credential: [PrivateKey.Respond]
//	finalize.go  the device checks the answer and has its [Credential]
//	bind.go      what a presentation is bound to: one report and one share
//	present.go   the device shows it: [Credential.Present]
//	verify.go    the aggregator verifies one presentation: [Verifier.Verify]
//	batch.go     or many at once: [Verifier.VerifyBatch]
//	cohort.go    when a device may present at all
//	limited.go   presentations under a limit above 1, verified alone or many at once
//	state.go     what a device keeps of them: each number is shown once
//	draft.go     the draft's own presentations, to the byte, for its vectors
//
// # What follows drafts, and what is ours
//
// Keys, requests, responses and credentials are those of draft-ietf-privacypass-arc-crypto
// of March 2026 with ciphersuite ARC(P-256), byte for byte, with the older Fiat-Shamir
// transform that it pins (package sigma). A presentation is the draft's with the limit 1,
// which the draft does not define: its nonce, the commitment to it and the range proof are
// left out, the proof is in batchable form, and its session names what it is bound to. Its
// tag depends on nothing but the credential and the context, so that the device keeps no
// state, and a copied device makes the same tag again and is refused.
//
// Under a limit a presentation has the draft's elements and equations, nonce and range
// proof included, and differs in two things alone: its proof is in batchable form, and its
// session names the limit and what it is bound to. A device keeps a [PresentationState] for
// each context.
//
// The package has no clock, no disk and no network. Verifiers keep their own list of
// tags, and count one only when they accept the report that it came with.
package arc
