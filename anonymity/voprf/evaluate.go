package voprf

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// An Evaluation answers a request: an element for each of its own, and one proof that all
// are its elements times the key.
type Evaluation struct {
	elements            []p256.Element
	challenge, response p256.Scalar
}

// Evaluate answers a request, however many elements it has. Each is worth an output to its
// client: who issues tokens uses [Key.Issue].
func (k *Key) Evaluate(r *Request) *Evaluation { return k.EvaluateDerandomized(r, derand.Rand{}) }

// EvaluateDerandomized is [Key.Evaluate] with randomness that a test chooses
// (voprftest.Evaluate).
//
// The elements are public, and folded in variable time; the key and what the proof draws
// work in constant time.
func (k *Key) EvaluateDerandomized(r *Request, rand derand.Rand) *Evaluation {
	e := new(Evaluation)
	for i := range r.elements {
		e.elements = append(e.elements, affine(p256.Mul(k.k, r.elements[i].Point())))
	}
	factors := foldFactors(k.public, r.elements, e.elements)
	folded, ok := p256.VartimeElements([]*p256.Sum{p256.VartimeProduct(factors, r.elements)})
	if !ok {
		panic("voprf: internal error: hashed factors cancel each other out") // 2^128 steps, see [MaxBatch]
	}
	m := folded[0].Point()
	z := affine(p256.Mul(k.k, m))
	draw := p256.RandomScalar(rand.Reader())
	e.challenge = challenge(k.public, folded[0], z, affine(p256.MulBase(draw)), affine(p256.Mul(draw, m)))
	e.response = draw.Sub(e.challenge.Mul(k.k))
	return e
}

// foldFactors are those by which all pairs of elements become one (RFC 9497 section
// 2.2.1).
func foldFactors(k PublicKey, blinded, evaluated []p256.Element) []p256.Scalar {
	seed := sha256.Sum256(framed(framedElements(nil, k.e), []byte("Seed-"+suite)))
	factors := make([]p256.Scalar, len(blinded))
	for i := range factors {
		b := binary.BigEndian.AppendUint16(framed(nil, seed[:]), uint16(i))
		factors[i] = hashToScalar(append(framedElements(b, blinded[i], evaluated[i]), "Composite"...))
	}
	return factors
}

// challenge is that of the proof that z is m times the key.
func challenge(k PublicKey, m, z, t2, t3 p256.Element) p256.Scalar {
	return hashToScalar(append(framedElements(nil, k.e, m, z, t2, t3), "Challenge"...))
}

// proves reports whether an answer to a request is proved under a key.
func (e *Evaluation) proves(k PublicKey, r *Request) bool {
	factors := foldFactors(k, r.elements, e.elements)
	folded, ok := p256.VartimeElements([]*p256.Sum{p256.VartimeProduct(factors, r.elements), p256.VartimeProduct(factors, e.elements)})
	if !ok {
		return false
	}
	t2 := p256.VartimeProduct([]p256.Scalar{e.challenge}, []p256.Element{k.e})
	p256.FixedGenerator().VartimeAdd(t2, e.response)
	t, ok := p256.VartimeElements([]*p256.Sum{t2, p256.VartimeProduct([]p256.Scalar{e.response, e.challenge}, folded)})
	return ok && challenge(k, folded[0], folded[1], t[0], t[1]).Equal(e.challenge) == 1
}
