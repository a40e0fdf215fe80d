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
// third; one in every sixteen makes all cost about a third more than they cost alone
// (docs/bench/tokens.md). Halves would cost more there.
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
	for i := range items {
		elements, err := v.elements(items[i])
		if err != nil {
			errs[i] = err
			continue
		}
		// The proof is copied: an item may stand in a batch twice, bound to two things.
		c := claim{at: i, elements: elements, proof: items[i].Presentation.proof}
		c.proof.Challenge = presentationStatement.Challenge(presentationSession(items[i].Binding), elements, c.proof.Commitments)
		claims = append(claims, c)
	}
	settle(claims, together, r.Reader(), errs)
	return errs
}

// settle notes an error for each claim that does not hold, looking at them together in the
// first of the sizes, and in the others where needed.
func settle(claims []claim, sizes []int, rand io.Reader, errs []error) {
	for some := range slices.Chunk(claims, sizes[0]) {
		switch {
		case holdTogether(some, rand):
		case len(some) == 1:
			errs[some[0].at] = errPresentation
		default:
			// A size that would not cut them would only look at the same again.
			smaller := sizes[1:]
			for len(smaller) > 1 && len(some) <= smaller[0] {
				smaller = smaller[1:]
			}
			settle(some, smaller, rand, errs)
		}
	}
}

// A claim is a presentation whose challenge is known: three equations are left to check.
type claim struct {
	at       int
	elements []p256.Element
	proof    sigma.Proof
}

// holdTogether checks all equations of some claims in one product. The factors are drawn
// here, after everything that they multiply is fixed.
func holdTogether(claims []claim, rand io.Reader) bool {
	b := presentationStatement.NewBatch(numberG, numberH, numberX1, numberT)
	for _, c := range claims {
		b.Add(c.elements, &c.proof, []p256.Scalar{p256.ShortScalar(rand), p256.ShortScalar(rand), p256.ShortScalar(rand)})
	}
	return b.Holds()
}
