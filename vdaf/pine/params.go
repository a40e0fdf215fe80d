package pine

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/field"
	"github.com/starling-agg/starling/vdaf/internal/flp"
)

// Bounds on parameters, which bound what New, a State (per report) or Shard allocates.
const (
	MaxDimension = 1 << 22
	MaxFracBits  = 49
	// MaxBound is the largest integer bound B; a float64 has no more bits to spare.
	MaxBound = 1<<50 - 1
	// Tests is the number of wrap-around tests, all of which must pass (r = tau = 100 of
	// the draft).
	Tests = 100
)

// alpha is the draft's: an honest test fails with odds of at most 2*exp(-alpha^2), below
// 2^-108.
const alpha = 8.7

// ErrParameter: parameters outside their bounds, or too large for their field.
var ErrParameter = errors.New("pine: parameter out of bounds")

// Field is one of the four prime fields, named by its bits. Reports grow with it, and so
// does precision.
type Field int

const (
	Field32  Field = 32  // 4 bytes an entry, up to 15 fractional bits at norm 1
	Field40  Field = 40  // 5 bytes an entry, up to 19 fractional bits at norm 1
	Field64  Field = 64  // 8 bytes an entry, up to 31 fractional bits at norm 1
	Field128 Field = 128 // 16 bytes an entry
)

// fieldInfo is what the profile fixes for a field.
type fieldInfo struct {
	f          field.Field
	id         uint32
	aes        bool
	proofs     int // of the main circuit
	normProofs int
	q          float64
	half       uint64 // (q-1)/2, at most 63 bits of it
	cost       timing
}

var fields = map[Field]*fieldInfo{
	Field32: {f: field.Field32, id: vdaf.IDPine32, aes: true, proofs: 5, normProofs: 5, q: 1<<32 - 1<<20 + 1,
		half: 1<<31 - 1<<19,
		cost: timing{line{1.4e-3, 1.8e-7}, line{4.3e-4, 3.5e-8}, line{4.4e-4, 3.8e-8}}},
	Field40: {f: field.Field40, id: vdaf.IDPine40, aes: true, proofs: 4, normProofs: 3, q: 1<<40 - 21<<20 + 1,
		half: 1<<39 - 21<<19,
		cost: timing{line{1.4e-3, 1.6e-7}, line{3.9e-4, 4.0e-8}, line{4.4e-4, 4.2e-8}}},
	Field64: {f: field.Field64{}, id: vdaf.IDPine64, proofs: 2, normProofs: 2, q: 1<<64 - 1<<32 + 1,
		half: 1<<63 - 1<<31,
		cost: timing{line{1.1e-3, 2.6e-7}, line{3.6e-4, 9.8e-8}, line{3.8e-4, 1.2e-7}}},
	Field128: {f: field.Field128{}, id: vdaf.IDPine128, proofs: 1, normProofs: 1, q: 1<<128 - 7<<66 + 1,
		half: math.MaxInt64,
		cost: timing{line{9.4e-4, 4.2e-7}, line{2.6e-4, 1.8e-7}, line{3.4e-4, 2.0e-7}}},
}

// Params say what is summed. All fields are required but Shares.
type Params struct {
	Field     Field
	Dimension int // entries of a vector, 1 to MaxDimension
	// FracBits is f: entries are rounded to multiples of 2^-f. 0 to MaxFracBits.
	FracBits int
	// Norm is the L2 bound C that clients are held to, in units of the entries. The
	// proved bound is C rounded down to a multiple of 2^-f.
	Norm float64
	// Shares is the number of aggregators, 2 to 255. Default 2.
	Shares int
}

// Bound returns B, the proved bound of the L2 norm of the integer vector: floor(Norm *
// 2^FracBits).
func (p Params) Bound() uint64 { return uint64(math.Ldexp(p.Norm, p.FracBits)) }

// withDefaults fills what is left out.
func (p Params) withDefaults() Params {
	if p.Shares == 0 {
		p.Shares = 2
	}
	return p
}

