// Package field holds the prime fields of VDAF-18 section 6.1 as flat vectors of 64-bit
// limbs, with the kernels that proofs need: lazy dot products, Lagrange weights, the
// gadget columns of a chunked range check and (for proving only) number theoretic
// transforms.
//
// # Representation
//
// A vector of n elements is a []uint64 of n*Limbs() words, each element little-endian and
// always reduced. Its bytes in little-endian order are the wire encoding, so decoding is
// a copy and a range check. (In Field32 and Field40 a limb holds one element, and only
// its low 4 or 5 bytes are on the wire.)
//
// There are two readings of the same words. A raw element stands for its own value:
// everything that comes from or goes to the wire is raw. A weight is the Montgomery form
// x*R of what it stands for. [Field.Mul] computes a*b/R, so
//
//	raw * weight = raw,  weight * weight = weight,  raw * raw = raw/R (mend it with one ToWeight).
//
// Data therefore never needs conversion; only the few coefficients it is multiplied with
// do. Only Field128 has R other than 1.
//
// # Timing
//
// Nothing here branches on, indexes by, or bounds a loop with the value of an element,
// except [Field.Reduced] and [Field.Decode], which reveal whether (and where) a string
// encodes an element that is not reduced, and [Field.Int64], which is for results.
package field

import "math/bits"

// ID names a field. Values are internal and never on the wire.
type ID uint8

const (
	id64  ID = 1 // 2^64 - 2^32 + 1
	id128 ID = 2 // 2^128 - 7*2^66 + 1
	id32  ID = 3 // 2^32 - 2^20 + 1
	id40  ID = 4 // 2^40 - 21*2^20 + 1
)

// Elem is one element of any field here of at most 128 bits, least significant limb
// first; unused limbs are zero.
type Elem [2]uint64

// IsZero reports whether e is zero, in either reading.
func (e Elem) IsZero() bool { return e[0]|e[1] == 0 }

// Field is the arithmetic of one prime field. Implementations are stateless. Lengths that
// do not agree panic.
type Field interface {
	ID() ID
	// Limbs is the number of words of an element in a vector.
	Limbs() int
	// Size is the length in bytes of an encoded element.
	Size() int

	Add(a, b Elem) Elem
	Sub(a, b Elem) Elem
	Mul(a, b Elem) Elem // a*b/R
	Inv(w Elem) Elem    // inverse of a weight, as a weight; zero for zero
	ToWeight(raw Elem) Elem
	ToRaw(w Elem) Elem
	FromUint64(x uint64) Elem // raw; x is reduced modulo the field
	FromInt64(x int64) Elem   // raw; negative x stands for q - |x|
	// Int64 returns the raw e as a centred integer: e where e <= q/2, e - q otherwise. ok
	// is false outside int64.
	Int64(e Elem) (x int64, ok bool)
	// Root returns, as a weight, the primitive 2^log-th root of unity the specification
	// calls nth_root(log).
	Root(log int) Elem
	// MaxLog is the largest argument Root takes.
	MaxLog() int

	At(v []uint64, i int) Elem
	Put(v []uint64, i int, e Elem)
	AddVec(dst, a []uint64)
	SubVec(dst, a []uint64)
	// MulVec sets dst[i] = dst[i]*w[i]/R.
	MulVec(dst, w []uint64)
	// ScaleVec sets dst[i] = a[i]*w/R. dst may be a.
	ScaleVec(dst, a []uint64, w Elem)
	// Sum adds n elements of a, every step-th from the first.
	Sum(a []uint64, n, step int) Elem
	// Dot adds w[i]*a[i*step]/R for every i of w.
	Dot(w, a []uint64, step int) Elem

	// Lagrange writes the p = 2^len(ts) weights L_k(t) of the Lagrange basis on the p-th
	// roots of unity, where ts[i] is the weight t^(2^i), itw the inverse twiddles of a
	// Plan of at least that size and seed the weight 1/p.
	//
	// L_k(t) = 1/p * prod_i (1 + (t/x_k)^(2^i)): a binary tree over k, two
	// multiplications a weight, no inversion.
	Lagrange(dst, itw []uint64, ts []Elem, seed Elem)

	// Columns evaluates all 2*chunk wire polynomials of a chunked range check (see
	// package flp) at one point:
	//
	//	wires[2j]   = w[0]*seeds[2j]   + sum_i run[i]*r[i]^j * meas[i*chunk+j]
	//	wires[2j+1] = w[0]*seeds[2j+1] + sum_i w[i+1]        * meas[i*chunk+j] + bias
	//
	// w, run and r are weights (run is used up), meas, seeds and bias raw; meas may end
	// within the last chunk.
	Columns(wires, seeds, meas, w, run, r []uint64, bias Elem, chunk int)

	// AddProducts adds a[i]*b[i]/R to dst[i*step] for every i of a.
	AddProducts(dst, a, b []uint64, step int)

	// Rows sets dst[j] = sum_i w[i]*a[i*chunk+j]/R for j < chunk: all wires of a gadget
	// that takes chunk elements of a at a call. a may end within the last row; there are
	// fewer than 2^22 rows.
	Rows(dst, w, a []uint64, chunk int)

	// DIF transforms values at the p-th roots of unity, in order, to p times the
	// coefficients, in bit-reversed order.
	DIF(v, itw []uint64)
	// DIT transforms coefficients in bit-reversed order to values at the p-th roots of
	// unity, in order.
	DIT(v, tw []uint64)

	// Reduced returns the index of the first element of v that is not reduced, or -1.
	// (That is the one operation that takes words which are not.)
	Reduced(v []uint64) int
	// Load reads exactly len(dst)/Limbs() candidates, which may not be reduced, and
	// reports whether b has that length.
	Load(dst []uint64, b []byte) bool
	// Decode reads exactly len(dst)/Limbs() elements and reports whether b has that
	// length and all are reduced.
	Decode(dst []uint64, b []byte) bool
	// Append appends the encoding of v.
	Append(b []byte, v []uint64) []byte
}

