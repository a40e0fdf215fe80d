package pine

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/starling-agg/starling/vdaf"
)

// Errors that say why a vector was refused; all wrap [vdaf.ErrMeasurement].
var (
	ErrDimension = fmt.Errorf("%w: vector of wrong dimension", vdaf.ErrMeasurement)
	ErrNotFinite = fmt.Errorf("%w: vector with an entry that is not finite", vdaf.ErrMeasurement)
	ErrNorm      = fmt.Errorf("%w: vector over its norm bound", vdaf.ErrMeasurement)
)

func errNorm(v *Pine) error { return fmt.Errorf("%w: %d units", ErrNorm, v.bound) }

// Encoding says how a real vector becomes integers. The zero value rounds each entry to
// the nearest, ties to even (as draft-chen-cfrg-vdaf-pine-02 does), and refuses what is
// then too long.
type Encoding struct {
	// Clip scales a vector that is too long down to the bound instead of refusing it.
	//
	// Rounding can lengthen a vector: by about d/4 units in the square. So the vector is
	// scaled to a norm of sqrt(B^2 - d/4 - 4*B) units where it is above that, which
	// leaves room for all but rare roundings; and the integers are scaled again, towards
	// zero and in integer arithmetic, if they are still above B. Every finite vector
	// encodes, and B is the sensitivity of what comes out, whatever floating point did.
	Clip bool
	// Randomized rounds each entry up with the odds of its fraction, else down, so that
	// the expected value is the entry (to 2^-63 of a unit) and errors of many clients
	// cancel. Rounding to nearest has less variance but a bias that clients may share.
	Randomized bool
}

// Encode turns a vector into integers in units of 2^-FracBits, whose norm is at most
// [Params.Bound]. Errors are [ErrDimension], [ErrNotFinite] and (without Clip) [ErrNorm].
// Subnormal entries are taken; they round like others.
func Encode[F ~float32 | ~float64](v *Pine, x []F, o Encoding) ([]int64, error) {
	if len(x) != v.dim {
		return nil, fmt.Errorf("%w: %d entries, want %d", ErrDimension, len(x), v.dim)
	}
	largest, bad := 0x1p-1000, uint64(0)
	for _, y := range x {
		b := math.Float64bits(float64(y))
		bad |= (b>>52&0x7FF + 1) >> 11
		largest = max(largest, math.Abs(float64(y)))
	}
	if bad != 0 {
		return nil, ErrNotFinite
	}
	scale := math.Ldexp(1, v.p.FracBits)
	if o.Clip {
		sum := 0.0
		for _, y := range x {
			z := float64(y) / largest
			sum += z * z
		}
		b, d := float64(v.bound), float64(v.dim)
		target := math.Sqrt(max(b*b/4, b*b-d/4-4*b))
		scale = min(scale, target/largest/math.Sqrt(sum)) // a zero vector divides by zero: infinity
	}
	e := make([]int64, len(x))
	if o.Randomized {
		roundRandomly(e, x, scale)
	} else {
		for i, y := range x {
			e[i] = int64(math.RoundToEven(clamp(float64(y) * scale)))
		}
	}
	if o.Clip {
		clip(e, v.bound)
	}
	if _, _, ok := squaredNorm(e, v.bound); !ok {
		return nil, errNorm(v)
	}
	return e, nil
}

// clamp keeps what is far above every bound within the range of exact integers.
func clamp(y float64) float64 { return min(max(y, -0x1p51), 0x1p51) }

func roundRandomly[F ~float32 | ~float64](e []int64, x []F, scale float64) {
	var buf [4096]byte
	for i, y := range x {
		at := i * 8 % len(buf)
		if at == 0 {
			rand.Read(buf[:]) // never fails
		}
		z := clamp(float64(y) * scale)
		down := math.Floor(z)
		odds := uint64((z - down) * 0x1p63)
		up := (binary.LittleEndian.Uint64(buf[at:])>>1 - odds) >> 63
		e[i] = int64(down) + int64(up)
	}
}

// squaredNorm returns the sum of squares, in two words, and whether it is at most
// bound^2; if some entry alone is above bound, the sum may have overflowed. bound is at
// most MaxBound.
func squaredNorm(e []int64, bound uint64) (hi, lo uint64, ok bool) {
	var over uint64
	for _, x := range e {
		a := abs(x)
		_, b := bits.Sub64(bound, a, 0)
		over |= b
		h, l := bits.Mul64(a, a)
		var c uint64
		lo, c = bits.Add64(lo, l, 0)
		hi += h + c
	}
	bh, bl := bits.Mul64(bound, bound)
	_, b := bits.Sub64(bl, lo, 0)
	_, b = bits.Sub64(bh, hi, b)
	return hi, lo, over|b == 0
}

func abs(x int64) uint64 {
	s := x >> 63
	return uint64((x ^ s) - s)
}

// clip scales e towards zero so that its norm is at most bound, and leaves it as it is
// where that is so already. Entries are at most 2^51 in size. The one division is by a
// function of the norm.
//
// With n = max(bound, ceil(norm)) each entry becomes floor(|x| * floor(bound*2^62/n) /
// 2^62), at most |x|*bound/norm.
func clip(e []int64, bound uint64) {
	var hi, lo uint64
	for _, x := range e {
		h, l := bits.Mul64(abs(x), abs(x))
		var c uint64
		lo, c = bits.Add64(lo, l, 0)
		hi += h + c
	}
	n := ceilSqrt(hi, lo)
	_, less := bits.Sub64(n, bound, 0)
	n += (bound - n) & -less
	factor, _ := bits.Div64(bound>>2, bound<<62, n)
	for i, x := range e {
		h, l := bits.Mul64(abs(x), factor)
		y := int64(h<<2 | l>>62)
		s := x >> 63
		e[i] = (y ^ s) - s
	}
}

// ceilSqrt is the square root of a number below 2^126, rounded up.
func ceilSqrt(hi, lo uint64) uint64 {
	var r uint64
	for i := 62; i >= 0; i-- {
		c := r | 1<<i
		h, l := bits.Mul64(c, c)
		_, b := bits.Sub64(lo, l, 0)
		_, b = bits.Sub64(hi, h, b)
		r |= (1 ^ b) << i
	}
	h, l := bits.Mul64(r, r)
	_, b := bits.Sub64(l, lo, 0)
	_, b = bits.Sub64(h, hi, b)
	return r + b
}
