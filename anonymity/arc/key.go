package arc

import (
	"crypto/sha256"

	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// Lengths of keys, in bytes.
const (
	PublicKeySize  = 3 * p256.ElementSize
	PrivateKeySize = 4 * p256.ScalarSize
)

// A PublicKey of an issuer is what devices take from the log, and verify answers with. All
// devices must see the same one: an issuer with a key for each device would know each.
type PublicKey struct{ x0, x1, x2 p256.Element }

// A PrivateKey of an issuer issues credentials and verifies presentations. It serves one
// key epoch: what separates the credentials of two epochs is that their keys differ, for
// an issuer cannot see for which context a request is made.
type PrivateKey struct {
	x0, x1, x2, blinding p256.Scalar
	public               PublicKey
}

// GenerateKey makes a key pair of cryptographic randomness.
func GenerateKey() *PrivateKey { return GenerateKeyDerandomized(derand.Rand{}) }

// GenerateKeyDerandomized is [GenerateKey] with randomness that a test chooses
// (arctest.GenerateKey).
func GenerateKeyDerandomized(r derand.Rand) *PrivateKey {
	rand := r.Reader()
	return newPrivateKey(p256.RandomScalar(rand), p256.RandomScalar(rand), p256.RandomScalar(rand), p256.RandomScalar(rand))
}

// newPrivateKey computes the public key. Constant time.
func newPrivateKey(x0, x1, x2, blinding p256.Scalar) *PrivateKey {
	return &PrivateKey{x0, x1, x2, blinding, PublicKey{
		x0: affine(mulG(x0).Add(mulH(blinding))),
		x1: elementH(x1),
		x2: elementH(x2),
	}}
}

// affine is a point that is the identity with probability 2^-256 and so never.
func affine(p *p256.Point) p256.Element {
	e, ok := p.Element()
	if !ok {
		panic("arc: internal error: a random point is the identity")
	}
	return e
}

// PublicKey returns the public part.
func (k *PrivateKey) PublicKey() *PublicKey { return &k.public }

// Append appends the private key, four scalars, to b: x0, x1, x2 and the blinding of x0.
func (k *PrivateKey) Append(b []byte) []byte {
	return appendScalars(b, k.x0, k.x1, k.x2, k.blinding)
}

// ReadPrivateKey reads a private key of [PrivateKeySize] bytes. The error is a [Refusal].
func ReadPrivateKey(b []byte) (*PrivateKey, error) {
	r := read("private key", b, PrivateKeySize)
	var x0, x1, x2, blinding p256.Scalar
	r.scalar(&x0, "x0")
	r.scalar(&x1, "x1")
	r.scalar(&x2, "x2")
	r.scalar(&blinding, "x0Blinding")
	if r.err != nil {
		return nil, r.err
	}
	return newPrivateKey(x0, x1, x2, blinding), nil
}

// Append appends the public key, three elements, to b.
func (k *PublicKey) Append(b []byte) []byte { return appendElements(b, &k.x0, &k.x1, &k.x2) }

// ReadPublicKey reads a public key of [PublicKeySize] bytes. The error is a [Refusal].
func ReadPublicKey(b []byte) (*PublicKey, error) {
	r := read("public key", b, PublicKeySize)
	k := new(PublicKey)
	r.element(&k.x0, "X0")
	r.element(&k.x1, "X1")
	r.element(&k.x2, "X2")
	if r.err != nil {
		return nil, r.err
	}
	return k, nil
}

// A KeyID names a public key.
type KeyID [sha256.Size]byte

// ID returns the key's name: SHA-256 of a domain string and the key's bytes.
func (k *PublicKey) ID() KeyID {
	return sha256.Sum256(k.Append([]byte("starling arc key v1")))
}
