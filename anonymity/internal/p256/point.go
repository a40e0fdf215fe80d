package p256

import "filippo.io/nistec"

// A Point is any point of the curve, the identity too, in secret work: each operation
// takes the same time whatever the points and scalars are. The zero Point is none;
// [Mul] and [MulBase] make them.
type Point struct{ p nistec.P256Point }

// Point returns e for secret work. Constant time.
func (e *Element) Point() *Point {
	var b [65]byte
	b[0] = 4
	x, y := e.x.bytes(), e.y.bytes()
	copy(b[1:], x[:])
	copy(b[33:], y[:])
	p := new(Point)
	if _, err := p.p.SetBytes(b[:]); err != nil {
		panic("p256: internal error: an element is not on the curve: " + err.Error())
	}
	return p
}

// Mul returns k*p. Constant time.
func Mul(k Scalar, p *Point) *Point {
	var b [ScalarSize]byte
	q := new(Point)
	if _, err := q.p.ScalarMult(&p.p, k.Append(b[:0])); err != nil {
		panic("p256: internal error: " + err.Error())
	}
	return q
}

// MulBase returns k*G. Constant time.
func MulBase(k Scalar) *Point {
	var b [ScalarSize]byte
	q := new(Point)
	if _, err := q.p.ScalarBaseMult(k.Append(b[:0])); err != nil {
		panic("p256: internal error: " + err.Error())
	}
	return q
}

// Add returns p + q. Constant time.
func (p *Point) Add(q *Point) *Point {
	r := new(Point)
	r.p.Add(&p.p, &q.p)
	return r
}

// Sub returns p - q. Constant time.
func (p *Point) Sub(q *Point) *Point {
	r := new(Point)
	r.p.Negate(&q.p)
	r.p.Add(&p.p, &r.p)
	return r
}

// Element returns p in affine coordinates, and false if it is the identity. Constant time
// but for that.
func (p *Point) Element() (Element, bool) {
	b := p.p.Bytes()
	if len(b) != 65 {
		return Element{}, false
	}
	var e Element
	if !e.x.setBytes((*[32]byte)(b[1:33])) || !e.y.setBytes((*[32]byte)(b[33:])) {
		panic("p256: internal error: a coordinate is not below the prime")
	}
	return e, true
}
