package p256

import "sync"

// Windows in which [Fixed] cuts a scalar.
const (
	fixedWidth   = 6
	fixedWindows = 43 // of 6 bits each, 258 in all
	fixedDigits  = 1 << (fixedWidth - 1)
)

// A Fixed multiplies one element by many scalars: by secret ones in half the time that
// [Mul] takes, by public ones in less. It has 88 kB of multiples.
type Fixed struct {
	// table[w][d-1] is d 2^(6 w) times the element.
	table [fixedWindows][fixedDigits]Element
}

// NewFixed computes the multiples of an element, which is public.
func NewFixed(e Element) *Fixed {
	f := new(Fixed)
	sums := make([]*Sum, 0, fixedWindows*fixedDigits)
	start := &Sum{e.x, e.y, feOne}
	for range fixedWindows {
		s := *start
		for range fixedDigits {
			one := s
			sums = append(sums, &one)
			s.add(start)
		}
		// s is 33 times the start; 64 is twice the last in the table.
		last := *sums[len(sums)-1]
		last.double()
		start = &last
	}
	elements, ok := VartimeElements(sums)
	if !ok {
		panic("p256: internal error: a small multiple of a point is the identity")
	}
	for w := range f.table {
		copy(f.table[w][:], elements[w*fixedDigits:])
	}
	return f
}

// FixedGenerator has the multiples of the generator for public scalars; [MulBase] is faster
// for secret ones.
var FixedGenerator = sync.OnceValue(func() *Fixed { return NewFixed(generator) })

// Mul returns k times the element, and false if k is 0. Constant time but for that: every
// entry of a window's row is read, and every window adds.
func (f *Fixed) Mul(k Scalar) (Element, bool) {
	sum := homogeneous{y: feOne} // the identity
	var d, carry uint64
	for w := range f.table {
		d, carry = fixedDigit(k, w, carry)
		var x0, x1, x2, x3, y0, y1, y2, y3 uint64 // in registers
		row := &f.table[w]
		for i := range row {
			one := &row[i]
			here := -isZero(d ^ uint64(i+1))
			x0 |= one.x[0] & here
			x1 |= one.x[1] & here
			x2 |= one.x[2] & here
			x3 |= one.x[3] & here
			y0 |= one.y[0] & here
			y1 |= one.y[1] & here
			y2 |= one.y[2] & here
			y3 |= one.y[3] & here
		}
		e := Element{fe{x0, x1, x2, x3}, fe{y0, y1, y2, y3}}
		var minus fe
		e.y.pick(minus.neg(&e.y), &e.y, carry)
		next := sum
		next.addAffine(&e)
		skip := isZero(d)
		sum.x.pick(&sum.x, &next.x, skip)
		sum.y.pick(&sum.y, &next.y, skip)
		sum.z.pick(&sum.z, &next.z, skip)
	}
	if sum.z == (fe{}) {
		return Element{}, false
	}
	var e Element
	sum.z.invert(&sum.z)
	e.x.mul(&sum.x, &sum.z)
	e.y.mul(&sum.y, &sum.z)
	return e, true
}

// fixedDigit is the digit of window w, of absolute value at most 32, and 1 if it is
// negative, which the next window gets as its carry. Constant time for a given w.
func fixedDigit(k Scalar, w int, carry uint64) (d, negative uint64) {
	at := w * fixedWidth
	d = k.limbs[at/64] >> (at % 64)
	if at%64 > 64-fixedWidth && at/64 < 3 {
		d |= k.limbs[at/64+1] << (64 - at%64)
	}
	d = d&(1<<fixedWidth-1) + carry
	// A digit above 32 is 64 less, and carries one.
	negative = (fixedDigits - d) >> 63
	mask := -negative
	return d&^mask | (1<<fixedWidth-d)&mask, negative
}

// VartimeAdd adds k times the element to s. Its time depends on both: it is for public
// data alone.
func (f *Fixed) VartimeAdd(s *Sum, k Scalar) {
	var d, carry uint64
	for w := range f.table {
		if d, carry = fixedDigit(k, w, carry); d == 0 {
			continue
		}
		e := &f.table[w][d-1]
		if carry == 1 {
			minus := e.Neg()
			e = &minus
		}
		s.addAffine(e)
	}
}

// A homogeneous point is x/z, y/z, and the identity where z = 0.
type homogeneous struct{ x, y, z fe }

// addAffine adds e to p, for any p (Renes, Costello and Batina 2016, algorithm 5). Constant
// time.
func (p *homogeneous) addAffine(e *Element) {
	var xx, yy, zz, xy, yz, xz, s, t, u, v, w fe
	xx.mul(&p.x, &e.x)
	yy.mul(&p.y, &e.y)
	// The mixed products, with z = 1 at e: xy = x1 y2 + x2 y1, and so on.
	xy.mul(s.add(&p.x, &p.y), t.add(&e.x, &e.y))
	xy.sub(&xy, s.add(&xx, &yy))
	yz.add(yz.mul(&e.y, &p.z), &p.y)
	xz.add(xz.mul(&e.x, &p.z), &p.x)
	// s = 3 (xz - b z), t = 3 (b xz - 3 z - xx), u = 3 (xx - z)
	s.sub(&xz, s.mul(&p.z, &curveB))
	s.add(w.add(&s, &s), &s)
	zz.add(w.add(&p.z, &p.z), &p.z)
	t.sub(t.mul(&xz, &curveB), &zz)
	t.sub(&t, &xx)
	t.add(w.add(&t, &t), &t)
	u.add(w.add(&xx, &xx), &xx)
	u.sub(&u, &zz)
	v.sub(&yy, &s)
	s.add(&yy, &s)
	p.x.sub(w.mul(&xy, &s), p.x.mul(&yz, &t))
	p.y.add(w.mul(&s, &v), p.y.mul(&u, &t))
	p.z.add(w.mul(&yz, &v), p.z.mul(&xy, &u))
}
