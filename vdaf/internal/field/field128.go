package field

import "math/bits"

// p128 = 2^128 - 7*2^66 + 1 = ph128*2^64 + 1. Because it is 1 modulo 2^64, each step of a
// Montgomery reduction (R = 2^128) has minus the lowest limb as its quotient.
const (
	ph128 = 1<<64 - 28
	// R^2 mod p.
	rr128lo, rr128hi = 0xFFFFFFFFFFFFFCF1, 0x5587
)

// Field128 is GF(2^128 - 7*2^66 + 1). Weights are Montgomery forms.
type Field128 struct{}

func (Field128) ID() ID      { return id128 }
func (Field128) Limbs() int  { return 2 }
func (Field128) Size() int   { return 16 }
func (Field128) MaxLog() int { return 66 }

func add128(a0, a1, b0, b1 uint64) (uint64, uint64) {
	s0, c := bits.Add64(a0, b0, 0)
	s1, c := bits.Add64(a1, b1, c)
	return less128(s0, s1, c)
}

// less128 subtracts p from c*2^128 + s1*2^64 + s0 if it is at least p.
func less128(s0, s1, c uint64) (uint64, uint64) {
	t0, d := bits.Sub64(s0, 1, 0)
	t1, d := bits.Sub64(s1, ph128, d)
	_, d = bits.Sub64(c, 0, d)
	return t0 ^ (t0^s0)&-d, t1 ^ (t1^s1)&-d
}

func sub128(a0, a1, b0, b1 uint64) (uint64, uint64) {
	t0, d := bits.Sub64(a0, b0, 0)
	t1, d := bits.Sub64(a1, b1, d)
	m := -d
	t0, c := bits.Add64(t0, m&1, 0)
	t1, _ = bits.Add64(t1, m&ph128, c)
	return t0, t1
}

// mul128 returns a*b/R. It is mont128 of the product written out in one body: the
// compiler inlines neither.
func mul128(a0, a1, b0, b1 uint64) (uint64, uint64) {
	t1, t0 := bits.Mul64(a0, b0)
	t3, t2 := bits.Mul64(a1, b1)
	h, l := bits.Mul64(a0, b1)
	t1, c := bits.Add64(t1, l, 0)
	t2, c = bits.Add64(t2, h, c)
	t3 += c
	h, l = bits.Mul64(a1, b0)
	t1, c = bits.Add64(t1, l, 0)
	t2, c = bits.Add64(t2, h, c)
	t3 += c
	q, c := bits.Sub64(0, t0, 0) // c is the carry of t0 + q*1
	h, l = bits.Mul64(q, ph128)
	t1, c = bits.Add64(t1, l, c)
	t2, c = bits.Add64(t2, h, c)
	t3 += c // no carry: the sum is below p*(p+2^64)/2^64 < 2^192
	q, c = bits.Sub64(0, t1, 0)
	h, l = bits.Mul64(q, ph128)
	t2, c = bits.Add64(t2, l, c)
	t3, c = bits.Add64(t3, h, c)
	return less128(t2, t3, c)
}

// mont128 returns t/R for any t, reduced if t < p*R and below 2^128 in any case.
func mont128(t0, t1, t2, t3 uint64) (uint64, uint64) {
	q, c := bits.Sub64(0, t0, 0)
	h, l := bits.Mul64(q, ph128)
	t1, c = bits.Add64(t1, l, c)
	t2, c = bits.Add64(t2, h, c)
	t3, t4 := bits.Add64(t3, 0, c)
	q, c = bits.Sub64(0, t1, 0)
	h, l = bits.Mul64(q, ph128)
	t2, c = bits.Add64(t2, l, c)
	t3, c = bits.Add64(t3, h, c)
	return less128(t2, t3, t4+c)
}

// fold128 returns t/R reduced for any sum of fewer than 2^32 products of elements, t4 <
// 2^32.
func fold128(t0, t1, t2, t3, t4 uint64) (uint64, uint64) {
	t0, t1 = mont128(t0, t1, t2, t3) // not always reduced
	// t4*2^256/R = t4*(28*2^64 - 1) is below 2^101, so what add128 takes off is enough.
	l, d := bits.Sub64(0, t4, 0)
	return add128(t0, t1, l, 28*t4-d)
}

func (Field128) Add(a, b Elem) Elem {
	r0, r1 := add128(a[0], a[1], b[0], b[1])
	return Elem{r0, r1}
}