// ByID returns the field, or nil.
func ByID(id ID) Field {
	switch id {
	case id64:
		return Field64{}
	case id128:
		return Field128{}
	case id32:
		return Field32
	case id40:
		return Field40
	}
	return nil
}

// Exp returns the weight w^e.
func Exp(f Field, w Elem, e Elem) Elem {
	r := f.ToWeight(f.FromUint64(1))
	for i := 127; i >= 0; i-- {
		r = f.Mul(r, r)
		if e[i/64]>>(i%64)&1 == 1 { // exponents are public
			r = f.Mul(r, w)
		}
	}
	return r
}

// Plan holds the public tables for transforms and Lagrange weights on the p-th roots of
// unity.
type Plan struct {
	P, Log int
	// Tw[h+j] and Itw[h+j] are w^j and w^-j for w the 2h-th root, h a power of two below
	// P, j < h.
	Tw, Itw []uint64
	InvP    Elem // weight 1/P
}

// NewPlan makes tables for p = 2^log.
func NewPlan(f Field, log int) *Plan {
	p := 1 << log
	l := f.Limbs()
	pl := &Plan{P: p, Log: log, Tw: make([]uint64, p*l), Itw: make([]uint64, p*l)}
	one := f.ToWeight(f.FromUint64(1))
	w := f.Root(log)
	iw := f.Inv(w)
	for k := log; k > 0; k-- { // w is the 2^k-th root
		h := 1 << (k - 1)
		a, b := one, one
		for j := range h {
			f.Put(pl.Tw, h+j, a)
			f.Put(pl.Itw, h+j, b)
			a, b = f.Mul(a, w), f.Mul(b, iw)
		}
		w, iw = f.Mul(w, w), f.Mul(iw, iw)
	}
	pl.InvP = f.Inv(f.ToWeight(f.FromUint64(uint64(p))))
	return pl
}

// Shift returns the table that turns the output of DIF into the input of DIT on the coset
// s*<w>, s the primitive 2p-th root: element i is s^rev(i)/p, as a weight.
func (pl *Plan) Shift(f Field) []uint64 {
	t := make([]uint64, pl.P*f.Limbs())
	s := f.Root(pl.Log + 1)
	x := pl.InvP
	for i := range pl.P {
		f.Put(t, rev(i, pl.Log), x)
		x = f.Mul(x, s)
	}
	return t
}

// Permute reverses the index bits of a vector of pl.P elements.
func (pl *Plan) Permute(f Field, v []uint64) {
	for i := range pl.P {
		if j := rev(i, pl.Log); i < j {
			a, b := f.At(v, i), f.At(v, j)
			f.Put(v, i, b)
			f.Put(v, j, a)
		}
	}
}

func rev(i, log int) int { return int(bits.Reverse64(uint64(i)) >> (64 - log) & (1<<log - 1)) }
