package arc

import (
	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// A DraftPresentation is one as draft-ietf-privacypass-arc-crypto has it, to the byte: a
// compact proof, in a session that is bound to nothing, so that whoever sees it can show it
// for another message. It is for the draft's vectors and for peers that have only the
// draft; nothing of Starling is admitted by it.
type DraftPresentation struct{ p LimitedPresentation }

var draftSession = []byte(suite + "CredentialPresentation")

// PresentDraftDerandomized makes a presentation of a number below the limit, both chosen by
// a test as its randomness is (arctest.PresentDraft).
func (c *Credential) PresentDraftDerandomized(t *TagBase, number, limit int, r derand.Rand) *DraftPresentation {
	return &DraftPresentation{*c.presentLimited(newLimitedForm(limit), t, draftSession, number, r)}
}

// VerifyDraft verifies one against its limit: the draft's VerifyPresentation. The error is
// a [Refusal] that wraps [ErrProof].
func (v *Verifier) VerifyDraft(t *TagBase, p *DraftPresentation, limit int) error {
	f := newLimitedForm(limit)
	elements, err := v.limitedElements(f, t, &p.p)
	if err != nil {
		return err
	}
	if !f.statement.VerifyCompact(draftSession, elements, generators(), &p.p.proof) {
		return f.refusal()
	}
	return nil
}

// Tag returns the presentation's tag.
func (p *DraftPresentation) Tag() Tag { return p.p.Tag() }

// DraftSize is the length of a draft's presentation, in bytes: 487 under a limit of 2.
func DraftSize(limit int) int {
	f := newLimitedForm(limit)
	return (5+len(f.bases))*p256.ElementSize + (1+f.statement.Scalars())*p256.ScalarSize
}

// Append appends the presentation, [DraftSize] bytes, to b. Under a limit of 2 nonceCommit
// stands there twice, the second time as D.
func (p *DraftPresentation) Append(b []byte) []byte {
	b = p.p.appendElements(b)
	if len(p.p.bits) == 0 {
		b = p.p.nonceCommit.Append(b)
	}
	return appendScalars(p.p.proof.Challenge.Append(b), p.p.proof.Responses...)
}

// ReadDraftPresentation reads a presentation of [DraftSize] bytes for a limit of [MinLimit]
// to [MaxLimit]. The error is a [Refusal].
func ReadDraftPresentation(b []byte, limit int) (*DraftPresentation, error) {
	f := newLimitedForm(limit)
	r := read(f.message, b, DraftSize(limit))
	p := &DraftPresentation{LimitedPresentation{limit: limit}}
	r.limited(&p.p, f.committed)
	if f.committed == 0 {
		var d p256.Element
		if r.element(&d, "D"); r.err == nil && !d.Equal(&p.p.nonceCommit) {
			r.fail("D", ErrProof)
		}
	}
	r.proof(&p.p.proof.Challenge, &p.p.proof.Responses, f.statement.Scalars())
	if r.err != nil {
		return nil, r.err
	}
	return p, nil
}
