package p256

import (
	"encoding/binary"
	"math/bits"
)

// A fe is an integer modulo p = 2^256 - 2^224 + 2^192 + 2^96 - 1 in Montgomery form, that
// is times 2^256: four limbs, the least significant first, always below p.
type fe [4]uint64

// prime is p itself, not in Montgomery form.
var prime = [4]uint64{0xffffffffffffffff, 0x00000000ffffffff, 0, 0xffffffff00000001}

var (
	feOne = fe{1, 0xffffffff00000000, 0xffffffffffffffff, 0xfffffffe}
	// feRR is 2^512 mod p, not in Montgomery form: a product with it takes a number there.
	feRR = fe{3, 0xfffffffbffffffff, 0xfffffffffffffffe, 0x4fffffffd}
)

// reduceOnce sets z to t, four limbs and a carry that together are below 2p, modulo p.
func (z *fe) reduceOnce(t0, t1, t2, t3, carry uint64) {
	r0, b := bits.Sub64(t0, prime[0], 0)
	r1, b := bits.Sub64(t1, prime[1], b)
	r2, b := bits.Sub64(t2, prime[2], b)
	r3, b := bits.Sub64(t3, prime[3], b)
	_, b = bits.Sub64(carry, 0, b)
	// b is 1 where t was below p already.
	keep := -b
	z[0] = r0 ^ keep&(r0^t0)
	z[1] = r1 ^ keep&(r1^t1)
	z[2] = r2 ^ keep&(r2^t2)
	z[3] = r3 ^ keep&(r3^t3)
}

// add sets z = x + y. Constant time.
func (z *fe) add(x, y *fe) *fe {
	t0, c := bits.Add64(x[0], y[0], 0)
	t1, c := bits.Add64(x[1], y[1], c)
	t2, c := bits.Add64(x[2], y[2], c)
	t3, c := bits.Add64(x[3], y[3], c)
	z.reduceOnce(t0, t1, t2, t3, c)
	return z
}

// sub sets z = x - y. Constant time.
func (z *fe) sub(x, y *fe) *fe {
	t0, b := bits.Sub64(x[0], y[0], 0)
	t1, b := bits.Sub64(x[1], y[1], b)
	t2, b := bits.Sub64(x[2], y[2], b)
	t3, b := bits.Sub64(x[3], y[3], b)
	borrowed := -b
	t0, c := bits.Add64(t0, borrowed, 0)
	t1, c = bits.Add64(t1, borrowed&prime[1], c)
	t2, c = bits.Add64(t2, 0, c)
	t3, _ = bits.Add64(t3, borrowed&prime[3], c)
	*z = fe{t0, t1, t2, t3}
	return z
}

// neg sets z = -x. Constant time.
func (z *fe) neg(x *fe) *fe { return z.sub(&fe{}, x) }

