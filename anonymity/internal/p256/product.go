package p256

// A Sum is a point of the curve, the identity too, that comes of public data: it is
// x/z^2, y/z^3, and the identity where z = 0. Its operations take a time that depends on
// it.
type Sum struct{ x, y, z fe }

// VartimeProduct returns the sum of k[i]*e[i]. Its time depends on all of them: it is for
// public data alone, never for a secret scalar or a point that is one.
//
// Few terms share their doublings, each with a table of its odd multiples (Straus); many
// are sorted by their digits first (Pippenger). One alone is left to nistec where that is
// assembly.
func VartimeProduct(k []Scalar, e []Element) *Sum {
	if len(k) != len(e) {
		panic("p256: internal error: as many scalars as elements make a product")
	}
	switch {
	case len(k) == 1 && assembled:
		product, ok := Mul(k[0], e[0].Point()).Element()
		if !ok {
			return new(Sum)
		}
		return &Sum{product.x, product.y, feOne}
	case len(k) < sortedTerms:
		return straus(k, e)
	}
	return pippenger(k, e)
}

// sortedTerms is from how many terms on sorting is faster (BenchmarkProduct).
const sortedTerms = 96

// IsIdentity reports whether s is the identity.
func (s *Sum) IsIdentity() bool { return s.z == fe{} }

// Add adds t to s.
func (s *Sum) Add(t *Sum) { s.add(t) }

// AddElement returns s + e.
func (s *Sum) AddElement(e *Element) *Sum {
	r := *s
	r.addAffine(e)
	return &r
}

// VartimeElements returns sums in affine coordinates, with one inversion, and false if one
// of them is the identity.
func VartimeElements(sums []*Sum) ([]Element, bool) {
	// before[i] is the product of the z before i.
	before := make([]fe, len(sums))
	all := feOne
	for i, s := range sums {
		if s.IsIdentity() {
			return nil, false
		}
		before[i] = all
		all.mul(&all, &s.z)
	}
	all.invert(&all)
	elements := make([]Element, len(sums))
	for i := len(sums) - 1; i >= 0; i-- {
		var inverse, square fe
		inverse.mul(&all, &before[i])
		all.mul(&all, &sums[i].z)
		square.square(&inverse)
		elements[i].x.mul(&sums[i].x, &square)
		elements[i].y.mul(&sums[i].y, square.mul(&square, &inverse))
	}
	return elements, true
}

// double sets s to 2s.
func (s *Sum) double() {
	if s.IsIdentity() {
		return
	}
	var zz, yy, xyy, m, t, u fe
	zz.square(&s.z)
	yy.square(&s.y)
	xyy.mul(&s.x, &yy)
	m.mul(t.sub(&s.x, &zz), u.add(&s.x, &zz))
	m.add(t.add(&m, &m), &m) // 3x^2 - 3z^4
	s.z.mul(&s.y, &s.z)
	s.z.add(&s.z, &s.z)
	xyy.add(&xyy, &xyy)
	xyy.add(&xyy, &xyy) // 4xy^2
	s.x.square(&m)
	s.x.sub(&s.x, t.add(&xyy, &xyy))
	yy.square(&yy)
	yy.add(&yy, &yy)
	yy.add(&yy, &yy)
	yy.add(&yy, &yy) // 8y^4
	s.y.mul(&m, t.sub(&xyy, &s.x))
	s.y.sub(&s.y, &yy)
}

// addAffine adds e to s.
func (s *Sum) addAffine(e *Element) {
	if s.IsIdentity() {
		*s = Sum{e.x, e.y, feOne}
		return
	}
	var zz, u, v fe
	zz.square(&s.z)
	u.mul(&e.x, &zz)
	v.mul(&e.y, zz.mul(&zz, &s.z))
	s.join(&s.x, &s.y, &u, &v, &s.z)
}

// add adds q to s.
func (s *Sum) add(q *Sum) {
	if q.IsIdentity() {
		return
	}
	if s.IsIdentity() {
		*s = *q
		return
	}
	var t, x1, y1, x2, y2, z fe
	t.square(&q.z)
	x1.mul(&s.x, &t)
	y1.mul(&s.y, t.mul(&t, &q.z))
	t.square(&s.z)
	x2.mul(&q.x, &t)
	y2.mul(&q.y, t.mul(&t, &s.z))
	s.join(&x1, &y1, &x2, &y2, z.mul(&s.z, &q.z))
}

