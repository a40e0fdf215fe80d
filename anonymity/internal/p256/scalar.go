package p256

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
)

// ScalarSize is the length of a scalar on a wire, in bytes.
const ScalarSize = 32

// A Scalar is an integer modulo n, the group's order: four limbs, the least significant
// first, always below n. The zero Scalar is 0.
//
// All operations of it take constant time.
type Scalar struct{ limbs [4]uint64 }

// order is n.
var order = [4]uint64{0xf3b9cac2fc632551, 0xbce6faada7179e84, 0xffffffffffffffff, 0xffffffff00000000}

// orderInverse is -1/n mod 2^64.
const orderInverse = 0xccd1c8aaee00bc4f

// orderRR is 2^512 mod n.
var orderRR = [4]uint64{0x83244c95be79eea2, 0x4699799c49bd6fa6, 0x2845b2392b6bec59, 0x66e12d94f3d95620}

// ScalarOf returns a small number as a scalar.
func ScalarOf(x uint64) Scalar { return Scalar{[4]uint64{x}} }

// reduceScalar returns four limbs and a carry that together are below 2n, modulo n.
func reduceScalar(t [4]uint64, carry uint64) Scalar {
	var r [4]uint64
	var b uint64
	for i := range r {
		r[i], b = bits.Sub64(t[i], order[i], b)
	}
	_, b = bits.Sub64(carry, 0, b)
	keep := -b
	for i := range r {
		r[i] ^= keep & (r[i] ^ t[i])
	}
	return Scalar{r}
}

// Add returns x + y.
func (x Scalar) Add(y Scalar) Scalar {
	var t [4]uint64
	var c uint64
	for i := range t {
		t[i], c = bits.Add64(x.limbs[i], y.limbs[i], c)
	}
	return reduceScalar(t, c)
}

// Sub returns x - y.
func (x Scalar) Sub(y Scalar) Scalar {
	var t [4]uint64
	var b, c uint64
	for i := range t {
		t[i], b = bits.Sub64(x.limbs[i], y.limbs[i], b)
	}
	borrowed := -b
	for i := range t {
		t[i], c = bits.Add64(t[i], borrowed&order[i], c)
	}
	return Scalar{t}
}

// Neg returns -x.
func (x Scalar) Neg() Scalar { return Scalar{}.Sub(x) }

// montgomery returns x*y/2^256. One of the two may be any number of four limbs, the other
// is below n.
func montgomery(x, y *[4]uint64) Scalar {
	var t0, t1, t2, t3, t4, top, c uint64
	for i := range 4 {
		h0, l0 := bits.Mul64(x[i], y[0])
		h1, l1 := bits.Mul64(x[i], y[1])
		h2, l2 := bits.Mul64(x[i], y[2])
		h3, l3 := bits.Mul64(x[i], y[3])
		t0, c = bits.Add64(t0, l0, 0)
		t1, c = bits.Add64(t1, l1, c)
		t2, c = bits.Add64(t2, l2, c)
		t3, c = bits.Add64(t3, l3, c)
		t4, top = bits.Add64(t4, 0, c)
		t1, c = bits.Add64(t1, h0, 0)
		t2, c = bits.Add64(t2, h1, c)
		t3, c = bits.Add64(t3, h2, c)
		t4, c = bits.Add64(t4, h3, c)
		top += c
		// m n more makes the lowest limb 0, and it goes.
		m := t0 * orderInverse
		h0, l0 = bits.Mul64(m, order[0])
		h1, l1 = bits.Mul64(m, order[1])
		h2, l2 = bits.Mul64(m, order[2])
		h3, l3 = bits.Mul64(m, order[3])
		_, c = bits.Add64(t0, l0, 0)
		t0, c = bits.Add64(t1, l1, c)
		t1, c = bits.Add64(t2, l2, c)
		t2, c = bits.Add64(t3, l3, c)
		t3, c = bits.Add64(t4, 0, c)
		t4 = top + c
		t0, c = bits.Add64(t0, h0, 0)
		t1, c = bits.Add64(t1, h1, c)
		t2, c = bits.Add64(t2, h2, c)
		t3, c = bits.Add64(t3, h3, c)
		t4 += c
	}
	return reduceScalar([4]uint64{t0, t1, t2, t3}, t4)
}

