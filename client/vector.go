package client

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/pine"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// Reals answers a [recipe.Vector]: one finite number for each place. A vector longer than the recipe's norm is scaled down to it.
// It keeps v, which must not change until the report is made.
func Reals(v []float64) Value { return Value{kind: isReals, reals: v} }

// vectorWords are what a [recipe.Vector] asks for.
func vectorWords(q recipe.Vector) string {
	return fmt.Sprintf("a vector of %d finite numbers", q.Dimension)
}

// finite says whether all numbers are, in time that does not depend on which is not.
func (v Value) finite() bool {
	var bad uint64
	for _, x := range v.reals {
		bad |= (math.Float64bits(x)>>52&0x7FF + 1) >> 11
	}
	return bad == 0
}

// newVectorSharder returns the sharder of a vector of bounded norm, which clips.
func newVectorSharder(q recipe.Vector, config dap.VDAFConfig) (sharder, error) {
	switch c := config.(type) {
	case dap.PineConfig:
		v, err := pine.New(c.PineParams())
		if err != nil {
			return nil, err
		}
		encoding := pine.Encoding{Clip: true, Randomized: q.Rounding == recipe.RoundRandomly}
		return func(ctx []byte, x Value, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
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

// clipBelowOne returns a copy that is scaled to norm 1 - 2^-30 if it is longer. Floating point is wrong by less than 2^-30 for any
// length that a proof has, and rounding towards zero lengthens nothing.
func clipBelowOne(x []float64) []float64 {
	const most = 1 - 0x1p-30
	largest, sum := 0x1p-1000, 0.0
	for _, y := range x {
		largest = max(largest, math.Abs(y))
	}
	for _, y := range x {
		sum += y / largest * (y / largest)
	}
	scale := min(1, most/largest/math.Sqrt(sum)) // of a zero vector: infinity
	out := make([]float64, len(x))
	for i, y := range x {
		out[i] = y * scale
	}
	return out
}
