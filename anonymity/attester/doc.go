// Package attester vouches for devices to the issuers of credentials: it is the one party
// that knows which devices there are, and it learns nothing else of them, neither what they
// answer nor whether (package visit has the messages).
//
// A device enrols once: it proves that it is one, as the [Attestation] has it, by a code
// of its operator's, by an ID token of an identity provider, or by a certificate, with a
// secret of its own, which it shows from then on. It then visits once for each key epoch,
// before that begins. Each is written down before anything comes of it: a device that got
// no answer brings the same bytes again and gets the same, and one that brings others is
// refused, so that it never has two credentials. It has both issuers' answers, or none.
//
// Where recipes ask for admission, the same visit has the gateway's tokens of all rounds
// of the epoch (package mint): one order goes to the gateway beside those to the issuers,
// and under the same rules. All visits of an epoch are of one size.
//
// An attester's operator can make up devices; each issuer's cap, in the manifest, bounds how
// many, and [Attester.Count] is public once an epoch begins.
package attester
