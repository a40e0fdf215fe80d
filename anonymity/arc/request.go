package arc

import (
	"github.com/starling-agg/starling/anonymity/arc/internal/sigma"
	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// Lengths of a request for a credential, and of what a device keeps until the answer.
const (
	RequestSize = 2*p256.ElementSize + 5*p256.ScalarSize
	PendingSize = 4*p256.ScalarSize + RequestSize
)

// requestStatement: m1Enc = m1 G + r1 H, m2Enc = m2 G + r2 H. The scalars are m1, m2, r1,
// r2; the elements G, H, m1Enc, m2Enc.
var requestStatement = sigma.NewStatement(4, 4,
	sigma.Equation{Image: 2, Terms: []sigma.Term{{Scalar: 0, Element: 0}, {Scalar: 2, Element: 1}}},
	sigma.Equation{Image: 3, Terms: []sigma.Term{{Scalar: 1, Element: 0}, {Scalar: 3, Element: 1}}},
)

var requestSession = []byte(suite + "CredentialRequest")

// A CredentialRequest is what a device sends for a credential: two commitments, which hide
// its secrets and the context perfectly, and a proof that it knows what is in them
// (docs/proofs/tokens.md, theorem 3).
type CredentialRequest struct {
	m1Enc, m2Enc p256.Element
	proof        sigma.Proof
}

func (r *CredentialRequest) elements() []p256.Element {
	return []p256.Element{p256.Generator(), generatorH, r.m1Enc, r.m2Enc}
}

// A Pending is a device's side of a request until it is answered. The device keeps it
// before it sends the request, and sends the same request if an answer is lost.
type Pending struct {
	m1, m2, r1, r2 p256.Scalar
	request        CredentialRequest
}

// NewPending begins a request for a credential, with secrets of cryptographic randomness.
func NewPending(c RequestContext) *Pending { return NewPendingDerandomized(c, derand.Rand{}) }

// NewPendingDerandomized is [NewPending] with randomness that a test chooses
// (arctest.NewPending).
//
// Constant time; nothing of the secrets leaks.
func NewPendingDerandomized(c RequestContext, r derand.Rand) *Pending {
	rand := r.Reader()
	p := &Pending{m1: p256.RandomScalar(rand), m2: c.m2(), r1: p256.RandomScalar(rand), r2: p256.RandomScalar(rand)}
	p.request.m1Enc = affine(mulG(p.m1).Add(mulH(p.r1)))
	p.request.m2Enc = affine(mulG(p.m2).Add(mulH(p.r2)))
	p.request.proof = *requestStatement.Prove(rand, requestSession, p.request.elements(), generators(), []p256.Scalar{p.m1, p.m2, p.r1, p.r2})
	return p
}

// Request is what is sent.
func (p *Pending) Request() *CredentialRequest { return &p.request }

// Append appends the request, [RequestSize] bytes, to b.
func (r *CredentialRequest) Append(b []byte) []byte {
	b = appendElements(b, &r.m1Enc, &r.m2Enc)
	return appendScalars(r.proof.Challenge.Append(b), r.proof.Responses...)
}

// ReadCredentialRequest reads a request of [RequestSize] bytes. The error is a [Refusal].
// The proof is not verified yet; [PrivateKey.Respond] does.
func ReadCredentialRequest(b []byte) (*CredentialRequest, error) {
	r := read("credential request", b, RequestSize)
	q := new(CredentialRequest)
	r.element(&q.m1Enc, "m1Enc")
	r.element(&q.m2Enc, "m2Enc")
	r.proof(&q.proof.Challenge, &q.proof.Responses, requestStatement.Scalars())
	if r.err != nil {
		return nil, r.err
	}
	return q, nil
}

// Append appends the secrets and the request, [PendingSize] bytes, to b.
func (p *Pending) Append(b []byte) []byte {
	return p.request.Append(appendScalars(b, p.m1, p.m2, p.r1, p.r2))
}

// ReadPending reads what [Pending.Append] wrote. The error is a [Refusal].
func ReadPending(b []byte) (*Pending, error) {
	r := read("pending request", b, PendingSize)
	p := new(Pending)
	r.scalar(&p.m1, "m1")
	r.scalar(&p.m2, "m2")
	r.scalar(&p.r1, "r1")
	r.scalar(&p.r2, "r2")
	if r.err != nil {
		return nil, r.err
	}
	q, err := ReadCredentialRequest(r.b)
	if err != nil {
		return nil, err
	}
	p.request = *q
	return p, nil
}
