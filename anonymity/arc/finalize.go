package arc

import "github.com/starling-agg/starling/anonymity/internal/p256"

// CredentialSize is the length of a credential as a device keeps it, in bytes.
const CredentialSize = p256.ScalarSize + 3*p256.ElementSize

// A Credential is a device's own, of one issuer and epoch. Presenting changes nothing of
// it. It recognises the tags of its past presentations, so that a device destroys it at
// the end of its epoch.
type Credential struct {
	m1            p256.Scalar
	u, uPrime, x1 p256.Element
}

// Finalize makes a credential of the answer to a request, if it is proved under the public
// key, which the device took from the log. The error is a [Refusal] that wraps [ErrProof].
//
// The proof of the answer is public, and verified in variable time; what follows takes
// constant time.
func (p *Pending) Finalize(k *PublicKey, r *CredentialResponse) (*Credential, error) {
	if !responseStatement.VerifyCompact(responseSession, r.elements(k, &p.request), k.bases(), &r.proof) {
		return nil, &Refusal{"credential response", "proof", ErrProof}
	}
	uPrime, ok := r.encUPrime.Point().Sub(r.x0Aux.Point()).
		Sub(p256.Mul(p.r1, r.x1Aux.Point())).Sub(p256.Mul(p.r2, r.x2Aux.Point())).Element()
	if !ok {
		return nil, &Refusal{"credential response", "UPrime", ErrProof}
	}
	return &Credential{p.m1, r.u, uPrime, k.x1}, nil
}

// Append appends the credential, [CredentialSize] bytes, to b: m1, U, UPrime, X1.
func (c *Credential) Append(b []byte) []byte {
	return appendElements(c.m1.Append(b), &c.u, &c.uPrime, &c.x1)
}

// ReadCredential reads what [Credential.Append] wrote. The error is a [Refusal].
func ReadCredential(b []byte) (*Credential, error) {
	r := read("credential", b, CredentialSize)
	c := new(Credential)
	r.scalar(&c.m1, "m1")
	r.element(&c.u, "U")
	r.element(&c.uPrime, "UPrime")
	r.element(&c.x1, "X1")
	if r.err != nil {
		return nil, r.err
	}
	return c, nil
}