// Mul returns x * y.
func (x Scalar) Mul(y Scalar) Scalar {
	t := montgomery(&x.limbs, &y.limbs)
	return montgomery(&t.limbs, &orderRR)
}

// Invert returns 1/x, and 0 for 0: x^(n-2).
func (x Scalar) Invert() Scalar {
	// n-2 is public, so its digits may choose; powers are in Montgomery form, of 0 to 15.
	const width = 4
	var powers [1 << width]Scalar
	powers[0] = montgomery(&orderRR, &[4]uint64{1})
	powers[1] = montgomery(&x.limbs, &orderRR)
	for i := 2; i < len(powers); i++ {
		powers[i] = montgomery(&powers[i-1].limbs, &powers[1].limbs)
	}
	exponent := order
	exponent[0] -= 2
	z := powers[0]
	for i := 256 - width; i >= 0; i -= width {
		for range width {
			z = montgomery(&z.limbs, &z.limbs)
		}
		if d := exponent[i/64] >> (i % 64) & (1<<width - 1); d != 0 {
			z = montgomery(&z.limbs, &powers[d].limbs)
		}
	}
	return montgomery(&z.limbs, &[4]uint64{1})
}

// IsZero returns 1 if x = 0 and 0 otherwise.
func (x Scalar) IsZero() uint64 {
	return isZero(x.limbs[0] | x.limbs[1] | x.limbs[2] | x.limbs[3])
}

// Equal returns 1 if x = y and 0 otherwise.
func (x Scalar) Equal(y Scalar) uint64 { return x.Sub(y).IsZero() }

// Append appends x, big-endian, to b.
func (x Scalar) Append(b []byte) []byte {
	for i := range x.limbs {
		b = binary.BigEndian.AppendUint64(b, x.limbs[3-i])
	}
	return b
}

// ReadScalar reads a scalar of [ScalarSize] bytes. It refuses 0 and what is not below n:
// no scalar of a message is 0 but with probability 2^-256. The error wraps [ErrScalar].
// Which scalar it is does not show in its time.
func ReadScalar(b []byte) (Scalar, error) {
	if len(b) != ScalarSize {
		return Scalar{}, fmt.Errorf("%w: %d bytes, not %d", ErrScalar, len(b), ScalarSize)
	}
	var t [4]uint64
	var below uint64
	for i := range t {
		t[i] = binary.BigEndian.Uint64(b[24-8*i:])
		_, below = bits.Sub64(t[i], order[i], below)
	}
	x := Scalar{t}
	if below == 0 {
		return Scalar{}, fmt.Errorf("%w: not below the order of the group", ErrScalar)
	}
	if x.IsZero() == 1 {
		return Scalar{}, fmt.Errorf("%w: zero", ErrScalar)
	}
	return x, nil
}

// wideScalar returns a big-endian number of 48 bytes modulo n, which is within 2^-128 of
// uniform if the bytes are (RFC 9380 section 5.2).
func wideScalar(b *[wideSize]byte) Scalar {
	hi := [4]uint64{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[:])}
	lo := [4]uint64{binary.BigEndian.Uint64(b[40:]), binary.BigEndian.Uint64(b[32:]), binary.BigEndian.Uint64(b[24:]), binary.BigEndian.Uint64(b[16:])}
	return montgomery(&hi, &orderRR).Add(reduceScalar(lo, 0))
}

// wideSize is how many bytes a number modulo p or n is made of: 128 bits more than it has.
const wideSize = 48

// WideScalar reads a number of 48 bytes from r, big-endian, and returns it modulo n. A
// failure of r is our caller's, who wants a stream that has none.
func WideScalar(r io.Reader) Scalar {
	var b [wideSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		panic("p256: internal error: reading randomness: " + err.Error())
	}
	return wideScalar(&b)
}

// RandomScalar is a scalar other than 0 that is uniform but for 2^-128, from randomness of
// 48 bytes.
func RandomScalar(rand io.Reader) Scalar {
	for {
		if x := WideScalar(rand); x.IsZero() == 0 {
			return x
		}
	}
}

// ShortScalar is a scalar of 128 random bits, from 16 bytes.
func ShortScalar(rand io.Reader) Scalar {
	var b [16]byte
	if _, err := io.ReadFull(rand, b[:]); err != nil {
		panic("p256: internal error: reading randomness: " + err.Error())
	}
	return Scalar{[4]uint64{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[:])}}
}