func (Field128) Sub(a, b Elem) Elem {
	r0, r1 := sub128(a[0], a[1], b[0], b[1])
	return Elem{r0, r1}
}

func (Field128) Mul(a, b Elem) Elem {
	r0, r1 := mul128(a[0], a[1], b[0], b[1])
	return Elem{r0, r1}
}

func (f Field128) Inv(w Elem) Elem             { return Exp(f, w, Elem{1<<64 - 1, ph128 - 1}) }
func (f Field128) ToWeight(a Elem) Elem        { return f.Mul(a, Elem{rr128lo, rr128hi}) }
func (f Field128) ToRaw(a Elem) Elem           { return f.Mul(a, Elem{1}) }
func (Field128) FromUint64(x uint64) Elem      { return Elem{x} }
func (Field128) At(v []uint64, i int) Elem     { return Elem{v[2*i], v[2*i+1]} }
func (Field128) Put(v []uint64, i int, e Elem) { v[2*i], v[2*i+1] = e[0], e[1] }

func (Field128) FromInt64(x int64) Elem {
	s := uint64(x >> 63)
	r0, r1 := sub128(uint64(x)&^s, 0, (uint64(x)^s-s)&s, 0)
	return Elem{r0, r1}
}

func (Field128) Int64(e Elem) (int64, bool) {
	n0, n1 := sub128(0, 0, e[0], e[1])
	switch {
	case e[1] == 0 && e[0] < 1<<63:
		return int64(e[0]), true
	case n1 == 0 && n0 <= 1<<63:
		return -int64(n0), true
	}
	return 0, false
}

// root128 is the 2^66-th root: the generator 7 to the power of (p-1)/2^66.
var root128 = Exp(Field128{}, Field128{}.ToWeight(Elem{7}), Elem{1<<62 - 7})

func (f Field128) Root(log int) Elem {
	w := root128
	for range 66 - log {
		w = f.Mul(w, w)
	}
	return w
}

func (Field128) AddVec(dst, a []uint64) {
	a = a[:len(dst)]
	for i := 0; i+1 < len(dst); i += 2 {
		dst[i], dst[i+1] = add128(dst[i], dst[i+1], a[i], a[i+1])
	}
}

func (Field128) SubVec(dst, a []uint64) {
	a = a[:len(dst)]
	for i := 0; i+1 < len(dst); i += 2 {
		dst[i], dst[i+1] = sub128(dst[i], dst[i+1], a[i], a[i+1])
	}
}

func (Field128) MulVec(dst, w []uint64) {
	w = w[:len(dst)]
	for i := 0; i+1 < len(dst); i += 2 {
		dst[i], dst[i+1] = mul128(dst[i], dst[i+1], w[i], w[i+1])
	}
}

func (Field128) ScaleVec(dst, a []uint64, w Elem) {
	a = a[:len(dst)]
	for i := 0; i+1 < len(dst); i += 2 {
		dst[i], dst[i+1] = mul128(a[i], a[i+1], w[0], w[1])
	}
}

func (f Field128) Sum(a []uint64, n, step int) Elem {
	var s0, s1, s2, c uint64
	for i := range n {
		s0, c = bits.Add64(s0, a[2*i*step], 0)
		s1, c = bits.Add64(s1, a[2*i*step+1], c)
		s2 += c
	}
	// s2*2^128 = s2*R: reduce the low part, then add s2*(28*2^64 - 1).
	s0, s1 = less128(s0, s1, 0)
	l, d := bits.Sub64(0, s2, 0)
	r0, r1 := add128(s0, s1, l, 28*s2-d)
	return Elem{r0, r1}
}

func (Field128) Dot(w, a []uint64, step int) Elem {
	var s0, s1, s2, s3, s4, c uint64
	at := 0
	for len(w) >= 2 {
		b0, b1, a0, a1 := w[0], w[1], a[at], a[at+1]
		w, at = w[2:], at+2*step
		// The cross products are below 2^129 together, and their carry cannot overflow
		// the product's top limb.
		h, l := bits.Mul64(a0, b1)
		h2, l2 := bits.Mul64(a1, b0)
		l, c = bits.Add64(l, l2, 0)
		h, c2 := bits.Add64(h, h2, c)
		h0, l0 := bits.Mul64(a0, b0)
		h1, l1 := bits.Mul64(a1, b1)
		h0, c = bits.Add64(h0, l, 0)
		l1, c = bits.Add64(l1, h, c)
		h1 += c2 + c
		s0, c = bits.Add64(s0, l0, 0)
		s1, c = bits.Add64(s1, h0, c)
		s2, c = bits.Add64(s2, l1, c)
		s3, c = bits.Add64(s3, h1, c)
		s4 += c
	}
	r0, r1 := fold128(s0, s1, s2, s3, s4)
	return Elem{r0, r1}
}

