package prio3

import (
	"fmt"
	"math/bits"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/derand"
	"github.com/starling-agg/starling/vdaf/internal/field"
	"github.com/starling-agg/starling/vdaf/internal/flp"
)

// Count is Prio3Count (VDAF-18 section 7.4.1): how many measurements are true. Results
// have one element.
type Count struct{ core }

// NewCount returns a Count for 2 to [MaxShares] aggregators. Errors are [ErrParameter].
func NewCount(shares int) (*Count, error) {
	if err := checkShares(shares); err != nil {
		return nil, err
	}
	return &Count{newCore(IDCount, shares, 1, flp.NewCount(field.Field64{}), 1, nil)}, nil
}

// Shard implements [vdaf.Client].
func (v *Count) Shard(ctx []byte, m bool, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	return v.ShardDerandomized(ctx, m, nonce, v.fresh())
}

// ShardDerandomized is Shard with randomness given; see package vdaftest.
func (v *Count) ShardDerandomized(ctx []byte, m bool, nonce *[vdaf.NonceSize]byte, r derand.Rand) (*vdaf.Shares, error) {
	return v.shard(ctx, []uint64{bit(m)}, nonce, r)
}

// Sum is Prio3Sum (VDAF-18 section 7.4.2): the sum of integers from 0 to a maximum.
// Results have one element.
type Sum struct {
	core
	max uint64
}

// NewSum returns a Sum of integers up to max, 1 <= max < 2^63. Errors are [ErrParameter].
//
// The sum itself must stay below 2^63 - 2^31, half of Field64, for Unshard to read it as
// positive.
func NewSum(shares int, max uint64) (*Sum, error) {
	if err := checkShares(shares); err != nil {
		return nil, err
	}
	if max < 1 || max >= 1<<63 {
		return nil, fmt.Errorf("%w: maximum %d, want 1 to 2^63 - 1", ErrParameter, max)
	}
	w := rangeWeights(max)
	return &Sum{newCore(IDSum, shares, 1, flp.NewBits(field.Field64{}, len(w)), 1, w), max}, nil
}

// Shard implements [vdaf.Client]. A measurement above the maximum is [vdaf.ErrMeasurement].
func (v *Sum) Shard(ctx []byte, m uint64, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	return v.ShardDerandomized(ctx, m, nonce, v.fresh())
}

// ShardDerandomized is Shard with randomness given; see package vdaftest.
func (v *Sum) ShardDerandomized(ctx []byte, m uint64, nonce *[vdaf.NonceSize]byte, r derand.Rand) (*vdaf.Shares, error) {
	if m > v.max {
		return nil, fmt.Errorf("%w: above the maximum %d", vdaf.ErrMeasurement, v.max)
	}
	meas := make([]uint64, v.c.MeasLen)
	encodeRange(v.c.F, meas, m, v.max)
	return v.shard(ctx, meas, nonce, r)
}

// SumVec is Prio3SumVec (VDAF-18 section 7.4.3), or its variant over Field64 with several
// proofs: the element-wise sum of vectors of integers from 0 to a maximum.
type SumVec struct {
	core
	max uint64
}

// NewSumVec returns a SumVec over Field128 of vectors of length elements up to max (at
// least 1), proved chunk bits at a time; [OptimalChunk] of length*bits gives the shortest
// reports. length*bits is at most [MaxElements], the proof at most [MaxProofElements].
// Errors are [ErrParameter].
func NewSumVec(shares, length int, max uint64, chunk int) (*SumVec, error) {
	return newSumVec(IDSumVec, field.Field128{}, shares, length, max, chunk, 1)
}

// NewSumVecWithMultiproof is NewSumVec over Field64, which halves the measurement share,
// with several proofs that make up for the smaller field. max is below 2^63. proofs is
// [MinProofs] to [MaxProofs]: clients could search offline for randomness that hides an
// invalid measurement from fewer (VDAF-18 section 9.7).
func NewSumVecWithMultiproof(shares, length int, max uint64, chunk, proofs int) (*SumVec, error) {
	if max >= 1<<63 {
		return nil, fmt.Errorf("%w: maximum %d, want 1 to 2^63 - 1", ErrParameter, max)
	}
	if proofs < MinProofs {
		return nil, fmt.Errorf("%w: %d proofs, want %d to %d", ErrParameter, proofs, MinProofs, MaxProofs)
	}
	return newSumVec(IDMultiproof, field.Field64{}, shares, length, max, chunk, proofs)
}