// mul sets z = x*y/2^256, which is the product of numbers in Montgomery form. Constant
// time.
//
// A step adds m*p to the sum, m its lowest limb, and drops that limb, which becomes 0:
// m*p = (m 2^96 - m) + m*p3 2^192 with p3 the highest limb of p, so that one
// multiplication does it.
func (z *fe) mul(x, y *fe) *fe {
	var t0, t1, t2, t3, t4, c, hi, lo, h0, h1, h2, h3 uint64

	// t = x[0] * y
	h0, t0 = bits.Mul64(x[0], y[0])
	h1, t1 = bits.Mul64(x[0], y[1])
	h2, t2 = bits.Mul64(x[0], y[2])
	h3, t3 = bits.Mul64(x[0], y[3])
	t1, c = bits.Add64(t1, h0, 0)
	t2, c = bits.Add64(t2, h1, c)
	t3, c = bits.Add64(t3, h2, c)
	t4 = h3 + c

	hi, lo = bits.Mul64(t0, prime[3])
	t1, c = bits.Add64(t1, t0<<32, 0)
	t2, c = bits.Add64(t2, t0>>32, c)
	t3, c = bits.Add64(t3, lo, c)
	t4, c = bits.Add64(t4, hi, c)
	t0, t1, t2, t3, t4 = t1, t2, t3, t4, c

	for i := 1; i < 4; i++ {
		var l0, l1, l2, l3, t5 uint64
		h0, l0 = bits.Mul64(x[i], y[0])
		h1, l1 = bits.Mul64(x[i], y[1])
		h2, l2 = bits.Mul64(x[i], y[2])
		h3, l3 = bits.Mul64(x[i], y[3])
		t0, c = bits.Add64(t0, l0, 0)
		t1, c = bits.Add64(t1, l1, c)
		t2, c = bits.Add64(t2, l2, c)
		t3, c = bits.Add64(t3, l3, c)
		t4, t5 = bits.Add64(t4, 0, c)
		t1, c = bits.Add64(t1, h0, 0)
		t2, c = bits.Add64(t2, h1, c)
		t3, c = bits.Add64(t3, h2, c)
		t4, c = bits.Add64(t4, h3, c)
		t5 += c

		hi, lo = bits.Mul64(t0, prime[3])
		t1, c = bits.Add64(t1, t0<<32, 0)
		t2, c = bits.Add64(t2, t0>>32, c)
		t3, c = bits.Add64(t3, lo, c)
		t4, c = bits.Add64(t4, hi, c)
		t0, t1, t2, t3, t4 = t1, t2, t3, t4, t5+c
	}
	z.reduceOnce(t0, t1, t2, t3, t4)
	return z
}

// square sets z = x*x/2^256. Constant time.
func (z *fe) square(x *fe) *fe {
	t0, t1, t2, t3, c := squared(x[0], x[1], x[2], x[3])
	z.reduceOnce(t0, t1, t2, t3, c)
	return z
}

// squares sets z to x squared n times. Constant time for a given n.
//
// Between two squarings a number need not be below p: where it is 2^256 or more p is
// taken from it once, which leaves it below 2^256 and so below 2p.
func (z *fe) squares(x *fe, n int) *fe {
	t0, t1, t2, t3 := x[0], x[1], x[2], x[3]
	var c uint64
	for range n {
		t0, t1, t2, t3, c = squared(t0, t1, t2, t3)
		take := -c
		t0, c = bits.Sub64(t0, take, 0)
		t1, c = bits.Sub64(t1, take&prime[1], c)
		t2, c = bits.Sub64(t2, 0, c)
		t3, _ = bits.Sub64(t3, take&prime[3], c)
	}
	z.reduceOnce(t0, t1, t2, t3, 0)
	return z
}