// Validate reports whether the parameters are within their bounds and the proof sound in
// their field. Errors are [ErrParameter].
func (p Params) Validate() error {
	p = p.withDefaults()
	if fields[p.Field] == nil {
		return fmt.Errorf("%w: field of %d bits, want 32, 40, 64 or 128", ErrParameter, int(p.Field))
	}
	switch {
	case p.Dimension < 1 || p.Dimension > MaxDimension:
		return fmt.Errorf("%w: dimension %d, want 1 to %d", ErrParameter, p.Dimension, MaxDimension)
	case p.FracBits < 0 || p.FracBits > MaxFracBits:
		return fmt.Errorf("%w: %d fractional bits, want 0 to %d", ErrParameter, p.FracBits, MaxFracBits)
	case p.Shares < 2 || p.Shares > 255:
		return fmt.Errorf("%w: %d shares, want 2 to 255", ErrParameter, p.Shares)
	case !(p.Norm > 0) || !(math.Ldexp(p.Norm, p.FracBits) < MaxBound+1): // a NaN fails
		return fmt.Errorf("%w: norm %v with %d fractional bits, want above 0 and below 2^%d", ErrParameter, p.Norm,
			p.FracBits, bits.Len64(MaxBound)-p.FracBits)
	case p.Bound() == 0:
		return fmt.Errorf("%w: norm %v is below one unit of %d fractional bits", ErrParameter, p.Norm, p.FracBits)
	}
	return checkField(fields[p.Field].q, p.Bound(), Tests)
}

// checkField holds the conditions of the proof on the size of the field
// (draft-chen-cfrg-vdaf-pine-02, flp_pine.py): the range check of the norm needs q >
// 3*B^2 + 2, and the tests q >= max(W^2/4000, 2600*W, 2*r).
func checkField(q float64, bound uint64, tests int) error {
	b, w := float64(bound), float64(testRange(bound))
	if 3*b*b+2 >= q || w*w > 4000*q || 2600*w > q || 2*float64(tests) > q {
		return fmt.Errorf("%w: bound of %d units is too large for the field: fewer fractional bits or a larger field",
			ErrParameter, bound)
	}
	return nil
}

// testRange is W: the power of two at or above ceil(alpha*B) + 1.
func testRange(bound uint64) uint64 {
	return 1 << bits.Len64(uint64(math.Ceil(alpha*float64(bound))))
}

// shape is everything that fixes the circuits.
type shape struct {
	dim                int
	bound              uint64
	tests, passes      int
	proofs, normProofs int
	chunk, normChunk   int
}

// shape returns the profile's choices for p, which is valid.
func (p Params) shape() shape {
	i := fields[p.Field]
	s := shape{dim: p.Dimension, bound: p.Bound(), tests: Tests, passes: Tests, proofs: i.proofs, normProofs: i.normProofs}
	s.chunk = flp.ShortestChunk(s.bits(), func(chunk int) (arity, calls int) {
		return 2 * chunk, ceilDiv(s.bits(), chunk) + ceilDiv(s.tests, chunk)
	})
	s.normChunk = flp.ShortestChunk(s.dim, func(chunk int) (arity, calls int) { return chunk, ceilDiv(s.dim, chunk) })
	return s
}

func ceilDiv(a, b int) int { return (a + b - 1) / b }

// normBits is the length of each half of the norm's range check.
func (s shape) normBits() int {
	hi, lo := bits.Mul64(s.bound, s.bound)
	if hi > 0 {
		return 64 + bits.Len64(hi)
	}
	return bits.Len64(lo)
}

// testBits is the length of a test's shifted result.
func (s shape) testBits() int { return bits.Len64(2*testRange(s.bound) - 1) }

// bits is how many bits a measurement holds beside the vector.
func (s shape) bits() int { return 2*s.normBits() + s.tests*(s.testBits()+1) }