func newSumVec(id uint32, f field.Field, shares, length int, max uint64, chunk, proofs int) (*SumVec, error) {
	if err := checkShares(shares); err != nil {
		return nil, err
	}
	if max < 1 {
		return nil, fmt.Errorf("%w: maximum 0", ErrParameter)
	}
	w := rangeWeights(max)
	if length < 1 || length > MaxElements/len(w) {
		return nil, fmt.Errorf("%w: length %d, want 1 to %d for %d bits", ErrParameter, length, MaxElements/len(w), len(w))
	}
	if err := checkChunk(length*len(w), chunk, proofs); err != nil {
		return nil, err
	}
	return &SumVec{newCore(id, shares, proofs, flp.NewChunked(f, length*len(w), chunk), length, w), max}, nil
}

// Shard implements [vdaf.Client]. A measurement of another length, or with an element
// above the maximum, is [vdaf.ErrMeasurement].
func (v *SumVec) Shard(ctx []byte, m []uint64, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	return v.ShardDerandomized(ctx, m, nonce, v.fresh())
}

// ShardDerandomized is Shard with randomness given; see package vdaftest.
func (v *SumVec) ShardDerandomized(ctx []byte, m []uint64, nonce *[vdaf.NonceSize]byte, r derand.Rand) (*vdaf.Shares,
	error) {
	if len(m) != v.outLen {
		return nil, fmt.Errorf("%w: %d elements, want %d", vdaf.ErrMeasurement, len(m), v.outLen)
	}
	f := v.c.F
	meas := make([]uint64, v.c.MeasLen*f.Limbs())
	var over uint64
	for i, x := range m {
		_, b := bits.Sub64(v.max, x, 0)
		over |= b
		encodeRange(f, at(meas, i, v.bits*f.Limbs()), x, v.max)
	}
	if over != 0 {
		return nil, fmt.Errorf("%w: element above the maximum %d", vdaf.ErrMeasurement, v.max)
	}
	return v.shard(ctx, meas, nonce, r)
}

// Histogram is Prio3Histogram (VDAF-18 section 7.4.4): how many measurements fell in each
// bucket.
type Histogram struct{ core }

// NewHistogram returns a Histogram over length buckets, proved chunk at a time;
// [OptimalChunk] of length gives the shortest reports. length is at most [MaxElements],
// the proof at most [MaxProofElements]. Errors are [ErrParameter].
func NewHistogram(shares, length, chunk int) (*Histogram, error) {
	if err := checkShares(shares); err != nil {
		return nil, err
	}
	if err := checkChunk(length, chunk, 1); err != nil {
		return nil, err
	}
	return &Histogram{newCore(IDHistogram, shares, 1, flp.NewOneHot(field.Field128{}, length, chunk), length, nil)}, nil
}

// Shard implements [vdaf.Client]. A bucket outside 0 to length-1 is [vdaf.ErrMeasurement].
func (v *Histogram) Shard(ctx []byte, bucket int, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	return v.ShardDerandomized(ctx, bucket, nonce, v.fresh())
}

// ShardDerandomized is Shard with randomness given; see package vdaftest.
func (v *Histogram) ShardDerandomized(ctx []byte, bucket int, nonce *[vdaf.NonceSize]byte, r derand.Rand) (*vdaf.Shares,
	error) {
	if bucket < 0 || bucket >= v.outLen {
		return nil, fmt.Errorf("%w: bucket outside 0 to %d", vdaf.ErrMeasurement, v.outLen-1)
	}
	meas := make([]uint64, v.c.MeasLen*v.c.F.Limbs())
	for i := range v.outLen {
		v.c.F.Put(meas, i, field.Elem{equal(uint64(i), uint64(bucket))})
	}
	return v.shard(ctx, meas, nonce, r)
}

// MultihotCountVec is Prio3MultihotCountVec (VDAF-18 section 7.4.5): how often each of
// several bits was set, where at most maxWeight are in one measurement.
type MultihotCountVec struct {
	core
	maxWeight int
}

