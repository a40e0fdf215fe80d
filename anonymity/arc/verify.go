package arc

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// A Verifier verifies presentations of the credentials of one key and request context. Any
// number of goroutines may use it.
type Verifier struct {
	// u and x1 are the key, as a presentation needs it: V = u U + x1 m1Commit -
	// UPrimeCommit, u = x0 + x2 m2.
	u, x1    p256.Scalar
	publicX1 p256.Element
	marks    [sha256.Size]byte // key of Mark
}

// Verifier returns a verifier of what is issued under the key for a request context.
func (k *PrivateKey) Verifier(c RequestContext) *Verifier {
	return &Verifier{k.x0.Add(k.x2.Mul(c.m2())), k.x1, k.public.x1, sha256.Sum256(k.Append([]byte("starling spent tag v1")))}
}

// MarkSize is the length of what a verifier keeps of a tag, in bytes.
const MarkSize = 16

// Mark is what a verifier keeps of a tag that it counted: HMAC-SHA256 of it, cut to
// [MarkSize] bytes, under a key that follows from the issuer's. When that is destroyed, what
// was kept tells nothing any more, not even to who seizes a device with its credential. Two
// tags of a million have one mark with a probability of 2^-88.
func (v *Verifier) Mark(t Tag) (mark [MarkSize]byte) {
	h := hmac.New(sha256.New, v.marks[:])
	h.Write(t[:])
	copy(mark[:], h.Sum(nil))
	return mark
}

// An Item is one presentation to verify: in which context, and for which report and share
// the verifier got it.
type Item struct {
	Base         *TagBase
	Binding      Binding
	Presentation *Presentation
}

// Verify verifies one presentation, each equation by itself. The error is a [Refusal] that
// wraps [ErrProof]: the credential is of another key or epoch, the context another, the
// binding another, or there is none.
//
// It tells nothing of the tag; [Presentation.Tag] says what to do with it.
func (v *Verifier) Verify(i Item) error {
	elements, err := v.elements(i)
	if err != nil {
		return err
	}
	proof := i.Presentation.proof // a copy, which gets its challenge
	if presentationStatement.VerifyBatchable(presentationSession(i.Binding), elements, generators(), &proof) >= 0 {
		return plain.refusal()
	}
	return nil
}

func (v *Verifier) elements(i Item) ([]p256.Element, error) {
	p := i.Presentation
	point, err := v.point("presentation", &p.u, &p.m1Commit, &p.uPrimeCommit)
	if err != nil {
		return nil, err
	}
	return p.elements(&point, &v.publicX1, i.Base), nil
}

// point is V, for which the key works in constant time; what leaks is whether V is the
// identity, which ends the presentation.
func (v *Verifier) point(message string, u, m1Commit, uPrimeCommit *p256.Element) (p256.Element, error) {
	e, ok := p256.Mul(v.u, u.Point()).Add(p256.Mul(v.x1, m1Commit.Point())).Sub(uPrimeCommit.Point()).Element()
	if !ok {
		return e, &Refusal{message, "V", ErrProof}
	}
	return e, nil
}
