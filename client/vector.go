package client

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/pine"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// Reals answers a [recipe.Vector]: one finite number for each place. A vector longer than
// the recipe's norm is scaled down to it. It keeps v, which must not change until the
// report is made.
func Reals(v []float64) Value { return Value{kind: isReals, reals: v} }

// finite says whether all numbers are, in time that does not depend on which is not.
func (v Value) finite() bool {
	var bad uint64
	for _, x := range v.reals {
		bad |= (math.Float64bits(x)>>52&0x7FF + 1) >> 11
	}
	return bad == 0
}

// newProject returns what makes the vector that is sent of the one that was given, which
// has been checked; nil without a projection.
func newProject(r *recipe.Recipe) (func(Value) Value, error) {
	if r.Projection == nil {
		return nil, nil
	}
	q, ok := r.Vector()
	if !ok {
		return nil, errors.New("client: a projection of no vector")
	}
	p, err := r.Projection.Map(q)
	if err != nil {
		return nil, err
	}
	return func(v Value) Value {
		// Numbers beyond 2^900 could add up to an infinity. Scaled down they are still
		// longer than any norm, and are clipped alike.
		largest := 0.0
		for _, x := range v.reals {
			largest = max(largest, math.Abs(x))
		}
		x := v.reals
		if largest > 0x1p900 {
			x = make([]float64, len(v.reals))
			for i, y := range v.reals {
				x[i] = y * 0x1p-200
			}
		}
		return Reals(p.Apply(x))
	}, nil
}

// newVectorSharder returns the sharder of a vector of bounded norm, which clips.
func newVectorSharder(config dap.VDAFConfig, encoding pine.Encoding) (sharder, error) {
	switch c := config.(type) {
	case dap.PineConfig:
		v, err := pine.New(c.PineParams())
		if err != nil {
			return nil, err
		}
		return func(ctx []byte, x Value, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
			if x.units != nil {
				defer clear(x.units)
				return v.ShardIntegers(ctx, x.units, nonce)
			}
			e, err := pine.Encode(v, x.reals, encoding)
			if err != nil {
				return nil, err
			}
			defer clear(e)
			return v.ShardIntegers(ctx, e, nonce)
		}, nil
	case dap.L2VecConfig:
		v, err := prio3.NewL2Vec(2, int(c.Length), c.EntryBits())
		if err != nil {
			return nil, err
		}
		return func(ctx []byte, x Value, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
			y := clipBelowOne(x.reals)
			defer clear(y)
			return v.Shard(ctx, y, nonce)
		}, nil
	}
	return nil, fmt.Errorf("client: no vector of %T", config)
}

// clipBelowOne returns a copy that is scaled to norm 1 - 2^-30 if it is longer. Floating
// point is wrong by less than 2^-30 for any length that a proof has, and rounding towards
// zero lengthens nothing.
func clipBelowOne(x []float64) []float64 {
	const room = 0x1p-30
	largest, sum := 0x1p-1000, 0.0
	for _, y := range x {
		largest = max(largest, math.Abs(y))
	}
	for _, y := range x {
		sum += y / largest * (y / largest)
	}
	scale := min(1, (1-room)/largest/math.Sqrt(sum)) // of a zero vector: infinity
	out := make([]float64, len(x))
	for i, y := range x {
		out[i] = y * scale
	}
	return out
}