// NewMultihotCountVec returns a MultihotCountVec over length bits with at most maxWeight
// set (1 to length), proved chunk elements at a time; [OptimalChunk] of length plus the
// bits of maxWeight gives the shortest reports. Their number is at most [MaxElements],
// the proof at most [MaxProofElements]. Errors are [ErrParameter].
func NewMultihotCountVec(shares, length, maxWeight, chunk int) (*MultihotCountVec, error) {
	if err := checkShares(shares); err != nil {
		return nil, err
	}
	if maxWeight < 1 || maxWeight > length {
		return nil, fmt.Errorf("%w: weight %d, want 1 to %d", ErrParameter, maxWeight, length)
	}
	w := rangeWeights(uint64(maxWeight))
	if length > MaxElements {
		return nil, fmt.Errorf("%w: length %d, want 1 to %d", ErrParameter, length, MaxElements)
	}
	if err := checkChunk(length+len(w), chunk, 1); err != nil {
		return nil, err
	}
	c := flp.NewWeighted(field.Field128{}, length, w, chunk)
	return &MultihotCountVec{newCore(IDMultihotCountVec, shares, 1, c, length, nil), maxWeight}, nil
}

// Shard implements [vdaf.Client]. A measurement of another length, or with more than
// maxWeight bits set, is [vdaf.ErrMeasurement].
func (v *MultihotCountVec) Shard(ctx []byte, m []bool, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	return v.ShardDerandomized(ctx, m, nonce, v.fresh())
}

// ShardDerandomized is Shard with randomness given; see package vdaftest.
func (v *MultihotCountVec) ShardDerandomized(ctx []byte, m []bool, nonce *[vdaf.NonceSize]byte, r derand.Rand) (
	*vdaf.Shares, error) {
	if len(m) != v.outLen {
		return nil, fmt.Errorf("%w: %d bits, want %d", vdaf.ErrMeasurement, len(m), v.outLen)
	}
	f := v.c.F
	meas := make([]uint64, v.c.MeasLen*f.Limbs())
	var weight uint64
	for i, b := range m {
		f.Put(meas, i, field.Elem{bit(b)})
		weight += bit(b)
	}
	if weight > uint64(v.maxWeight) {
		return nil, fmt.Errorf("%w: more than %d bits set", vdaf.ErrMeasurement, v.maxWeight)
	}
	encodeRange(f, meas[v.outLen*f.Limbs():], weight, uint64(v.maxWeight))
	return v.shard(ctx, meas, nonce, r)
}

// L1BoundSum is Prio3L1BoundSum (draft-ietf-ppm-l1-bound-sum-02): the element-wise sum of
// vectors of integers from 0 on, of which each adds up to at most a bound.
type L1BoundSum struct {
	core
	bound uint64
}

// NewL1BoundSum returns an L1BoundSum of vectors of length elements whose sum is at most
// bound (at least 1), proved chunk bits at a time; [OptimalChunk] of (length+1)*bits, the
// bits those of the bound, gives the shortest reports. (length+1)*bits is at most
// [MaxElements], the proof at most [MaxProofElements]. Errors are [ErrParameter].
//
// The proof is of the bound itself, whether or not it is a power of two less one.
func NewL1BoundSum(shares, length int, bound uint64, chunk int) (*L1BoundSum, error) {
	if err := checkShares(shares); err != nil {
		return nil, err
	}
	if bound < 1 {
		return nil, fmt.Errorf("%w: bound 0", ErrParameter)
	}
	w := rangeWeights(bound)
	if length < 1 || length > MaxElements/len(w)-1 {
		return nil, fmt.Errorf("%w: length %d, want 1 to %d for %d bits", ErrParameter, length, MaxElements/len(w)-1, len(w))
	}
	if err := checkChunk((length+1)*len(w), chunk, 1); err != nil {
		return nil, err
	}
	// No sum of as many elements below 2^64 wraps around the field, so that the
	// equation holds over the integers.
	c := flp.NewTotalled(field.Field128{}, length, w, chunk)
	return &L1BoundSum{newCore(IDL1BoundSum, shares, 1, c, length, w), bound}, nil
}

// Shard implements [vdaf.Client]. A measurement of another length, or that adds up to
// more than the bound, is [vdaf.ErrMeasurement].
func (v *L1BoundSum) Shard(ctx []byte, m []uint64, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
	return v.ShardDerandomized(ctx, m, nonce, v.fresh())
}

