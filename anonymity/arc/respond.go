package arc

import (
	"maps"

	"github.com/starling-agg/starling/anonymity/arc/internal/sigma"
	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// ResponseSize is the length of an answer to a request, in bytes.
const ResponseSize = 6*p256.ElementSize + 8*p256.ScalarSize

// responseStatement has the scalars x0, x1, x2, x0Blinding, b, t1 = b x1, t2 = b x2, and
// the elements G, H, m1Enc, m2Enc, U, encUPrime, X0, X1, X2, X0Aux, X1Aux, X2Aux, HAux.
var responseStatement = sigma.NewStatement(7, 13,
	// X0 = x0 G + x0Blinding H; X1 = x1 H; X2 = x2 H
	sigma.Equation{Image: 6, Terms: []sigma.Term{{Scalar: 0, Element: 0}, {Scalar: 3, Element: 1}}},
	sigma.Equation{Image: 7, Terms: []sigma.Term{{Scalar: 1, Element: 1}}},
	sigma.Equation{Image: 8, Terms: []sigma.Term{{Scalar: 2, Element: 1}}},
	// HAux = b H; X0Aux = x0Blinding HAux
	sigma.Equation{Image: 12, Terms: []sigma.Term{{Scalar: 4, Element: 1}}},
	sigma.Equation{Image: 9, Terms: []sigma.Term{{Scalar: 3, Element: 12}}},
	// X1Aux = t1 H = b X1; X2Aux = b X2 = t2 H
	sigma.Equation{Image: 10, Terms: []sigma.Term{{Scalar: 5, Element: 1}}},
	sigma.Equation{Image: 10, Terms: []sigma.Term{{Scalar: 4, Element: 7}}},
	sigma.Equation{Image: 11, Terms: []sigma.Term{{Scalar: 4, Element: 8}}},
	sigma.Equation{Image: 11, Terms: []sigma.Term{{Scalar: 6, Element: 1}}},
	// U = b G
	sigma.Equation{Image: 4, Terms: []sigma.Term{{Scalar: 4, Element: 0}}},
	// encUPrime = b X0 + t1 m1Enc + t2 m2Enc
	sigma.Equation{Image: 5, Terms: []sigma.Term{{Scalar: 4, Element: 6}, {Scalar: 5, Element: 2}, {Scalar: 6, Element: 3}}},
)

// Numbers of the elements of responseStatement that are multiplied faster than others,
// beside those of the generators.
const (
	numberX0   = 6
	numberHAux = 12
)

// bases are the generators, and the elements of a key that is used often, in a map of the
// caller's own.
func (k *PublicKey) bases() sigma.Bases {
	all := maps.Clone(generators())
	for i, e := range []p256.Element{k.x0, k.x1, k.x2} {
		if f := often.of(e); f != nil {
			all[numberX0+i] = base(f)
		}
	}
	return all
}

var responseSession = []byte(suite + "CredentialResponse")

// A CredentialResponse is an issuer's answer: a credential under the commitments of the
// request, and a proof that it was made with the key that the public key is of.
type CredentialResponse struct {
	u, encUPrime, x0Aux, x1Aux, x2Aux, hAux p256.Element
	proof                                   sigma.Proof
}

func (r *CredentialResponse) elements(k *PublicKey, q *CredentialRequest) []p256.Element {
	return []p256.Element{p256.Generator(), generatorH, q.m1Enc, q.m2Enc, r.u, r.encUPrime,
		k.x0, k.x1, k.x2, r.x0Aux, r.x1Aux, r.x2Aux, r.hAux}
}

// Respond issues a credential to whoever made the request, if its proof holds. It is the
// caller's duty to do so once for each device and epoch: a second answer to the same
// request makes the same tags and harms nothing, an answer to another request is a second
// device. The error is a [Refusal] that wraps [ErrProof].
func (k *PrivateKey) Respond(q *CredentialRequest) (*CredentialResponse, error) {
	return k.RespondDerandomized(q, derand.Rand{})
}

// RespondDerandomized is [PrivateKey.Respond] with randomness that a test chooses
// (arctest.Respond).
//
// The proof of the request is public, and verified in variable time; what follows takes
// constant time, and nothing of the key or of b leaks.
func (k *PrivateKey) RespondDerandomized(q *CredentialRequest, rand derand.Rand) (*CredentialResponse, error) {
	if !requestStatement.VerifyCompact(requestSession, q.elements(), generators(), &q.proof) {
		return nil, &Refusal{"credential request", "proof", ErrProof}
	}
	source := rand.Reader()
	b := p256.RandomScalar(source)
	t1, t2 := b.Mul(k.x1), b.Mul(k.x2)
	r := &CredentialResponse{
		u:         affine(mulG(b)),
		encUPrime: affine(often.mul(b, k.public.x0).Add(p256.Mul(t1, q.m1Enc.Point())).Add(p256.Mul(t2, q.m2Enc.Point()))),
		x0Aux:     elementH(b.Mul(k.blinding)),
		x1Aux:     elementH(t1),
		x2Aux:     elementH(t2),
		hAux:      elementH(b),
	}
	// HAux is b H, so that its multiples are H's.
	bases := k.public.bases()
	bases[numberHAux] = sigma.Base{Secret: func(x p256.Scalar) (p256.Element, bool) { return fixedH().Mul(x.Mul(b)) }}
	r.proof = *responseStatement.Prove(source, responseSession, r.elements(&k.public, q), bases,
		[]p256.Scalar{k.x0, k.x1, k.x2, k.blinding, b, t1, t2})
	return r, nil
}

// Append appends the answer, [ResponseSize] bytes, to b.
func (r *CredentialResponse) Append(b []byte) []byte {
	b = appendElements(b, &r.u, &r.encUPrime, &r.x0Aux, &r.x1Aux, &r.x2Aux, &r.hAux)
	return appendScalars(r.proof.Challenge.Append(b), r.proof.Responses...)
}

// ReadCredentialResponse reads an answer of [ResponseSize] bytes. The error is a
// [Refusal]. The proof is not verified yet; [Pending.Finalize] does.
func ReadCredentialResponse(b []byte) (*CredentialResponse, error) {
	r := read("credential response", b, ResponseSize)
	a := new(CredentialResponse)
	r.element(&a.u, "U")
	r.element(&a.encUPrime, "encUPrime")
	r.element(&a.x0Aux, "X0Aux")
	r.element(&a.x1Aux, "X1Aux")
	r.element(&a.x2Aux, "X2Aux")
	r.element(&a.hAux, "HAux")
	r.proof(&a.proof.Challenge, &a.proof.Responses, responseStatement.Scalars())
	if r.err != nil {
		return nil, r.err
	}
	return a, nil
}
