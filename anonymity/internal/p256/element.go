package p256

import (
	"errors"
	"fmt"

	"filippo.io/nistec"
)

// ElementSize is the length of an element on a wire, in bytes: a byte for the sign of y,
// and x.
const ElementSize = 33

// Errors of what was read.
var (
	ErrElement = errors.New("p256: not a point of the curve in its one encoding")
	ErrScalar  = errors.New("p256: not a scalar in its one encoding")
)

// An Element is a point of the curve other than the identity, in affine coordinates. It is
// made by [ReadElement], [Point.Element], [HashToGroup] or [Product] alone; the zero
// Element is none.
type Element struct{ x, y fe }

// generator is the base point G.
var generator = must(nistec.NewP256Point().SetGenerator())

func must(p *nistec.P256Point) Element {
	e, ok := (&Point{p: *p}).Element()
	if !ok {
		panic("p256: internal error: a constant is the identity")
	}
	return e
}

// Generator is the base point, G.
func Generator() Element { return generator }

// Equal reports whether two elements are one, in a time that depends on them.
func (e *Element) Equal(f *Element) bool { return e.x == f.x && e.y == f.y }

// Append appends the encoding of e, compressed, of [ElementSize] bytes (SEC 1 section
// 2.3.3). Constant time.
func (e *Element) Append(b []byte) []byte {
	x := e.x.bytes()
	return append(append(b, 2|byte(e.y.odd())), x[:]...)
}

// curveB is the b of y^2 = x^3 - 3x + b.
var curveB = feMust([32]byte{0x5a, 0xc6, 0x35, 0xd8, 0xaa, 0x3a, 0x93, 0xe7, 0xb3, 0xeb, 0xbd, 0x55, 0x76, 0x98, 0x86, 0xbc,
	0x65, 0x1d, 0x06, 0xb0, 0xcc, 0x53, 0xb0, 0xf6, 0x3b, 0xce, 0x3c, 0x3e, 0x27, 0xd2, 0x60, 0x4b})

// polynomial sets z = x^3 - 3x + b. Constant time.
func (z *fe) polynomial(x *fe) *fe {
	var x3, threeX fe
	x3.mul(x3.square(x), x)
	threeX.add(threeX.add(x, x), x)
	return z.add(x3.sub(&x3, &threeX), &curveB)
}

// ReadElement reads the encoding of an element, of [ElementSize] bytes. It refuses the
// identity, in any form, an x that is not below p or is of no point of the curve, and
// every encoding but the compressed one. The error wraps [ErrElement]. Whether it is
// refused shows in its time, and not which element it is.
func ReadElement(b []byte) (Element, error) {
	if len(b) != ElementSize {
		return Element{}, fmt.Errorf("%w: %d bytes, not %d", ErrElement, len(b), ElementSize)
	}
	if b[0] != 2 && b[0] != 3 {
		return Element{}, fmt.Errorf("%w: its first byte is %d, not 2 or 3", ErrElement, b[0])
	}
	var e Element
	if !e.x.setBytes((*[32]byte)(b[1:])) {
		return Element{}, fmt.Errorf("%w: x is not below the prime", ErrElement)
	}
	var y2, again, minus fe
	y2.polynomial(&e.x)
	e.y.root(&y2)
	if again.square(&e.y).equal(&y2) == 0 {
		return Element{}, fmt.Errorf("%w: no point has this x", ErrElement)
	}
	// No point of P-256 has y = 0, for its order is odd.
	minus.neg(&e.y)
	e.y.pick(&minus, &e.y, e.y.odd()^uint64(b[0]&1))
	return e, nil
}

// Neg returns -e. Constant time.
func (e *Element) Neg() Element {
	f := Element{x: e.x}
	f.y.neg(&e.y)
	return f
}
