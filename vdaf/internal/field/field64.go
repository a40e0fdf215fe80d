package field

import (
	"encoding/binary"
	"math/bits"
)

const (
	p64   = 1<<64 - 1<<32 + 1
	eps64 = 1<<32 - 1 // 2^64 mod p64
)

// Field64 is GF(2^64 - 2^32 + 1). Raw elements and weights coincide.
type Field64 struct{}

func (Field64) ID() ID      { return id64 }
func (Field64) Limbs() int  { return 1 }
func (Field64) Size() int   { return 8 }
func (Field64) MaxLog() int { return 32 }

func add64(a, b uint64) uint64 {
	s, c := bits.Add64(a, b, 0)
	t, d := bits.Sub64(s, p64, 0)
	_, d = bits.Sub64(c, 0, d)
	return t ^ (t^s)&-d
}

func sub64(a, b uint64) uint64 {
	t, d := bits.Sub64(a, b, 0)
	return t - eps64&-d
}

// reduce64 returns hi*2^64 + lo, any 128-bit value, reduced: 2^64 = 2^32 - 1 and 2^96 = -1.
func reduce64(hi, lo uint64) uint64 {
	t, d := bits.Sub64(lo, hi>>32, 0)
	t -= eps64 & -d
	m := hi & eps64
	r, c := bits.Add64(t, m<<32-m, 0)
	r += eps64 & -c
	s, d := bits.Sub64(r, p64, 0)
	return s ^ (s^r)&-d
}

// mul64 is reduce64 of the product; loops write it out, as the compiler inlines reduce64
// but not this.
func mul64(a, b uint64) uint64 { return reduce64(bits.Mul64(a, b)) }

// fold64 reduces a sum of products hi*2^64 + lo + c*2^128, c < 2^32: 2^128 = -2^32.
func fold64(c, hi, lo uint64) uint64 { return sub64(reduce64(hi, lo), c<<32) }

func (Field64) Add(a, b Elem) Elem            { return Elem{add64(a[0], b[0])} }
func (Field64) Sub(a, b Elem) Elem            { return Elem{sub64(a[0], b[0])} }
func (Field64) Mul(a, b Elem) Elem            { return Elem{mul64(a[0], b[0])} }
func (f Field64) Inv(w Elem) Elem             { return Exp(f, w, Elem{p64 - 2}) }
func (Field64) ToWeight(a Elem) Elem          { return a }
func (Field64) ToRaw(a Elem) Elem             { return a }
func (Field64) FromUint64(x uint64) Elem      { return Elem{reduce64(0, x)} }
func (Field64) At(v []uint64, i int) Elem     { return Elem{v[i]} }
func (Field64) Put(v []uint64, i int, e Elem) { v[i] = e[0] }

func (Field64) FromInt64(x int64) Elem {
	s := uint64(x >> 63)
	return Elem{sub64(uint64(x)&^s, (uint64(x)^s-s)&s)}
}

func (Field64) Int64(e Elem) (int64, bool) {
	if e[0] <= p64/2 {
		return int64(e[0]), true
	}
	return -int64(p64 - e[0]), true
}

// root64 is the 2^32-th root: the generator 7 to the power of (p-1)/2^32.
var root64 = Exp(Field64{}, Elem{7}, Elem{1<<32 - 1})

func (f Field64) Root(log int) Elem {
	w := root64
	for range 32 - log {
		w = f.Mul(w, w)
	}
	return w
}

func (Field64) AddVec(dst, a []uint64) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = add64(dst[i], a[i])
	}
}

func (Field64) SubVec(dst, a []uint64) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = sub64(dst[i], a[i])
	}
}

func (Field64) MulVec(dst, w []uint64) {
	w = w[:len(dst)]
	for i := range dst {
		dst[i] = reduce64(bits.Mul64(dst[i], w[i]))
	}
}

func (Field64) ScaleVec(dst, a []uint64, w Elem) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = reduce64(bits.Mul64(a[i], w[0]))
	}
}

func (Field64) Sum(a []uint64, n, step int) Elem {
	var lo, hi, c uint64
	for i := range n {
		lo, c = bits.Add64(lo, a[i*step], 0)
		hi += c
	}
	return Elem{reduce64(hi, lo)}
}

