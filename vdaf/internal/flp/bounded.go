package flp

import (
	"math/bits"

	"github.com/starling-agg/starling/vdaf/internal/field"
)

// bounded is what kindBounded needs beside chunk.
type bounded struct {
	n, width int
	checked  int // elements, all bits
	group    int // calls for bits; those for each sum of products follow
	halves   int // 1 or 2 numbers to an entry
	weights  [2][]uint64
	sums     []boundedSum
	norm     []uint64 // weights of the squared norm's bits
	// total is nil if the squared norm is the first sum itself.
	total []field.Elem // weights of the sums in it
}

// boundedSum is the sum over all entries of half a times half b.
type boundedSum struct {
	a, b    int
	at      int      // its bits in the measurement
	weights []uint64 // of its bits
	offset  field.Elem
}

// wide is the number of bits from which the square of an entry may leave the field of 128
// bits, so that it is put together of two halves.
const wide = 64

// BoundedLen is the number of elements of NewBounded.
func BoundedLen(n, width int) int {
	l := n*width + 2*width - 2
	if width >= wide {
		a, b, c := halfBits(n)
		l += a + b + c
	}
	return l
}

// halfBits are the bits of the sums of products of halves of n entries of 64 bits: h*h,
// h*l and l*l, -2^31 <= h < 2^31, 0 <= l < 2^32. The first is below 2^63 for a norm below
// 2^63, n up to 2^22; the second is stored shifted to be positive.
func halfBits(n int) (hh, hl, ll int) {
	log := bits.Len(uint(n))
	return 63, 64 + log, 64 + log
}

// BoundedCalls is the number of calls of NewBounded.
func BoundedCalls(n, width, chunk int) int {
	sums := 1
	if width >= wide {
		sums = 3
	}
	return calls(BoundedLen(n, width), chunk) + sums*calls(n, chunk)
}

// NewBounded checks that n entries of width bits in two's complement, least significant
// bit first, have a squared norm, computed over the integers, below 2^(2*width-2): the
// measurement of paper 003. The entries' bits are followed by the 2*width-2 bits of the
// squared norm. No sum of squares may reach the field's size: n*2^(2*width-2) below it,
// or width = 64 over Field128, where three sums of products of half entries follow, of
// which 2^64*hh + 2^33*hl + ll is the squared norm.
func NewBounded(f field.Field, n, width, chunk int) *Circuit {
	b := &bounded{n: n, width: width, checked: BoundedLen(n, width), halves: 1}
	b.group = calls(b.checked, chunk)
	at := n * width
	b.norm = powersOfTwo(f, 2*width-2)
	if width < wide {
		b.weights[0] = signed(f, width)
		b.sums = []boundedSum{{at: at, weights: b.norm}}
	} else {
		b.halves = 2
		b.weights = [2][]uint64{signed(f, width/2), powersOfTwo(f, width/2)}
		hh, hl, ll := halfBits(n)
		at += 2*width - 2
		b.sums = []boundedSum{{0, 0, at, powersOfTwo(f, hh), field.Elem{}},
			{0, 1, at + hh, powersOfTwo(f, hl), f.Sub(field.Elem{}, f.ToRaw(power(f, hl-1)))},
			{1, 1, at + hh + hl, powersOfTwo(f, ll), field.Elem{}}}
		b.total = []field.Elem{power(f, 64), power(f, 33), power(f, 0)}
	}
	evals := 1 + len(b.sums)
	if b.total != nil {
		evals++
	}
	c := &Circuit{F: f, kind: kindBounded, MeasLen: b.checked, JointRandLen: b.group, arity: 2 * chunk, degree: 2,
		calls: b.group + len(b.sums)*calls(n, chunk), evalLen: evals, chunk: chunk, bounded: b}
	return c.build()
}

// power is the weight 2^k.
func power(f field.Field, k int) field.Elem {
	v := powersOfTwo(f, k+1)
	return f.At(v, k)
}

// signed are the weights of the bits of a number in two's complement.
func signed(f field.Field, width int) []uint64 {
	v := powersOfTwo(f, width)
	f.Put(v, width-1, f.Sub(field.Elem{}, f.At(v, width-1)))
	return v
}

// split fills entries with the numbers that the bits of meas, or a share of them, make.
func (b *bounded) split(f field.Field, meas []uint64, entries *[2][]uint64) {
	l := f.Limbs()
	for h := range b.halves {
		if entries[h] == nil {
			entries[h] = make([]uint64, b.n*l)
		}
		at := 0
		if b.halves == 2 && h == 0 {
			at = b.width / 2 // the upper half
		}
		for i := range b.n {
			f.Put(entries[h], i, f.Dot(b.weights[h], meas[(i*b.width+at)*l:], 1))
		}
	}
}

