package arc

import (
	"maps"

	"github.com/starling-agg/starling/anonymity/arc/internal/sigma"
	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// PresentationSize is the length of a presentation, in bytes: 328.
const PresentationSize = 1 + 7*p256.ElementSize + 3*p256.ScalarSize

// presentationVersion is the first byte of a presentation: the form of this package over
// the transform that ARC's draft of March 2026 pins.
const presentationVersion = 1

// Numbers of the elements of presentationStatement.
const (
	numberG = iota
	numberH
	numberU
	numberUPrimeCommit
	numberM1Commit
	numberV
	numberX1
	numberTag
	numberT
	presentationElements
)

// presentationStatement has the scalars m1, z, -r. It is the draft's without the nonce, of
// which all that is left is 0.
var presentationStatement = sigma.NewStatement(3, presentationElements,
	// m1Commit = m1 U + z H
	sigma.Equation{Image: numberM1Commit, Terms: []sigma.Term{{Scalar: 0, Element: numberU}, {Scalar: 1, Element: numberH}}},
	// V = z X1 - r G
	sigma.Equation{Image: numberV, Terms: []sigma.Term{{Scalar: 1, Element: numberX1}, {Scalar: 2, Element: numberG}}},
	// T = m1 tag
	sigma.Equation{Image: numberT, Terms: []sigma.Term{{Scalar: 0, Element: numberTag}}},
)

// presentationSession is the draft's session with what the presentation is bound to. A
// binding that was forgotten panics: it would be alike for maker and verifier, and so be
// taken, under any report.
func presentationSession(b Binding) []byte {
	b.check()
	return append([]byte(suite+"CredentialPresentation"+"/starling-1/"), b[:]...)
}

// A Presentation shows in one context that its maker has a credential, and holds for one
// binding.
type Presentation struct {
	u, uPrimeCommit, m1Commit, tag p256.Element
	proof                          sigma.Proof
}

// A Tag is the same whenever one credential is shown in one context, whatever it is bound
// to, and otherwise looks random (docs/proofs/tokens.md, theorems 1 and 3).
type Tag [p256.ElementSize]byte

// Tag returns the presentation's tag. A verifier takes it of a presentation that it
// verified, refuses one that it has counted in the context under another report id, and
// counts it when it accepts the report, not before: a report that is rejected for anything
// else burns nothing.
func (p *Presentation) Tag() Tag { return Tag(p.tag.Append(nil)) }

// Present shows the credential in a context, bound to one report and share, with
// cryptographic randomness. A device presents for every outcome of its draw, and throws
// away what it does not send, so that its time tells nothing.
func (c *Credential) Present(t *TagBase, b Binding) *Presentation {
	return c.PresentDerandomized(t, b, derand.Rand{})
}

// PresentDerandomized is [Credential.Present] with randomness that a test chooses
// (arctest.Present).
//
// Constant time; nothing of the credential, a, r or z leaks.
func (c *Credential) PresentDerandomized(t *TagBase, b Binding, rand derand.Rand) *Presentation {
	source := rand.Reader()
	a, r, z := p256.RandomScalar(source), p256.RandomScalar(source), p256.RandomScalar(source)
	u := p256.Mul(a, c.u.Point())
	rG := mulG(r)
	p := &Presentation{
		u:            affine(u),
		uPrimeCommit: affine(p256.Mul(a, c.uPrime.Point()).Add(rG)),
		m1Commit:     affine(p256.Mul(c.m1, u).Add(mulH(z))),
		tag:          affine(p256.Mul(c.m1.Invert(), t.t.Point())),
	}
	v := affine(often.mul(z, c.x1).Sub(rG))
	bases := generators()
	if f := often.of(c.x1); f != nil {
		bases = maps.Clone(bases)
		bases[numberX1] = base(f)
	}
	p.proof = *presentationStatement.Prove(source, presentationSession(b), p.elements(&v, &c.x1, t), bases, []p256.Scalar{c.m1, z, r.Neg()})
	return p
}

func (p *Presentation) elements(v, x1 *p256.Element, t *TagBase) []p256.Element {
	return []p256.Element{p256.Generator(), generatorH, p.u, p.uPrimeCommit, p.m1Commit, *v, *x1, p.tag, t.t}
}

// Append appends the presentation, [PresentationSize] bytes, to b: a version, U,
// UPrimeCommit, m1Commit, tag, three commitments of the proof, its responses for m1, z and
// -r.
func (p *Presentation) Append(b []byte) []byte {
	b = appendElements(append(b, presentationVersion), &p.u, &p.uPrimeCommit, &p.m1Commit, &p.tag)
	for i := range p.proof.Commitments {
		b = p.proof.Commitments[i].Append(b)
	}
	return appendScalars(b, p.proof.Responses...)
}

// ReadPresentation reads a presentation of [PresentationSize] bytes. The error is a
// [Refusal] whose field is the first that is wrong. Nothing is verified yet
// ([Verifier.Verify]).
func ReadPresentation(b []byte) (*Presentation, error) {
	r := read("presentation", b, PresentationSize)
	r.version(presentationVersion)
	p := new(Presentation)
	r.element(&p.u, "U")
	r.element(&p.uPrimeCommit, "UPrimeCommit")
	r.element(&p.m1Commit, "m1Commit")
	r.element(&p.tag, "tag")
	p.proof.Commitments = make([]p256.Element, presentationStatement.Equations())
	for i, field := range []string{"R1", "R2", "R3"} {
		r.element(&p.proof.Commitments[i], field)
	}
	p.proof.Responses = make([]p256.Scalar, presentationStatement.Scalars())
	for i, field := range []string{"response for m1", "response for z", "response for -r"} {
		r.scalar(&p.proof.Responses[i], field)
	}
	if r.err != nil {
		return nil, r.err
	}
	return p, nil
}
