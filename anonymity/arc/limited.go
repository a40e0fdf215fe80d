package arc

import (
	"crypto/subtle"
	"encoding/binary"
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

// A LimitedPresentation shows that its maker has a credential, and is the draft's own: a
// credential makes as many different tags in one context as the limit says, one for each
// number (the draft's nonce) below it, and which number a presentation has does not show.
// Its elements and equations are the draft's, its proof is in batchable form, and its
// session names the limit and what it is bound to; [DraftPresentation] is the draft's to
// the byte.
//
// Two presentations of one number in a context have one tag, and so are linked:
// [PresentationState] gives each number once. Where one presentation in a context is
// enough, [Presentation] needs none of this. The limit does not go into the tag:
// presentations under two limits, or without one, share tags in one context, so that a
// context has one limit for ever.
type LimitedPresentation struct {
	limit                                       int
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

// numberNonceCommit is behind the elements of a presentation without a limit, and a
// commitment to each bit behind it.
const numberNonceCommit = presentationElements

// A limitedForm is the form of presentations under one limit.
type limitedForm struct {
	form
	limit int
	bases []int
	// committed is how many bits have commitments of their own: with one base its
	// commitment is nonceCommit, which the draft's vectors count once among the elements.
	committed int
}

// newLimitedForm has the scalars m1, z, -r, nonce, nonceBlinding, and for each base a bit,
// its blinding, and that times 1 - bit.
func newLimitedForm(limit int) *limitedForm {
	if limit < MinLimit || limit > MaxLimit {
		panic(fmt.Sprintf("arc: internal error: a limit of %d", limit))
	}
	type terms = []sigma.Term
	equations := []sigma.Equation{
		{Image: numberM1Commit, Terms: terms{{Scalar: 0, Element: numberU}, {Scalar: 1, Element: numberH}}},
		{Image: numberV, Terms: terms{{Scalar: 1, Element: numberX1}, {Scalar: 2, Element: numberG}}},
		{Image: numberNonceCommit, Terms: terms{{Scalar: 3, Element: numberG}, {Scalar: 4, Element: numberH}}},
		{Image: numberT, Terms: terms{{Scalar: 0, Element: numberTag}, {Scalar: 3, Element: numberTag}}},
	}
	all := bases(limit)
	n, committed, first := len(all), len(all), numberNonceCommit+1
	if n == 1 {
		committed, first = 0, numberNonceCommit
	}
	for i := range n {
		d := first + i
		equations = append(equations,
			sigma.Equation{Image: d, Terms: terms{{Scalar: 5 + i, Element: numberG}, {Scalar: 5 + n + i, Element: numberH}}},
			sigma.Equation{Image: d, Terms: terms{{Scalar: 5 + i, Element: d}, {Scalar: 5 + 2*n + i, Element: numberH}}})
	}
	s := sigma.NewStatement(5+3*n, numberNonceCommit+1+committed, equations...)
	if committed > 0 {
		sum := []sigma.Multiple{{Factor: p256.ScalarOf(1).Neg(), Element: numberNonceCommit}}
		for i, base := range all {
			sum = append(sum, sigma.Multiple{Factor: p256.ScalarOf(uint64(base)), Element: first + i})
		}
		s.Relate(sum...)
	}
	return &limitedForm{form{"limited presentation", s}, limit, all, committed}
}

func (p *LimitedPresentation) elements(v, x1 *p256.Element, t *TagBase) []p256.Element {
	e := []p256.Element{p256.Generator(), generatorH, p.u, p.uPrimeCommit, p.m1Commit, *v, *x1, p.tag, t.t, p.nonceCommit}
	return append(e, p.bits...)
}

// limitedSession is the draft's session with the limit and what the presentation is bound
// to.
func limitedSession(limit int, b Binding) []byte {
	b.check()
	s := []byte(suite + "CredentialPresentation" + "/starling-limited-1/")
	return append(binary.BigEndian.AppendUint32(s, uint32(limit)), b[:]...)
}

// PresentLimitedDerandomized makes one presentation, of a number that a test chooses, with
// its randomness (arctest.PresentLimited). [PresentationState.Present] is what devices use.
func (c *Credential) PresentLimitedDerandomized(t *TagBase, b Binding, number, limit int, r derand.Rand) *LimitedPresentation {
	return c.presentLimited(newLimitedForm(limit), t, limitedSession(limit, b), number, r)
}

// presentLimited takes constant time for a limit: nothing of the credential, the number
// or what is drawn leaks.
func (c *Credential) presentLimited(f *limitedForm, t *TagBase, session []byte, number int, r derand.Rand) *LimitedPresentation {
	if number < 0 || number >= f.limit {
		panic(fmt.Sprintf("arc: internal error: a presentation beyond its limit of %d", f.limit))
	}
	rand := r.Reader()
	a, blind, z := p256.RandomScalar(rand), p256.RandomScalar(rand), p256.RandomScalar(rand)
	u := p256.Mul(a, c.u.Point())
	blindG := mulG(blind)
	nonce, nonceBlinding := p256.ScalarOf(uint64(number)), p256.RandomScalar(rand)
	p := &LimitedPresentation{
		limit:        f.limit,
		u:            affine(u),
		uPrimeCommit: affine(p256.Mul(a, c.uPrime.Point()).Add(blindG)),
		m1Commit:     affine(p256.Mul(c.m1, u).Add(mulH(z))),
		nonceCommit:  affine(mulG(nonce).Add(mulH(nonceBlinding))),
		tag:          affine(p256.Mul(c.m1.Add(nonce).Invert(), t.t.Point())),
	}
	v := affine(p256.Mul(z, c.x1.Point()).Sub(blindG))

	n := len(f.bases)
	witness := append([]p256.Scalar{c.m1, z, blind.Neg(), nonce, nonceBlinding}, make([]p256.Scalar, 3*n)...)
	rest, left := number, nonceBlinding
	for i, base := range f.bases {
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
		if f.committed > 0 {
			p.bits = append(p.bits, affine(mulG(b).Add(mulH(s))))
		}
	}
	p.proof = *f.statement.Prove(rand, session, p.elements(&v, &c.x1, t), generators(), witness)
	return p
}

// A LimitedItem is one presentation to verify under a limit, as [Item] is without one.
type LimitedItem struct {
	Base         *TagBase
	Binding      Binding
	Presentation *LimitedPresentation
}

// VerifyLimited verifies one presentation against its limit, as a batch of one. The error
// is a [Refusal] that wraps [ErrProof].
func (v *Verifier) VerifyLimited(i LimitedItem, limit int) error {
	return v.VerifyLimitedBatch([]LimitedItem{i}, limit)[0]
}

// VerifyLimitedBatch verifies any number of presentations under one limit, which is the
// verifier's own word, and returns an error for each, nil for those that hold, as
// [Verifier.VerifyBatch] does.
func (v *Verifier) VerifyLimitedBatch(items []LimitedItem, limit int) []error {
	return v.VerifyLimitedBatchDerandomized(items, limit, derand.Rand{})
}

// VerifyLimitedBatchDerandomized is [Verifier.VerifyLimitedBatch] with randomness that a
// test chooses (arctest.VerifyLimitedBatch).
//
// The key works in constant time; what comes of it is public, and the rest takes variable
// time.
func (v *Verifier) VerifyLimitedBatchDerandomized(items []LimitedItem, limit int, r derand.Rand) []error {
	f := newLimitedForm(limit)
	errs := make([]error, len(items))
	claims := make([]claim, 0, len(items))
	for i, item := range items {
		elements, err := v.limitedElements(f, item.Base, item.Presentation)
		if err != nil {
			errs[i] = err
			continue
		}
		claims = append(claims, f.claim(i, limitedSession(limit, item.Binding), elements, item.Presentation.proof))
	}
	f.settle(claims, together, r.Reader(), errs)
	return errs
}

func (v *Verifier) limitedElements(f *limitedForm, t *TagBase, p *LimitedPresentation) ([]p256.Element, error) {
	if p.limit != f.limit {
		return nil, &Refusal{f.message, "limit", ErrProof}
	}
	point, err := v.point(f.message, &p.u, &p.m1Commit, &p.uPrimeCommit)
	if err != nil {
		return nil, err
	}
	return p.elements(&point, &v.publicX1, t), nil
}

// Tag returns the presentation's tag, as [Presentation.Tag] does.
func (p *LimitedPresentation) Tag() Tag { return Tag(p.tag.Append(nil)) }

// LimitedSize is the length of a limited presentation, in bytes: 620 under a limit of 2,
// 1,238 under one of 10.
func LimitedSize(limit int) int { return newLimitedForm(limit).size() }

func (f *limitedForm) size() int {
	return 1 + (5+f.committed+f.statement.Equations())*p256.ElementSize + f.statement.Scalars()*p256.ScalarSize
}

// Append appends the presentation, [LimitedSize] bytes, to b: a version, U, UPrimeCommit,
// m1Commit, tag, nonceCommit, under a limit above 2 the draft's D, and then the proof's
// commitments and responses.
func (p *LimitedPresentation) Append(b []byte) []byte {
	b = p.appendElements(append(b, limitedVersion))
	for i := range p.proof.Commitments {
		b = p.proof.Commitments[i].Append(b)
	}
	return appendScalars(b, p.proof.Responses...)
}

func (p *LimitedPresentation) appendElements(b []byte) []byte {
	b = appendElements(b, &p.u, &p.uPrimeCommit, &p.m1Commit, &p.tag, &p.nonceCommit)
	for i := range p.bits {
		b = p.bits[i].Append(b)
	}
	return b
}

// ReadLimitedPresentation reads a presentation of [LimitedSize] bytes for a limit of
// [MinLimit] to [MaxLimit], which its reader knows. The error is a [Refusal]. Nothing is
// verified yet ([Verifier.VerifyLimited]).
func ReadLimitedPresentation(b []byte, limit int) (*LimitedPresentation, error) {
	f := newLimitedForm(limit)
	r := read(f.message, b, f.size())
	r.version(limitedVersion)
	p := &LimitedPresentation{limit: limit}
	r.limited(p, f.committed)
	p.proof.Commitments = r.elements(f.statement.Equations(), "R")
	p.proof.Responses = r.scalars(f.statement.Scalars(), "response")
	if r.err != nil {
		return nil, r.err
	}
	return p, nil
}

// limited reads what both encodings of a presentation begin with.
func (r *reader) limited(p *LimitedPresentation, bits int) {
	r.element(&p.u, "U")
	r.element(&p.uPrimeCommit, "UPrimeCommit")
	r.element(&p.m1Commit, "m1Commit")
	r.element(&p.tag, "tag")
	r.element(&p.nonceCommit, "nonceCommit")
	p.bits = r.elements(bits, "D")
}
