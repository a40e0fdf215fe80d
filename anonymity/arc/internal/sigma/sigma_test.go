package sigma

import (
	"testing"

	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// TestBatchLooksUpSharedElementsOnly: the image of an equation, which may be secret until
// its proof holds, is never a key of the table of elements.
func TestBatchLooksUpSharedElementsOnly(t *testing.T) {
	const numberG, numberImage = 0, 1
	s := NewStatement(1, 2, nil, Equation{Image: numberImage, Terms: []Term{{Scalar: 0, Element: numberG}}})
	b := s.NewBatch(numberG)
	stream := constant(7)
	for secret := range uint64(3) {
		k := p256.ScalarOf(secret + 5)
		image, _ := p256.MulBase(k).Element()
		elements := []p256.Element{p256.Generator(), image}
		b.Add(elements, s.Prove(stream, []byte("a session"), elements, []p256.Scalar{k}), []p256.Scalar{p256.ScalarOf(secret + 2)})
		if _, ok := b.places[image]; ok {
			t.Error("an element that is not shared was looked up")
		}
	}
	if _, ok := b.places[p256.Generator()]; !ok || len(b.places) != 1 {
		t.Errorf("%d elements in the table, not the generator alone", len(b.places))
	}
	// Three commitments, three images, and the generator once.
	if len(b.elements) != 3+3+1 || !b.Holds() {
		t.Errorf("%d elements in the product, or it does not hold", len(b.elements))
	}
}

// constant is a stream of one byte.
type constant byte

func (c constant) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(c)
	}
	return len(b), nil
}
