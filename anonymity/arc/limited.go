package arc

import (
	"crypto/subtle"
	"fmt"
	"math/bits"
	"slices"

	"github.com/starling-agg/starling/anonymity/arc/internal/sigma"
	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// Limits of a [LimitedPresentation].
const (
	MinLimit = 2
	MaxLimit = 1 << 16
)

// limitedVersion is the first byte of a limited presentation.
const limitedVersion = 2

// A LimitedPresentation shows that its maker has a credential, and has the draft's own
// form: a credential makes as many different tags in one context as the limit says, one
// for each number below it, and which number a presentation has does not show.
//
// A device that presents one number twice in a context makes one tag twice, and so links
// the two presentations; it keeps the next number where no crash and no restored backup
// takes it back. Where one presentation in a context is enough, [Presentation] needs none
// of this. The limit does not go into the tag: presentations under two limits in one
// context share tags, so that a context has one limit for ever.
type LimitedPresentation struct {
	u, uPrimeCommit, m1Commit, tag, nonceCommit p256.Element
	bits                                        []p256.Element // the draft's D
	proof                                       sigma.Proof
}

// bases are the numbers of which every number below the limit is a sum, some of them left
// out, and no other number is: the draft's ComputeBases. They fall.
func bases(limit int) []int {
	n := bits.Len(uint(limit - 1))
	all := make([]int, 0, n)
	rest := limit
	for i := range n - 1 {
		all = append(all, 1<<i)
		rest -= 1 << i
	}
	all = append(all, rest-1)
	slices.SortFunc(all, func(a, b int) int { return b - a })
	return all
}

// limitedStatement has the scalars m1, z, -r, nonce, nonceBlinding, and for each of n
// bases a bit, its blinding and that times 1 - bit; and the elements of a presentation
// with nonceCommit behind, and a commitment for each bit. With one base that commitment is
// nonceCommit itself: the draft's vectors count it once, which its text does not say.
func limitedStatement(n int) *sigma.Statement {
	const numberNonceCommit = presentationElements
	equations := []sigma.Equation{
		{Image: numberM1Commit, Terms: []sigma.Term{{Scalar: 0, Element: numberU}, {Scalar: 1, Element: numberH}}},
		{Image: numberV, Terms: []sigma.Term{{Scalar: 1, Element: numberX1}, {Scalar: 2, Element: numberG}}},
		{Image: numberNonceCommit, Terms: []sigma.Term{{Scalar: 3, Element: numberG}, {Scalar: 4, Element: numberH}}},
		{Image: numberT, Terms: []sigma.Term{{Scalar: 0, Element: numberTag}, {Scalar: 3, Element: numberTag}}},
	}
	elements, firstBit := presentationElements+1+n, presentationElements+1
	if n == 1 {
		elements, firstBit = presentationElements+1, numberNonceCommit
	}
	for i := range n {
		d := firstBit + i
		equations = append(equations,
			sigma.Equation{Image: d, Terms: []sigma.Term{{Scalar: 5 + i, Element: numberG}, {Scalar: 5 + n + i, Element: numberH}}},
			sigma.Equation{Image: d, Terms: []sigma.Term{{Scalar: 5 + i, Element: d}, {Scalar: 5 + 2*n + i, Element: numberH}}})
	}
	return sigma.NewStatement(5+3*n, elements, fixed, equations...)
}

func (p *LimitedPresentation) elements(v, x1 *p256.Element, t *TagBase) []p256.Element {
	e := []p256.Element{p256.Generator(), generatorH, p.u, p.uPrimeCommit, p.m1Commit, *v, *x1, p.tag, t.t, p.nonceCommit}
	if len(p.bits) == 1 {
		return e
	}
	return append(e, p.bits...)
}

// draftSession is the session of the draft's presentations, which are bound to nothing.
var draftSession = []byte(suite + "CredentialPresentation")

// limitedSession is the draft's session with what the presentation is bound to.
func limitedSession(b Binding) []byte {
	b.check()
	return append([]byte(suite+"CredentialPresentation"+"/starling-limited-1/"), b[:]...)
}

// PresentLimited shows the credential in a context, bound to one report and share, as the
// presentation of a number from 0 on, which must be below the limit.
func (c *Credential) PresentLimited(t *TagBase, b Binding, number, limit int) *LimitedPresentation {
	return c.presentLimited(t, limitedSession(b), number, limit, derand.Rand{})
}

// PresentDraftDerandomized is [Credential.PresentLimited] with the draft's own session,
// bound to nothing, and with randomness that a test chooses (arctest.PresentDraft).
func (c *Credential) PresentDraftDerandomized(t *TagBase, number, limit int, r derand.Rand) *LimitedPresentation {
	return c.presentLimited(t, draftSession, number, limit, r)
}

// presentLimited takes constant time for a limit: nothing of the credential, the number
// or what is drawn leaks.
func (c *Credential) presentLimited(t *TagBase, session []byte, number, limit int, r derand.Rand) *LimitedPresentation {
	if limit < MinLimit || limit > MaxLimit || number < 0 || number >= limit {
		panic(fmt.Sprintf("arc: internal error: a presentation beyond its limit of %d", limit))
	}
	rand := r.Reader()
	a, blind, z := p256.RandomScalar(rand), p256.RandomScalar(rand), p256.RandomScalar(rand)
	u := p256.Mul(a, c.u.Point())
	blindG := mulG(blind)
	nonce, nonceBlinding := p256.ScalarOf(uint64(number)), p256.RandomScalar(rand)
	p := &LimitedPresentation{
		u:            affine(u),
		uPrimeCommit: affine(p256.Mul(a, c.uPrime.Point()).Add(blindG)),
		m1Commit:     affine(p256.Mul(c.m1, u).Add(mulH(z))),
		nonceCommit:  affine(mulG(nonce).Add(mulH(nonceBlinding))),
		tag:          affine(p256.Mul(c.m1.Add(nonce).Invert(), t.t.Point())),
	}
	v := affine(p256.Mul(z, c.x1.Point()).Sub(blindG))

	all := bases(limit)
	n := len(all)
	witness := append([]p256.Scalar{c.m1, z, blind.Neg(), nonce, nonceBlinding}, make([]p256.Scalar, 3*n)...)
	rest, left := number, nonceBlinding
	for i, base := range all {
		bit := subtle.ConstantTimeLessOrEq(base, rest)
		rest -= bit * base
		of := p256.ScalarOf(uint64(base))
		// The last blinding is what makes all commitments add up to nonceCommit.
		s := left.Mul(of.Invert())
		if i < n-1 {
			s = p256.RandomScalar(rand)
			left = left.Sub(of.Mul(s))
		}
		b := p256.ScalarOf(uint64(bit))
		witness[5+i], witness[5+n+i], witness[5+2*n+i] = b, s, p256.ScalarOf(1).Sub(b).Mul(s)
		p.bits = append(p.bits, affine(mulG(b).Add(mulH(s))))
	}
	p.proof = *limitedStatement(n).Prove(rand, session, p.elements(&v, &c.x1, t), witness)
	return p
}

// VerifyLimited verifies one presentation against its limit. The error is a [Refusal] that
// wraps [ErrProof].
func (v *Verifier) VerifyLimited(t *TagBase, b Binding, p *LimitedPresentation, limit int) error {
	return v.verifyLimited(t, limitedSession(b), p, limit)
}

// VerifyDraft is [Verifier.VerifyLimited] with the draft's own session, bound to nothing,
// for the draft's vectors.
func (v *Verifier) VerifyDraft(t *TagBase, p *LimitedPresentation, limit int) error {
	return v.verifyLimited(t, draftSession, p, limit)
}

func (v *Verifier) verifyLimited(t *TagBase, session []byte, p *LimitedPresentation, limit int) error {
	all := bases(limit)
	if len(p.bits) != len(all) {
		return &Refusal{"limited presentation", "limit", ErrProof}
	}
	scalars := make([]p256.Scalar, len(all))
	for i, base := range all {
		scalars[i] = p256.ScalarOf(uint64(base))
	}
	minus := p.nonceCommit.Neg()
	if !p256.VartimeProduct(scalars, p.bits).AddElement(&minus).IsIdentity() {
		return &Refusal{"limited presentation", "nonceCommit", ErrProof}
	}
	point, err := v.point("limited presentation", &p.u, &p.m1Commit, &p.uPrimeCommit)
	if err != nil {
		return err
	}
	if !limitedStatement(len(all)).VerifyCompact(session, p.elements(&point, &v.publicX1, t), &p.proof) {
		return &Refusal{"limited presentation", "proof", ErrProof}
	}
	return nil
}

// Tag returns the presentation's tag, as [Presentation.Tag] does.
func (p *LimitedPresentation) Tag() Tag { return Tag(p.tag.Append(nil)) }

// LimitedSize is the length of a limited presentation, in bytes: 455 under a limit of 2.
func LimitedSize(limit int) int {
	n := len(bases(limit))
	return 1 + (5+n)*p256.ElementSize + (6+3*n)*p256.ScalarSize
}

// Append appends the presentation to b: a version, and the draft's encoding.
func (p *LimitedPresentation) Append(b []byte) []byte {
	b = appendElements(append(b, limitedVersion), &p.u, &p.uPrimeCommit, &p.m1Commit, &p.tag, &p.nonceCommit)
	for i := range p.bits {
		b = p.bits[i].Append(b)
	}
	return appendScalars(p.proof.Challenge.Append(b), p.proof.Responses...)
}

// ReadLimitedPresentation reads a presentation of [LimitedSize] bytes for a limit of
// [MinLimit] to [MaxLimit], which its reader knows. The error is a [Refusal]. Nothing is
// verified yet ([Verifier.VerifyLimited]).
func ReadLimitedPresentation(b []byte, limit int) (*LimitedPresentation, error) {
	if limit < MinLimit || limit > MaxLimit {
		panic(fmt.Sprintf("arc: internal error: a limit of %d", limit))
	}
	r := read("limited presentation", b, LimitedSize(limit))
	r.version(limitedVersion)
	p := new(LimitedPresentation)
	r.element(&p.u, "U")
	r.element(&p.uPrimeCommit, "UPrimeCommit")
	r.element(&p.m1Commit, "m1Commit")
	r.element(&p.tag, "tag")
	r.element(&p.nonceCommit, "nonceCommit")
	p.bits = make([]p256.Element, len(bases(limit)))
	for i := range p.bits {
		r.element(&p.bits[i], "D")
	}
	r.proof(&p.proof.Challenge, &p.proof.Responses, 5+3*len(p.bits))
	if r.err != nil {
		return nil, r.err
	}
	return p, nil
}
