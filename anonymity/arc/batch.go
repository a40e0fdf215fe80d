package arc

import (
	"io"
	"slices"

	"github.com/starling-agg/starling/anonymity/arc/internal/sigma"
	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// together are the sizes in which presentations are verified: first many in one product,
// and, where those do not hold, few, and then one at a time. This bounds the cost of bad
// ones: one among 256 costs all a second look, in sixteens, and its fifteen neighbours a
// third; one in every sixteen makes all cost about a third more than they cost alone,
// under a limit two thirds (docs/bench/tokens.md). Halves would cost more there.
var together = []int{256, 16, 1}

// VerifyBatch verifies any number of presentations and returns an error for each, nil for
// those that hold, as [Verifier.Verify] would, but for a probability of 2^-128 that some
// presentations of a batch do not hold and are taken for such as do
// (docs/proofs/tokens.md, theorem 5). It costs less than half of what they cost alone.
func (v *Verifier) VerifyBatch(items []Item) []error {
	return v.VerifyBatchDerandomized(items, derand.Rand{})
}

// VerifyBatchDerandomized is [Verifier.VerifyBatch] with randomness that a test chooses
// (arctest.VerifyBatch).
//
// The key works in constant time; what comes of it is public, and the rest takes variable
// time.
func (v *Verifier) VerifyBatchDerandomized(items []Item, r derand.Rand) []error {
	errs := make([]error, len(items))
	claims := make([]claim, 0, len(items))
	for i, item := range items {
		elements, err := v.elements(item)
		if err != nil {
			errs[i] = err
			continue
		}
		claims = append(claims, plain.claim(i, presentationSession(item.Binding), elements, item.Presentation.proof))
	}
	plain.settle(claims, together, r.Reader(), errs)
	return errs
}

// A form is one of presentations, as verifying many needs it.
type form struct {
	message   string // of refusals
	statement *sigma.Statement
}

// plain is the form of a [Presentation].
var plain = &form{"presentation", presentationStatement}

// refusal is that of a presentation whose proof does not hold.
func (f *form) refusal() error { return &Refusal{f.message, "proof", ErrProof} }

// A claim is a presentation whose challenge is known: its equations are left to check.
type claim struct {
	at       int // of the batch
	elements []p256.Element
	proof    sigma.Proof
}

// claim computes the challenge. The proof is a copy: an item may stand in a batch twice,
// bound to two things.
func (f *form) claim(at int, session []byte, elements []p256.Element, proof sigma.Proof) claim {
	proof.Challenge = f.statement.Challenge(session, elements, proof.Commitments)
	return claim{at, elements, proof}
}

// settle notes an error for each claim that does not hold, looking at them together in the
// first of the sizes, and in the others where needed.
func (f *form) settle(claims []claim, sizes []int, rand io.Reader, errs []error) {
	for some := range slices.Chunk(claims, sizes[0]) {
		switch {
		case f.holdTogether(some, rand):
		case len(some) == 1:
			errs[some[0].at] = f.refusal()
		default:
			// A size that would not cut them would only look at the same again.
			smaller := sizes[1:]
			for len(smaller) > 1 && len(some) <= smaller[0] {
				smaller = smaller[1:]
			}
			f.settle(some, smaller, rand, errs)
		}
	}
}

// holdTogether checks all equations of some claims in one product. The factors are drawn
// here, after everything that they multiply is fixed.
func (f *form) holdTogether(claims []claim, rand io.Reader) bool {
	b := f.statement.NewBatch(numberG, numberH, numberX1, numberT)
	factors := make([]p256.Scalar, f.statement.Checks())
	for _, c := range claims {
		for i := range factors {
			factors[i] = p256.ShortScalar(rand)
		}
		b.Add(c.elements, &c.proof, factors)
	}
	return b.Holds()
}