// join sets s to the sum of two points with one common z.
func (s *Sum) join(x1, y1, x2, y2, z *fe) {
	var h, r, hh, hhh, v, t fe
	h.sub(x2, x1)
	r.sub(y2, y1)
	if h == (fe{}) {
		if r != (fe{}) {
			*s = Sum{}
			return
		}
		*s = Sum{*x1, *y1, *z}
		s.double()
		return
	}
	hh.square(&h)
	hhh.mul(&hh, &h)
	v.mul(x1, &hh)
	hh.mul(y1, &hhh)
	s.z.mul(z, &h)
	s.x.square(&r)
	s.x.sub(s.x.sub(&s.x, &hhh), t.add(&v, &v))
	s.y.mul(&r, t.sub(&v, &s.x))
	s.y.sub(&s.y, &hh)
}

// oddDigits is the width of the window in which a scalar is written with odd digits of
// absolute value below 2^(oddDigits-1), each followed by at least oddDigits-1 zeros.
const oddDigits = 5

// naf writes k so: k is the sum of digits[i] 2^i.
func naf(k Scalar) (digits [257]int8) {
	x := [5]uint64(append(k.limbs[:], 0))
	at := func(i int) int {
		w := x[i/64] >> (i % 64)
		if i%64 > 64-oddDigits && i/64 < 4 {
			w |= x[i/64+1] << (64 - i%64)
		}
		return int(w & (1<<oddDigits - 1))
	}
	carry := 0
	for i := 0; i < 257; {
		w := at(i) + carry
		if w&1 == 0 {
			i++ // an even window keeps its carry: 1 + a one is a zero and a one
			continue
		}
		carry = 0
		if w >= 1<<(oddDigits-1) {
			w -= 1 << oddDigits
			carry = 1
		}
		digits[i] = int8(w)
		i += oddDigits
	}
	return digits
}

// straus adds up few terms, from the highest digit down.
func straus(k []Scalar, e []Element) *Sum {
	digits := make([][257]int8, len(k))
	tables := make([][1 << (oddDigits - 2)]Sum, len(k))
	for i := range k {
		digits[i] = naf(k[i])
		t := &tables[i]
		t[0] = Sum{e[i].x, e[i].y, feOne}
		twice := t[0]
		twice.double()
		for j := 1; j < len(t); j++ {
			t[j] = t[j-1]
			t[j].add(&twice)
		}
	}
	s := new(Sum)
	for bit := 256; bit >= 0; bit-- {
		s.double()
		for i := range digits {
			switch d := digits[i][bit]; {
			case d > 0:
				s.add(&tables[i][d/2])
			case d < 0:
				minus := tables[i][-d/2]
				minus.y.neg(&minus.y)
				s.add(&minus)
			}
		}
	}
	return s
}

// pippenger adds up many terms. For each window of bits the elements are added into one
// bin for each absolute value of their digit, and the bins times their values are summed.
func pippenger(k []Scalar, e []Element) *Sum {
	width := 4
	for width < 12 && len(k) > 12<<width {
		width++
	}
	windows := 256/width + 1
	digits := make([]int16, len(k)*windows)
	for i := range k {
		signedDigits(digits[i*windows:(i+1)*windows], k[i], width)
	}
	s := new(Sum)
	bins := make([]Sum, 1<<(width-1))
	for w := windows - 1; w >= 0; w-- {
		for range width {
			s.double()
		}
		clear(bins)
		for i := range e {
			switch d := digits[i*windows+w]; {
			case d > 0:
				bins[d-1].addAffine(&e[i])
			case d < 0:
				minus := e[i].Neg()
				bins[-d-1].addAffine(&minus)
			}
		}
		var above, sum Sum
		for i := len(bins) - 1; i >= 0; i-- {
			above.add(&bins[i])
			sum.add(&above)
		}
		s.add(&sum)
	}
	return s
}

// signedDigits writes k as the sum of digits[i] 2^(i width), each of absolute value at
// most 2^(width-1).
func signedDigits(digits []int16, k Scalar, width int) {
	var carry uint64
	for i := range digits {
		at := i * width
		var w uint64
		if at < 256 {
			w = k.limbs[at/64] >> (at % 64)
			if at%64 > 64-width && at/64 < 3 {
				w |= k.limbs[at/64+1] << (64 - at%64)
			}
		}
		w = w&(1<<width-1) + carry
		carry = 0
		if w > 1<<(width-1) {
			digits[i] = int16(w) - 1<<width
			carry = 1
			continue
		}
		digits[i] = int16(w)
	}
	if carry != 0 {
		panic("p256: internal error: a scalar has more digits than there are windows")
	}
}