func (Field128) Lagrange(dst, itw []uint64, ts []Elem, seed Elem) {
	dst = dst[:2<<len(ts)]
	dst[0], dst[1] = seed[0], seed[1]
	for i, h := len(ts)-1, 2; i >= 0; i, h = i-1, 2*h {
		t0, t1 := ts[i][0], ts[i][1]
		lo, hi, tw := dst[:h], dst[h:2*h], itw[h:2*h]
		for k := 0; k+1 < h; k += 2 {
			x0, x1 := lo[k], lo[k+1]
			u0, u1 := mul128(t0, t1, tw[k], tw[k+1])
			u0, u1 = mul128(x0, x1, u0, u1)
			lo[k], lo[k+1] = add128(x0, x1, u0, u1)
			hi[k], hi[k+1] = sub128(x0, x1, u0, u1)
		}
	}
}

func (f Field128) Columns(wires, seeds, meas, w, run, r []uint64, bias Elem, chunk int) {
	n := len(meas) / 2
	for j := range chunk {
		k := 2 * rows(n, j, chunk)
		col := meas[min(2*j, len(meas)):]
		e := f.Dot(run[:k], col, chunk)
		o := f.Dot(w[2:2+k], col, chunk)
		s0, s1 := mul128(w[0], w[1], seeds[4*j], seeds[4*j+1])
		wires[4*j], wires[4*j+1] = add128(e[0], e[1], s0, s1)
		s0, s1 = mul128(w[0], w[1], seeds[4*j+2], seeds[4*j+3])
		s0, s1 = add128(s0, s1, bias[0], bias[1])
		wires[4*j+2], wires[4*j+3] = add128(o[0], o[1], s0, s1)
		f.MulVec(run[:k], r[:k])
	}
}

func (Field128) DIF(v, itw []uint64) {
	for h := len(v) / 2; h > 1; h /= 2 {
		tw := itw[h : 2*h]
		for at := 0; at < len(v); at += 2 * h {
			lo, hi := v[at:at+h], v[at+h:at+2*h]
			for k := 0; k+1 < len(tw); k += 2 {
				x0, x1, y0, y1 := lo[k], lo[k+1], hi[k], hi[k+1]
				lo[k], lo[k+1] = add128(x0, x1, y0, y1)
				x0, x1 = sub128(x0, x1, y0, y1)
				hi[k], hi[k+1] = mul128(x0, x1, tw[k], tw[k+1])
			}
		}
	}
}

func (Field128) DIT(v, tw []uint64) {
	for h := 2; h < len(v); h *= 2 {
		tw := tw[h : 2*h]
		for at := 0; at < len(v); at += 2 * h {
			lo, hi := v[at:at+h], v[at+h:at+2*h]
			for k := 0; k+1 < len(tw); k += 2 {
				x0, x1 := lo[k], lo[k+1]
				y0, y1 := mul128(hi[k], hi[k+1], tw[k], tw[k+1])
				lo[k], lo[k+1] = add128(x0, x1, y0, y1)
				hi[k], hi[k+1] = sub128(x0, x1, y0, y1)
			}
		}
	}
}

func (Field128) Reduced(v []uint64) int {
	for i := 0; i+1 < len(v); i += 2 {
		// p = ph128*2^64 + 1: reduced means below ph128*2^64, or equal to it.
		if v[i+1] >= ph128 && (v[i+1] > ph128 || v[i] > 0) {
			return i / 2
		}
	}
	return -1
}

func (f Field128) Decode(dst []uint64, b []byte) bool {
	return decodeWords(dst, b) && f.Reduced(dst) < 0
}

func (Field128) Load(dst []uint64, b []byte) bool { return decodeWords(dst, b) }

func (Field128) Append(b []byte, v []uint64) []byte { return appendWords(b, v) }
