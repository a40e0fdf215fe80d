package prio3

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/derand"
	"github.com/starling-agg/starling/vdaf/internal/field"
	"github.com/starling-agg/starling/vdaf/internal/flp"
)

// MaxL2Elements is the longest measurement of an L2Vec, in field elements.
const MaxL2Elements = 1 << 23

// l2Proofs is the number of proofs over Field64, for the reason of NewSumVecWithMultiproof.
const l2Proofs = 3

// L2Vec is the sum of real vectors of L2 norm below 1 in the encoding of paper 003
// (dpsa4fl, section 4): entries are fixed-point numbers of 16, 32 or 64 bits, each bit a
// field element; the client proves the bits and the range of the squared norm, which the
// circuit computes over the integers. Libraries called it FixedPointBoundedL2VecSum
// before they dropped it. It serves for comparison and for short vectors: package pine
// does the same in a fraction of the bytes.
//
// Differences from the paper: entries are in two's complement instead of shifted by
// 2^(width-1), so that a result needs no count of reports; entries of 16 bits are over
// Field64 with three proofs, the halving that the paper proposes; entries of 64 bits are
// squared in halves, so that the sum of squares cannot wrap around Field128, which three
// entries would do.
//
// Results are in units of 2^(1-width); [L2Vec.Reals] divides.
type L2Vec struct {
	core
	width int
}

// NewL2Vec returns an L2Vec of vectors of length entries of 16, 32 or 64 bits.
// Measurements have at most [MaxL2Elements] elements; the chunk length follows. Errors
// are [ErrParameter].
func NewL2Vec(shares, length, width int) (*L2Vec, error) {
	if err := checkShares(shares); err != nil {
		return nil, err
	}
	id, f, proofs := uint32(vdaf.IDL2Vec16), field.Field(field.Field64{}), l2Proofs
	switch width {
	case 16:
	case 32:
		id, f, proofs = vdaf.IDL2Vec32, field.Field128{}, 1
	case 64:
		id, f, proofs = vdaf.IDL2Vec64, field.Field128{}, 1
	default:
		return nil, fmt.Errorf("%w: entries of %d bits, want 16, 32 or 64", ErrParameter, width)
	}
	if length < 1 || length > MaxL2Elements/width || flp.BoundedLen(length, width) > MaxL2Elements {
		return nil, fmt.Errorf("%w: length %d, want 1 to about %d", ErrParameter, length, MaxL2Elements/width)
	}
	chunk := flp.ShortestChunk(flp.BoundedLen(length, width), func(chunk int) (arity, calls int) {
		return 2 * chunk, flp.BoundedCalls(length, width, chunk)
	})
	v := &L2Vec{width: width}
	weights := make([]uint64, width)
	for i := range weights {
		weights[i] = 1 << i
	}
	v.core = newCore(id, shares, proofs, flp.NewBounded(f, length, width, chunk), length, weights)
	last := field.Elem{1 << (width - 1)} // its bit counts negative
	f.Put(v.weights, width-1, f.Sub(field.Elem{}, f.ToWeight(last)))
	return v, nil
}

// Width is the number of bits of an entry.
func (v *L2Vec) Width() int { return v.width }

// Reals turns a sum as Unshard returns it into units of the entries.
func (v *L2Vec) Reals(sum []int64) []float64 {
	out := make([]float64, len(sum))
	for i, x := range sum {
		out[i] = math.Ldexp(float64(x), 1-v.width)
	}
	return out
}

// Shard implements [vdaf.Client]. Entries are rounded towards zero to multiples of
// 2^(1-width), which never lengthens a vector. [vdaf.ErrMeasurement] is for another
// length, an entry that is not finite, and a norm (after rounding) of 1 or more.
func (v *L2Vec) Shard(ctx []byte, m []float64, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	return v.ShardDerandomized(ctx, m, nonce, v.fresh())
}

// ShardDerandomized is Shard with randomness given; see package vdaftest.
func (v *L2Vec) ShardDerandomized(ctx []byte, m []float64, nonce *[vdaf.NonceSize]byte, r derand.Rand) (*vdaf.Shares,
	error) {
	if len(m) != v.outLen {
		return nil, fmt.Errorf("%w: %d entries, want %d", vdaf.ErrMeasurement, len(m), v.outLen)
	}
	entries := make([]int64, len(m))
	unit, below := math.Ldexp(1, v.width-1), math.Nextafter(1, 0)
	var bad uint64
	for i, x := range m {
		b := math.Float64bits(x) &^ (1 << 63)
		bad |= (math.Float64bits(below) - b) >> 63 // |x| is 1 or more, or not a number
		entries[i] = int64(min(max(x, -below), below) * unit)
	}
	if bad != 0 {
		return nil, fmt.Errorf("%w: entry that is not within -1 and 1", vdaf.ErrMeasurement)
	}
	return v.shardFixed(ctx, entries, nonce, r)
}

func (v *L2Vec) shardFixed(ctx []byte, entries []int64, nonce *[vdaf.NonceSize]byte, r derand.Rand) (*vdaf.Shares, error) {
	meas := make([]uint64, v.c.MeasLen*v.c.F.Limbs())
	if !v.c.BoundedEncode(meas, entries) {
		return nil, fmt.Errorf("%w: norm of 1 or more", vdaf.ErrMeasurement)
	}
	return v.shard(ctx, meas, nonce, r)
}

var (
	_ vdaf.VDAF              = (*L2Vec)(nil)
	_ vdaf.Client[[]float64] = (*L2Vec)(nil)
)
