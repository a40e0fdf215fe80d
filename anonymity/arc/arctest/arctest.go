// Package arctest has the functions of package arc that draw randomness, with randomness
// that a test chooses: 48 bytes for each scalar. Chosen randomness destroys anonymity and
// shows keys; nothing but tests may import this package.
package arctest

import (
	"io"

	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/internal/derand"
)

// GenerateKey is [arc.GenerateKey] with the draft's order of scalars: x0, x1, x2,
// x0Blinding.
func GenerateKey(rand io.Reader) *arc.PrivateKey {
	return arc.GenerateKeyDerandomized(derand.New(rand))
}

// NewPending is [arc.NewPending]: m1, r1, r2, and four scalars for the proof.
func NewPending(c arc.RequestContext, rand io.Reader) *arc.Pending {
	return arc.NewPendingDerandomized(c, derand.New(rand))
}

// Respond is [arc.PrivateKey.Respond]: b, and seven scalars for the proof.
func Respond(k *arc.PrivateKey, q *arc.CredentialRequest, rand io.Reader) (*arc.CredentialResponse, error) {
	return k.RespondDerandomized(q, derand.New(rand))
}

// Present is [arc.Credential.Present]: a, r, z, and three scalars for the proof.
func Present(c *arc.Credential, t *arc.TagBase, b arc.Binding, rand io.Reader) *arc.Presentation {
	return c.PresentDerandomized(t, b, derand.New(rand))
}

// PresentLimited makes one presentation of a chosen number under a limit, as
// [arc.PresentationState.Present] does: a, r, z, the blinding of the nonce, those of all
// bits but the last, and a scalar of the proof for each of the statement.
func PresentLimited(c *arc.Credential, t *arc.TagBase, b arc.Binding, number, limit int, rand io.Reader) *arc.LimitedPresentation {
	return c.PresentLimitedDerandomized(t, b, number, limit, derand.New(rand))
}

// PresentDraft is the draft's Present, with its session, which is bound to nothing, and the
// scalars of [PresentLimited].
func PresentDraft(c *arc.Credential, t *arc.TagBase, number, limit int, rand io.Reader) *arc.DraftPresentation {
	return c.PresentDraftDerandomized(t, number, limit, derand.New(rand))
}

// VerifyLimitedBatch is [arc.Verifier.VerifyLimitedBatch], which takes 16 bytes for each
// factor.
func VerifyLimitedBatch(v *arc.Verifier, items []arc.LimitedItem, limit int, rand io.Reader) []error {
	return v.VerifyLimitedBatchDerandomized(items, limit, derand.New(rand))
}

// VerifyBatch is [arc.Verifier.VerifyBatch], which takes 16 bytes for each factor.
func VerifyBatch(v *arc.Verifier, items []arc.Item, rand io.Reader) []error {
	return v.VerifyBatchDerandomized(items, derand.New(rand))
}