// ShardDerandomized is Shard with randomness given; see package vdaftest.
func (v *L1BoundSum) ShardDerandomized(ctx []byte, m []uint64, nonce *[vdaf.NonceSize]byte, r derand.Rand) (*vdaf.Shares,
	error) {
	if len(m) != v.outLen {
		return nil, fmt.Errorf("%w: %d elements, want %d", vdaf.ErrMeasurement, len(m), v.outLen)
	}
	f := v.c.F
	meas := make([]uint64, v.c.MeasLen*f.Limbs())
	group := v.bits * f.Limbs()
	var sum, over, carry uint64
	for i, x := range m {
		sum, carry = bits.Add64(sum, x, 0)
		over |= carry
		encodeRange(f, at(meas, i, group), x, v.bound)
	}
	_, carry = bits.Sub64(v.bound, sum, 0)
	if over|carry != 0 {
		return nil, fmt.Errorf("%w: the elements add up to more than %d", vdaf.ErrMeasurement, v.bound)
	}
	encodeRange(f, at(meas, v.outLen, group), sum, v.bound)
	return v.shard(ctx, meas, nonce, r)
}

// checkChunk bounds a chunked circuit over n elements.
func checkChunk(n, chunk, proofs int) error {
	switch {
	case n < 1 || n > MaxElements:
		return fmt.Errorf("%w: measurement of %d elements, want 1 to %d", ErrParameter, n, MaxElements)
	case chunk < 1 || chunk > MaxProofElements:
		return fmt.Errorf("%w: chunk of %d, want 1 to %d", ErrParameter, chunk, MaxProofElements)
	case proofs > MaxProofs:
		return fmt.Errorf("%w: %d proofs, want at most %d", ErrParameter, proofs, MaxProofs)
	}
	if p := flp.ChunkedProofLen(n, chunk); p > MaxProofElements/proofs {
		return fmt.Errorf("%w: %d proofs of %d elements, want %d in all", ErrParameter, proofs, p, MaxProofElements)
	}
	return nil
}

// OptimalChunk returns the chunk length, between 1 and n, that makes the proof over n
// elements shortest (the smallest of them, if several do): about the square root of n. It
// returns 1 for n < 1.
func OptimalChunk(n int) int {
	best, size := 1, 0
	// The proof is 2*chunk + 2*p - 1 elements with p a power of two above the number of
	// calls, so for each p the least chunk is the one that makes p-1 calls.
	for p := 2; n > 0; p *= 2 {
		chunk := (n + p - 2) / (p - 1)
		if s := flp.ChunkedProofLen(n, chunk); size == 0 || s < size || s == size && chunk < best {
			best, size = chunk, s
		}
		if chunk == 1 {
			break
		}
	}
	return best
}

// rangeWeights are the weights that make bit vectors stand for exactly the integers 0 to
// max, max > 0: powers of two but for the last, which brings their sum to max (VDAF-18
// section 7.4.2).
func rangeWeights(max uint64) []uint64 {
	w := make([]uint64, bits.Len64(max))
	last := len(w) - 1
	for i := range last {
		w[i] = 1 << i
	}
	w[last] = max - (1<<last - 1)
	return w
}

// encodeRange writes the bits of x (0 to max) under rangeWeights(max), in time
// independent of x.
func encodeRange(f field.Field, dst []uint64, x, max uint64) {
	last := bits.Len64(max) - 1
	rest := uint64(1)<<last - 1
	_, top := bits.Sub64(rest, x, 0) // 1 if x > rest
	x -= (max - rest) & -top
	for i := range last {
		f.Put(dst, i, field.Elem{x >> i & 1})
	}
	f.Put(dst, last, field.Elem{top})
}

// bit is 1 for true and 0 for false, without a branch (the compiler makes this shape a
// byte extension).
func bit(b bool) uint64 {
	var x uint64
	if b {
		x = 1
	}
	return x
}

// equal is 1 if a == b and 0 otherwise, without a branch.
func equal(a, b uint64) uint64 {
	d := a ^ b
	return 1 ^ (d|-d)>>63
}

// Interface checks: every type verifies and shards.
var (
	_ vdaf.VDAF             = (*Count)(nil)
	_ vdaf.VDAF             = (*Sum)(nil)
	_ vdaf.VDAF             = (*SumVec)(nil)
	_ vdaf.VDAF             = (*Histogram)(nil)
	_ vdaf.VDAF             = (*MultihotCountVec)(nil)
	_ vdaf.VDAF             = (*L1BoundSum)(nil)
	_ vdaf.Client[bool]     = (*Count)(nil)
	_ vdaf.Client[uint64]   = (*Sum)(nil)
	_ vdaf.Client[[]uint64] = (*SumVec)(nil)
	_ vdaf.Client[int]      = (*Histogram)(nil)
	_ vdaf.Client[[]bool]   = (*MultihotCountVec)(nil)
	_ vdaf.Client[[]uint64] = (*L1BoundSum)(nil)
)
