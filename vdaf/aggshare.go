package vdaf

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/vdaf/internal/field"
)

// ErrMismatch: aggregate shares of different shapes (field or length) were put together.
var ErrMismatch = errors.New("vdaf: aggregate shares of different shape")

// AggShare is one aggregator's sum of output shares: a vector of field elements, all
// reduced. A share reveals nothing about the reports in it without the shares of all
// other aggregators. It is not safe for concurrent use.
type AggShare struct {
	f field.Field
	v []uint64
}

// MakeAggShare returns the zero share of n elements. It serves the VDAFs of this module;
// others get theirs from [VDAF].NewAggShare.
func MakeAggShare(f field.Field, n int) *AggShare {
	return &AggShare{f, make([]uint64, n*f.Limbs())}
}

// ReadAggShare decodes a share of exactly n elements; the VDAFs of this module export it
// as [VDAF].ReadAggShare.
func ReadAggShare(f field.Field, n int, b []byte) (*AggShare, error) {
	if len(b) != n*f.Size() {
		return nil, fmt.Errorf("%w: aggregate share of %d bytes, want %d", ErrDecode, len(b), n*f.Size())
	}
	a := MakeAggShare(f, n)
	if !f.Decode(a.v, b) {
		return nil, fmt.Errorf("%w: aggregate share has an element that is not reduced", ErrDecode)
	}
	return a, nil
}

// Len is the number of elements.
func (a *AggShare) Len() int { return len(a.v) / a.f.Limbs() }

// same reports whether both shares have one shape.
func (a *AggShare) same(b *AggShare) bool { return a.f.ID() == b.f.ID() && len(a.v) == len(b.v) }

// Merge adds b. It fails with [ErrMismatch], changing nothing, where the shapes differ.
func (a *AggShare) Merge(b *AggShare) error {
	if !a.same(b) {
		return ErrMismatch
	}
	a.f.AddVec(a.v, b.v)
	return nil
}

// AddSigned adds integers modulo the field's size, a negative one as its absolute value
// taken away: server noise, or a bias to take off. It fails with [ErrMismatch], changing
// nothing, where the length differs.
func (a *AggShare) AddSigned(x []int64) error {
	if len(x) != a.Len() {
		return ErrMismatch
	}
	for i, n := range x {
		a.f.Put(a.v, i, a.f.Add(a.f.At(a.v, i), a.f.FromInt64(n)))
	}
	return nil
}

// Append appends the encoding (VDAF-18 section 7.2.7.5, encode_agg_share).
func (a *AggShare) Append(b []byte) []byte { return a.f.Append(b, a.v) }

// Reset makes a zero again.
func (a *AggShare) Reset() { clear(a.v) }

// Clone returns a copy that shares no memory with a.
func (a *AggShare) Clone() *AggShare { return &AggShare{a.f, append([]uint64(nil), a.v...)} }

// AddOut adds an output share of the same shape, as VDAFs of this module hold it. It
// panics where the shape differs.
func (a *AggShare) AddOut(f field.Field, out []uint64) {
	if f.ID() != a.f.ID() || len(out) != len(a.v) {
		panic("vdaf: output share added to an aggregate share of another VDAF")
	}
	a.f.AddVec(a.v, out)
}

// UnshardInt64 is [VDAF].Unshard for results that are the centred elements themselves. n
// is the length expected.
func UnshardInt64(f field.Field, n int, shares []*AggShare) ([]int64, error) {
	sum := MakeAggShare(f, n)
	for _, s := range shares {
		if err := sum.Merge(s); err != nil {
			return nil, err
		}
	}
	out := make([]int64, n)
	for i := range out {
		x, ok := f.Int64(f.At(sum.v, i))
		if !ok {
			return nil, fmt.Errorf("%w: element %d", ErrRange, i)
		}
		out[i] = x
	}
	return out, nil
}
