package field

import (
	"encoding/binary"
	"math/bits"
	"slices"
)

// Small is a prime field of 32 to 40 bits, one element to a word, in which raw elements
// and weights coincide. Sums of fewer than 2^22 products are reduced once.
type Small struct {
	id   ID
	size int
	p    uint64
	m    uint64 // floor(2^(64+k)/p), which is below 2^64
	k    uint   // bits of p less one
	root uint64 // of order 2^20
}

// The small fields of PINE (draft-chen-cfrg-vdaf-pine-02, poc/field.py).
var (
	// Field32 is GF(2^32 - 2^20 + 1).
	Field32 = &Small{id32, 4, 1<<32 - 1<<20 + 1, 0x8008007F87F07E88, 31, 3925978153}
	// Field40 is GF(2^40 - 21*2^20 + 1).
	Field40 = &Small{id40, 5, 1<<40 - 21<<20 + 1, 0x8000A800DC012019, 39, 395974995317}
)

// reduceSmall returns x = hi*2^64 + lo reduced, for x below 2^(63+k). With y =
// floor(x/2^k) the quotient is y*m/2^64 less an error of at most 2^k/p + y/2^64 < 1 and
// the rounding, so one subtraction of p mends it.
func reduceSmall(hi, lo, p, m uint64, k uint) uint64 {
	q, _ := bits.Mul64(hi<<((64-k)&63)|lo>>(k&63), m)
	r := lo - q*p
	t, d := bits.Sub64(r, p, 0)
	return t ^ (t^r)&-d
}

func addSmall(a, b, p uint64) uint64 {
	s := a + b
	t, d := bits.Sub64(s, p, 0)
	return t ^ (t^s)&-d
}

func subSmall(a, b, p uint64) uint64 {
	t, d := bits.Sub64(a, b, 0)
	return t + p&-d
}

func (f *Small) mul(a, b uint64) uint64 {
	h, l := bits.Mul64(a, b)
	return reduceSmall(h, l, f.p, f.m, f.k)
}

func (f *Small) ID() ID                        { return f.id }
func (f *Small) Limbs() int                    { return 1 }
func (f *Small) Size() int                     { return f.size }
func (f *Small) MaxLog() int                   { return 20 }
func (f *Small) Add(a, b Elem) Elem            { return Elem{addSmall(a[0], b[0], f.p)} }
func (f *Small) Sub(a, b Elem) Elem            { return Elem{subSmall(a[0], b[0], f.p)} }
func (f *Small) Mul(a, b Elem) Elem            { return Elem{f.mul(a[0], b[0])} }
func (f *Small) Inv(w Elem) Elem               { return Exp(f, w, Elem{f.p - 2}) }
func (f *Small) ToWeight(a Elem) Elem          { return a }
func (f *Small) ToRaw(a Elem) Elem             { return a }
func (f *Small) FromUint64(x uint64) Elem      { return Elem{reduceSmall(0, x, f.p, f.m, f.k)} }
func (f *Small) At(v []uint64, i int) Elem     { return Elem{v[i]} }
func (f *Small) Put(v []uint64, i int, e Elem) { v[i] = e[0] }

func (f *Small) FromInt64(x int64) Elem {
	s := uint64(x >> 63)
	r := f.FromUint64(uint64(x)&^s | (uint64(x)^s-s)&s)[0] // of |x|
	return Elem{subSmall(r&^s, r&s, f.p)}
}

func (f *Small) Int64(e Elem) (int64, bool) {
	if e[0] <= f.p/2 {
		return int64(e[0]), true
	}
	return -int64(f.p - e[0]), true
}

func (f *Small) Root(log int) Elem {
	w := f.root
	for range 20 - log {
		w = f.mul(w, w)
	}
	return Elem{w}
}

func (f *Small) AddVec(dst, a []uint64) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = addSmall(dst[i], a[i], f.p)
	}
}

func (f *Small) SubVec(dst, a []uint64) {
	a = a[:len(dst)]
	for i := range dst {
		dst[i] = subSmall(dst[i], a[i], f.p)
	}
}

func (f *Small) MulVec(dst, w []uint64) {
	w = w[:len(dst)]
	p, m, k := f.p, f.m, f.k
	for i := range dst {
		h, l := bits.Mul64(dst[i], w[i])
		dst[i] = reduceSmall(h, l, p, m, k)
	}
}

func (f *Small) ScaleVec(dst, a []uint64, w Elem) {
	a = a[:len(dst)]
	p, m, k := f.p, f.m, f.k
	for i := range dst {
		h, l := bits.Mul64(a[i], w[0])
		dst[i] = reduceSmall(h, l, p, m, k)
	}
}