func (Field64) Dot(w, a []uint64, step int) Elem {
	var s0, s1, s2, c uint64
	for i, x := range w {
		h, l := bits.Mul64(x, a[i*step])
		s0, c = bits.Add64(s0, l, 0)
		s1, c = bits.Add64(s1, h, c)
		s2 += c
	}
	return Elem{fold64(s2, s1, s0)}
}

func (Field64) Lagrange(dst, itw []uint64, ts []Elem, seed Elem) {
	dst = dst[:1<<len(ts)]
	dst[0] = seed[0]
	for i, h := len(ts)-1, 1; i >= 0; i, h = i-1, 2*h {
		t := ts[i][0]
		lo, hi, tw := dst[:h], dst[h:2*h], itw[h:2*h]
		for k := range lo {
			x := lo[k]
			u := reduce64(bits.Mul64(x, reduce64(bits.Mul64(t, tw[k]))))
			lo[k], hi[k] = add64(x, u), sub64(x, u)
		}
	}
}

func (Field64) Columns(wires, seeds, meas, w, run, r []uint64, bias Elem, chunk int) {
	w0 := w[0]
	for j := range chunk {
		var e2, o2, c uint64
		e1, e0 := bits.Mul64(w0, seeds[2*j])
		o1, o0 := bits.Mul64(w0, seeds[2*j+1])
		n := rows(len(meas), j, chunk)
		ws, run, r := w[1:1+n], run[:n], r[:n]
		at := j
		for i := range ws {
			m := meas[at]
			at += chunk
			h, l := bits.Mul64(ws[i], m)
			o0, c = bits.Add64(o0, l, 0)
			o1, c = bits.Add64(o1, h, c)
			o2 += c
			h, l = bits.Mul64(run[i], m)
			e0, c = bits.Add64(e0, l, 0)
			e1, c = bits.Add64(e1, h, c)
			e2 += c
			run[i] = reduce64(bits.Mul64(run[i], r[i]))
		}
		wires[2*j] = fold64(e2, e1, e0)
		wires[2*j+1] = add64(fold64(o2, o1, o0), bias[0])
	}
}

// rows is the number of elements in column j of n elements laid out in rows of chunk.
func rows(n, j, chunk int) int { return (n - j + chunk - 1) / chunk }

func (Field64) DIF(v, itw []uint64) {
	for h := len(v) / 2; h > 0; h /= 2 {
		tw := itw[h : 2*h]
		for at := 0; at < len(v); at += 2 * h {
			lo, hi := v[at:at+h], v[at+h:at+2*h]
			for k := range tw {
				x, y := lo[k], hi[k]
				lo[k], hi[k] = add64(x, y), reduce64(bits.Mul64(sub64(x, y), tw[k]))
			}
		}
	}
}

func (Field64) DIT(v, tw []uint64) {
	for h := 1; h < len(v); h *= 2 {
		tw := tw[h : 2*h]
		for at := 0; at < len(v); at += 2 * h {
			lo, hi := v[at:at+h], v[at+h:at+2*h]
			for k := range tw {
				x, y := lo[k], reduce64(bits.Mul64(hi[k], tw[k]))
				lo[k], hi[k] = add64(x, y), sub64(x, y)
			}
		}
	}
}

func (Field64) Reduced(v []uint64) int {
	for i, x := range v {
		if x >= p64 {
			return i
		}
	}
	return -1
}

func (f Field64) Decode(dst []uint64, b []byte) bool {
	return decodeWords(dst, b) && f.Reduced(dst) < 0
}

func (Field64) Load(dst []uint64, b []byte) bool { return decodeWords(dst, b) }

func (Field64) Append(b []byte, v []uint64) []byte { return appendWords(b, v) }

func decodeWords(dst []uint64, b []byte) bool {
	if len(b) != 8*len(dst) {
		return false
	}
	for i := range dst {
		dst[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return true
}

func appendWords(b []byte, v []uint64) []byte {
	for _, x := range v {
		b = binary.LittleEndian.AppendUint64(b, x)
	}
	return b
}
