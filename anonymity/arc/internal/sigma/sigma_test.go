package sigma

import (
	"testing"

	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// TestBatchLooksUpSharedElementsOnly: the image of an equation, which may be secret until
// its proof holds, is never a key of the table of elements.
func TestBatchLooksUpSharedElementsOnly(t *testing.T) {
	const numberG, numberImage = 0, 1
	s := NewStatement(1, 2, Equation{Image: numberImage, Terms: []Term{{Scalar: 0, Element: numberG}}})
	b := s.NewBatch(numberG)
	stream := constant(7)
	for secret := range uint64(3) {
		k := p256.ScalarOf(secret + 5)
		image, _ := p256.MulBase(k).Element()
		elements := []p256.Element{p256.Generator(), image}
		b.Add(elements, s.Prove(stream, []byte("a session"), elements, nil, []p256.Scalar{k}), []p256.Scalar{p256.ScalarOf(secret + 2)})
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

// TestRelationsNeedTheirOwnFactors: a proof whose commitment is as much too large as a
// relation is off, made so before the challenge. It is taken where one factor stands for
// both, and by nothing else.
func TestRelationsNeedTheirOwnFactors(t *testing.T) {
	const numberG, numberImage, numberOther = 0, 1, 2
	s := NewStatement(1, 3, Equation{Image: numberImage, Terms: []Term{{Scalar: 0, Element: numberG}}})
	one := p256.ScalarOf(1)
	s.Relate(Multiple{one, numberOther}, Multiple{one.Neg(), numberImage})
	element := func(k uint64) p256.Element {
		e, _ := p256.MulBase(p256.ScalarOf(k)).Element()
		return e
	}
	const k, secret = 5, 70
	prove := func(off uint64) ([]p256.Element, *Proof) {
		elements := []p256.Element{p256.Generator(), element(k), element(k + off)}
		p := &Proof{Commitments: []p256.Element{element(secret + off)}}
		p.Challenge = s.Challenge(nil, elements, p.Commitments)
		p.Responses = []p256.Scalar{p256.ScalarOf(secret).Add(p256.ScalarOf(k).Mul(p.Challenge))}
		return elements, p
	}
	holds := func(off uint64, factors ...uint64) bool {
		elements, p := prove(off)
		b := s.NewBatch(numberG)
		var f []p256.Scalar
		for _, x := range factors {
			f = append(f, p256.ScalarOf(x))
		}
		b.Add(elements, p, f)
		return b.Holds()
	}
	if !holds(0, 2, 3) || !holds(9, 2, 2) {
		t.Error("an honest proof, or one under equal factors, does not hold, so that this test shows nothing")
	}
	if holds(9, 2, 3) {
		t.Error("a relation that does not hold is taken")
	}
	elements, p := prove(9)
	if n := s.VerifyBatchable(nil, elements, nil, p); n != 0 {
		t.Errorf("check %d fails first, and not the equation", n)
	}
	// The relation alone is off: its number is behind those of the equations.
	elements, p = prove(0)
	elements[numberOther] = element(k + 1)
	p.Challenge = s.Challenge(nil, elements, p.Commitments)
	p.Responses[0] = p256.ScalarOf(secret).Add(p256.ScalarOf(k).Mul(p.Challenge))
	if n := s.VerifyBatchable(nil, elements, nil, p); n != 1 || s.VerifyCompact(nil, elements, nil, p) {
		t.Errorf("check %d fails first, and not the relation, or the compact proof holds", n)
	}
	defer func() {
		if recover() == nil {
			t.Error("a relation without a factor is taken")
		}
	}()
	holds(0, 2)
}

// constant is a stream of one byte.
type constant byte

func (c constant) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(c)
	}
	return len(b), nil
}