func (f *Small) Sum(a []uint64, n, step int) Elem {
	var s uint64
	for i := range n {
		s += a[i*step]
	}
	return f.FromUint64(s)
}

func (f *Small) Dot(w, a []uint64, step int) Elem {
	var lo, hi, c uint64
	for i, x := range w {
		h, l := bits.Mul64(x, a[i*step])
		lo, c = bits.Add64(lo, l, 0)
		hi += h + c
	}
	return Elem{reduceSmall(hi, lo, f.p, f.m, f.k)}
}

func (f *Small) Lagrange(dst, itw []uint64, ts []Elem, seed Elem) {
	dst = dst[:1<<len(ts)]
	dst[0] = seed[0]
	p := f.p
	for i, h := len(ts)-1, 1; i >= 0; i, h = i-1, 2*h {
		t := ts[i][0]
		lo, hi, tw := dst[:h], dst[h:2*h], itw[h:2*h]
		for k := range lo {
			x := lo[k]
			u := f.mul(x, f.mul(t, tw[k]))
			lo[k], hi[k] = addSmall(x, u, p), subSmall(x, u, p)
		}
	}
}

func (f *Small) Columns(wires, seeds, meas, w, run, r []uint64, bias Elem, chunk int) {
	for j := range chunk {
		n := rows(len(meas), j, chunk)
		col := meas[min(j, len(meas)):]
		e, o := f.Dot(run[:n], col, chunk), f.Dot(w[1:1+n], col, chunk)
		wires[2*j] = addSmall(e[0], f.mul(w[0], seeds[2*j]), f.p)
		wires[2*j+1] = addSmall(addSmall(o[0], f.mul(w[0], seeds[2*j+1]), f.p), bias[0], f.p)
		f.MulVec(run[:n], r[:n])
	}
}

func (f *Small) DIF(v, itw []uint64) {
	p, m, s := f.p, f.m, f.k
	for h := len(v) / 2; h > 1; h /= 2 {
		tw := itw[h : 2*h]
		for at := 0; at < len(v); at += 2 * h {
			lo, hi := v[at:at+h], v[at+h:at+2*h]
			for k := range tw {
				x, y := lo[k], hi[k]
				u, l := bits.Mul64(x-y+p, tw[k]) // below 2p*p
				lo[k], hi[k] = addSmall(x, y, p), reduceSmall(u, l, p, m, s)
			}
		}
	}
	f.butterflies(v)
}

// butterflies is the layer of both transforms whose twiddles are one.
func (f *Small) butterflies(v []uint64) {
	for ; len(v) >= 2; v = v[2:] {
		x, y := v[0], v[1]
		v[0], v[1] = addSmall(x, y, f.p), subSmall(x, y, f.p)
	}
}

func (f *Small) DIT(v, tw []uint64) {
	p, m, s := f.p, f.m, f.k
	f.butterflies(v)
	for h := 2; h < len(v); h *= 2 {
		tw := tw[h : 2*h]
		for at := 0; at < len(v); at += 2 * h {
			lo, hi := v[at:at+h], v[at+h:at+2*h]
			for k := range tw {
				u, l := bits.Mul64(hi[k], tw[k])
				x, y := lo[k], reduceSmall(u, l, p, m, s)
				lo[k], hi[k] = addSmall(x, y, p), subSmall(x, y, p)
			}
		}
	}
}

func (f *Small) Reduced(v []uint64) int {
	for i, x := range v {
		if x >= f.p {
			return i
		}
	}
	return -1
}

func (f *Small) Decode(dst []uint64, b []byte) bool { return f.Load(dst, b) && f.Reduced(dst) < 0 }

func (f *Small) Load(dst []uint64, b []byte) bool {
	if len(b) != f.size*len(dst) {
		return false
	}
	if f.size == 4 {
		for i := range dst {
			dst[i] = uint64(binary.LittleEndian.Uint32(b[4*i:]))
		}
		return true
	}
	for i := range dst {
		x := b[5*i : 5*i+5]
		dst[i] = uint64(binary.LittleEndian.Uint32(x)) | uint64(x[4])<<32
	}
	return true
}

func (f *Small) Append(b []byte, v []uint64) []byte {
	at := len(b)
	b = slices.Grow(b, f.size*len(v))[:at+f.size*len(v)]
	out := b[at:]
	if f.size == 4 {
		for i, x := range v {
			binary.LittleEndian.PutUint32(out[4*i:], uint32(x))
		}
		return b
	}
	for i, x := range v {
		o := out[5*i : 5*i+5]
		binary.LittleEndian.PutUint32(o, uint32(x))
		o[4] = byte(x >> 32)
	}
	return b
}