// BoundedEncode writes the elements of NewBounded for entries of its width, and reports
// whether their squared norm is within the bound. Its time does not depend on the
// entries.
func (c *Circuit) BoundedEncode(dst []uint64, entries []int64) bool {
	f, b := c.F, c.bounded
	bit := func(at int, lo, hi uint64, i int) {
		x := lo >> (i & 63)
		if i >= 64 {
			x = hi >> (i & 63)
		}
		f.Put(dst, at, field.Elem{x & 1})
	}
	var hh, hl, ll, norm [3]uint64
	for i, x := range entries {
		for k := range b.width {
			bit(i*b.width+k, uint64(x), 0, k)
		}
		sign := uint64(x >> 63)
		mag := uint64(x)&^sign | (uint64(x)^sign-sign)&sign
		hi, lo := bits.Mul64(mag, mag)
		add192(&norm, lo, hi, 0)
		h, l := x>>32, uint64(x)&(1<<32-1)
		add192(&hh, uint64(h*h), 0, 0)
		hs := uint64(h >> 63)
		p := h * int64(l) // above -2^63
		add192(&hl, uint64(p), hs&-nonzero(l), hs&-nonzero(l))
		hi, lo = bits.Mul64(l, l)
		add192(&ll, lo, hi, 0)
	}
	top := 2*b.width - 2
	ok := norm[2] == 0 && (top >= 128 || bits.Len64(norm[1]) <= max(0, top-64)) && (top >= 64 || norm[0]>>top == 0)
	at := b.n * b.width
	for k := range top {
		bit(at+k, norm[0], norm[1], k)
	}
	if b.total != nil {
		nhh, nhl, nll := halfBits(b.n)
		add192(&hl, 0, 1<<(nhl-1-64), 0)
		for s, x := range [][3]uint64{hh, hl, ll} {
			for k := range []int{nhh, nhl, nll}[s] {
				bit(b.sums[s].at+k, x[0], x[1], k)
			}
		}
	}
	return ok
}

func nonzero(x uint64) uint64 { return (x | -x) >> 63 }

// add192 adds a number of three words.
func add192(s *[3]uint64, a, b, c uint64) {
	var k uint64
	s[0], k = bits.Add64(s[0], a, 0)
	s[1], k = bits.Add64(s[1], b, k)
	s[2] += c + k
}

func (c *Circuit) queryBounded(s *Scratch, wires, seeds, outs, meas, queryRand, jointRand []uint64,
	invShares field.Elem) field.Elem {
	f, l, b := c.F, c.F.Limbs(), c.bounded
	// The bits: as in kindChunked, on the first calls.
	for i := range b.group {
		f.Put(s.r, i, f.ToWeight(f.At(jointRand, i)))
	}
	copy(s.run, s.w[l:(1+b.group)*l])
	f.MulVec(s.run, s.r)
	bias := f.Sub(field.Elem{}, f.Mul(invShares, f.Sum(s.w[l:], b.group, 1)))
	f.Columns(wires, seeds, meas, s.w[:(1+b.group)*l], s.run, s.r, bias, c.chunk)

	if s.row == nil {
		s.row = make([]uint64, c.chunk*l)
	}
	b.split(f, meas, &s.entries)
	one := func(parity int, half []uint64, w []uint64) {
		f.Rows(s.row, w, half, c.chunk)
		for j := range c.chunk {
			f.Put(wires, 2*j+parity, f.Add(f.At(wires, 2*j+parity), f.At(s.row, j)))
		}
	}
	rand := func(i int) field.Elem { return f.ToWeight(f.At(queryRand, i)) }
	v := f.Mul(f.Sum(outs, b.group, 2), rand(0))
	norm := f.Dot(b.norm, meas[b.n*b.width*l:], 1)
	var total field.Elem
	per := calls(b.n, c.chunk)
	for i, sum := range b.sums {
		at := b.group + i*per
		w := s.w[(1+at)*l : (1+at+per)*l]
		one(0, s.entries[sum.a], w)
		one(1, s.entries[sum.b], w)
		claimed := f.Dot(sum.weights, meas[sum.at*l:], 1)
		claimed = f.Add(claimed, f.Mul(f.ToWeight(sum.offset), invShares))
		v = f.Add(v, f.Mul(f.Sub(f.Sum(outs[2*at*l:], per, 2), claimed), rand(1+i)))
		if b.total != nil {
			total = f.Add(total, f.Mul(claimed, b.total[i]))
		}
	}
	if b.total != nil {
		v = f.Add(v, f.Mul(f.Sub(total, norm), rand(1+len(b.sums))))
	}
	return v
}

func (c *Circuit) proveBounded(s *Scratch, meas, proveRand, jointRand []uint64) {
	f, l, b := c.F, c.F.Limbs(), c.bounded
	one := f.FromUint64(1)
	b.split(f, meas, &s.entries)
	per := calls(b.n, c.chunk)
	even, odd := s.even[:c.plan.P*l], s.odd[:c.plan.P*l]
	for i := range b.group {
		f.Put(s.r, i, f.ToWeight(f.At(jointRand, i)))
	}
	copy(s.run, s.r)
	for j := range c.chunk {
		clear(even)
		clear(odd)
		f.Put(even, 0, f.At(proveRand, 2*j))
		f.Put(odd, 0, f.At(proveRand, 2*j+1))
		for i := range b.group {
			var m field.Elem // padding is zero
			if at := i*c.chunk + j; at < b.checked {
				m = f.At(meas, at)
			}
			f.Put(even, 1+i, f.Mul(m, f.At(s.run, i)))
			f.Put(odd, 1+i, f.Sub(m, one))
		}
		for k, sum := range b.sums {
			for i := 0; i*c.chunk+j < b.n; i++ {
				at := 1 + b.group + k*per + i
				f.Put(even, at, f.At(s.entries[sum.a], i*c.chunk+j))
				f.Put(odd, at, f.At(s.entries[sum.b], i*c.chunk+j))
			}
		}
		c.multiply(s.y, even, odd)
		f.MulVec(s.run, s.r)
	}
}