// squared returns x*x/2^256 for any number x of four limbs: four limbs and a carry, which
// together are below 2^256 + p, and below 2p if x is below p. Constant time.
func squared(x0, x1, x2, x3 uint64) (uint64, uint64, uint64, uint64, uint64) {
	var hi, lo uint64
	// The products of unlike limbs, once.
	h01, t1 := bits.Mul64(x0, x1)
	h02, l02 := bits.Mul64(x0, x2)
	h03, l03 := bits.Mul64(x0, x3)
	h12, l12 := bits.Mul64(x1, x2)
	h13, l13 := bits.Mul64(x1, x3)
	h23, l23 := bits.Mul64(x2, x3)
	t2, c := bits.Add64(l02, h01, 0)
	t3, c := bits.Add64(l03, h02, c)
	t4, c := bits.Add64(l13, h03, c)
	t5, c := bits.Add64(l23, h13, c)
	t6 := h23 + c
	t3, c = bits.Add64(t3, l12, 0)
	t4, c = bits.Add64(t4, h12, c)
	t5, c = bits.Add64(t5, 0, c)
	t6 += c
	// Twice that, and the squares of the limbs.
	t7 := t6 >> 63
	t6 = t6<<1 | t5>>63
	t5 = t5<<1 | t4>>63
	t4 = t4<<1 | t3>>63
	t3 = t3<<1 | t2>>63
	t2 = t2<<1 | t1>>63
	t1 = t1 << 1
	hi, t0 := bits.Mul64(x0, x0)
	t1, c = bits.Add64(t1, hi, 0)
	hi, lo = bits.Mul64(x1, x1)
	t2, c = bits.Add64(t2, lo, c)
	t3, c = bits.Add64(t3, hi, c)
	hi, lo = bits.Mul64(x2, x2)
	t4, c = bits.Add64(t4, lo, c)
	t5, c = bits.Add64(t5, hi, c)
	hi, lo = bits.Mul64(x3, x3)
	t6, c = bits.Add64(t6, lo, c)
	t7 += hi + c
	// Four steps as in mul over the low half, whose carry out is the new fourth limb.
	hi, lo = bits.Mul64(t0, prime[3])
	t1, c = bits.Add64(t1, t0<<32, 0)
	t2, c = bits.Add64(t2, t0>>32, c)
	t3, c = bits.Add64(t3, lo, c)
	t0 = hi + c
	hi, lo = bits.Mul64(t1, prime[3])
	t2, c = bits.Add64(t2, t1<<32, 0)
	t3, c = bits.Add64(t3, t1>>32, c)
	t0, c = bits.Add64(t0, lo, c)
	t1 = hi + c
	hi, lo = bits.Mul64(t2, prime[3])
	t3, c = bits.Add64(t3, t2<<32, 0)
	t0, c = bits.Add64(t0, t2>>32, c)
	t1, c = bits.Add64(t1, lo, c)
	t2 = hi + c
	hi, lo = bits.Mul64(t3, prime[3])
	t0, c = bits.Add64(t0, t3<<32, 0)
	t1, c = bits.Add64(t1, t3>>32, c)
	t2, c = bits.Add64(t2, lo, c)
	t3 = hi + c
	// And the high half.
	t0, c = bits.Add64(t0, t4, 0)
	t1, c = bits.Add64(t1, t5, c)
	t2, c = bits.Add64(t2, t6, c)
	t3, c = bits.Add64(t3, t7, c)
	return t0, t1, t2, t3, c
}

// equal returns 1 if x = y and 0 otherwise. Constant time.
func (x *fe) equal(y *fe) uint64 {
	return isZero(x[0] ^ y[0] | x[1] ^ y[1] | x[2] ^ y[2] | x[3] ^ y[3])
}

// isZero returns 1 if x = 0 and 0 otherwise. Constant time.
func isZero(x uint64) uint64 { return 1 ^ (x|-x)>>63 }

// pick sets z to x if cond is 1, and to y if it is 0. Constant time.
func (z *fe) pick(x, y *fe, cond uint64) *fe {
	mask := -cond
	for i := range z {
		z[i] = y[i] ^ mask&(x[i]^y[i])
	}
	return z
}

// bytes returns x, out of Montgomery form, big-endian. Constant time.
func (x *fe) bytes() (b [32]byte) {
	var t fe
	t.mul(x, &fe{1})
	for i := range t {
		binary.BigEndian.PutUint64(b[24-8*i:], t[i])
	}
	return b
}

// odd returns the lowest bit of x, which RFC 9380 calls sgn0. Constant time.
func (x *fe) odd() uint64 {
	var t fe
	t.mul(x, &fe{1})
	return t[0] & 1
}

// setBytes sets z to a big-endian number, and says whether it is below p; else z is
// nothing. Constant time but for that.
func (z *fe) setBytes(b *[32]byte) bool {
	t := fe{binary.BigEndian.Uint64(b[24:]), binary.BigEndian.Uint64(b[16:]), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[:])}
	_, c := bits.Sub64(t[0], prime[0], 0)
	_, c = bits.Sub64(t[1], prime[1], c)
	_, c = bits.Sub64(t[2], prime[2], c)
	_, c = bits.Sub64(t[3], prime[3], c)
	z.mul(&t, &feRR)
	return c == 1
}

// setWide sets z to a big-endian number of 48 bytes modulo p (RFC 9380 section 5.2).
// Constant time.
func (z *fe) setWide(b *[48]byte) {
	hi := fe{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[:])}
	var lo fe
	lo.reduceOnce(binary.BigEndian.Uint64(b[40:]), binary.BigEndian.Uint64(b[32:]), binary.BigEndian.Uint64(b[24:]), binary.BigEndian.Uint64(b[16:]), 0)
	hi.mul(&hi, &feRR) // hi 2^256, not in Montgomery form
	z.add(&hi, &lo)
	z.mul(z, &feRR)
}

// feMust is a constant of the curve, from its bytes.
func feMust(b [32]byte) (z fe) {
	if !z.setBytes(&b) {
		panic("p256: internal error: a constant is not below the prime")
	}
	return z
}

// powers returns x^(2^2-1), x^(2^32-1), on which both exponents below stand. Constant
// time.
func (x *fe) powers() (x2, x32 fe) {
	var t, x4, x8, x16 fe
	x2.mul(t.square(x), x)
	x4.mul(t.squares(&x2, 2), &x2)
	x8.mul(t.squares(&x4, 4), &x4)
	x16.mul(t.squares(&x8, 8), &x8)
	x32.mul(t.squares(&x16, 16), &x16)
	return x2, x32
}

// invert sets z = 1/x, and 0 for 0: x^(p-2). Constant time.
//
// p-2 in words of 32 bits is ffffffff 00000001 00000000 00000000 00000000 ffffffff
// ffffffff fffffffd.
func (z *fe) invert(x *fe) *fe {
	x2, x32 := x.powers()
	var t, x30 fe
	// x^(2^30-1), from the parts of x32: 2^30-1 = 2^14 (2^16-1) + 2^14-1.
	x30.power30(x, &x2)
	t.squares(&x32, 32)
	t.mul(&t, x)
	t.squares(&t, 96+32)
	t.mul(&t, &x32)
	t.squares(&t, 32)
	t.mul(&t, &x32)
	t.squares(&t, 30)
	t.mul(&t, &x30)
	t.squares(&t, 2)
	z.mul(&t, x)
	return z
}

// power30 sets z = x^(2^30-1), given x2 = x^3.
func (z *fe) power30(x, x2 *fe) {
	var t, x3, x6, x12, x15 fe
	x3.mul(t.square(x2), x)
	x6.mul(t.squares(&x3, 3), &x3)
	x12.mul(t.squares(&x6, 6), &x6)
	x15.mul(t.squares(&x12, 3), &x3)
	z.mul(t.squares(&x15, 15), &x15)
}

// root sets z = x^((p+1)/4), a square root of x if it has one. Constant time.
//
// (p+1)/4 is 2^254 - 2^222 + 2^190 + 2^94: 32 ones, 31 zeros, a one, 95 zeros, a one, 94
// zeros.
func (z *fe) root(x *fe) *fe {
	_, x32 := x.powers()
	var t fe
	t.squares(&x32, 32)
	t.mul(&t, x)
	t.squares(&t, 96)
	t.mul(&t, x)
	z.squares(&t, 94)
	return z
}

// quarter sets z = x^((p-3)/4). Constant time.
//
// (p-3)/4 = (p+1)/4 - 1: 32 ones, 31 zeros, a one, 96 zeros, 94 ones.
func (z *fe) quarter(x *fe) *fe {
	x2, x32 := x.powers()
	var t, x30, x62, x94 fe
	x30.power30(x, &x2)
	x62.mul(t.squares(&x32, 30), &x30)
	x94.mul(t.squares(&x62, 32), &x32)
	t.squares(&x32, 32)
	t.mul(&t, x)
	t.squares(&t, 96+94)
	z.mul(&t, &x94)
	return z
}
