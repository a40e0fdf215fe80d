package client

import (
	"fmt"
	"math"
	"math/bits"

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

// newProject returns what makes the vector that is sent of the one that was given, which has been checked; nil without a projection.
func newProject(r *recipe.Recipe) (func(Value) Value, error) {
	if r.Projection == nil {
		return nil, nil
	}
	p, err := r.Projection.Map(r.Query.(recipe.Vector))
	if err != nil {
		return nil, err
	}
	return func(v Value) Value {
		// Numbers beyond 2^900 could add up to an infinity. Scaled down they are still longer than any norm, and are clipped alike.
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
func newVectorSharder(q recipe.Vector, config dap.VDAFConfig) (sharder, error) {
	switch c := config.(type) {
	case dap.PineConfig:
		v, err := pine.New(c.PineParams())
		if err != nil {
			return nil, err
		}
		encoding := pine.Encoding{Clip: true, Randomized: q.Rounding == recipe.RoundRandomly}
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

// newNoisyVector returns the randomizer of a vector: it clips, adds the device's noise, and draws again while the sum is longer than
// what is proved.
func newNoisyVector(q recipe.Vector, z recipe.Gaussian) (func(Value) (Value, error), error) {
	sampler, err := z.Sampler()
	if err != nil {
		return nil, err
	}
	proved, ok := q.VDAFConfig().(dap.PineConfig)
	if !ok {
		return nil, fmt.Errorf("client: no noise on vectors of %v", q.Proof)
	}
	proved.Bound = z.Clip
	clipped, err := pine.New(proved.PineParams())
	if err != nil {
		return nil, err
	}
	encoding := pine.Encoding{Clip: true, Randomized: q.Rounding == recipe.RoundRandomly}
	return func(v Value) (Value, error) {
		if v.kind == isNothing {
			v = Reals(make([]float64, q.Dimension))
		}
		e, err := pine.Encode(clipped, v.reals, encoding)
		if err != nil {
			return Value{}, &ValueError{vectorWords(q)}
		}
		v.units = make([]int64, len(e))
		for range maxRedraws {
			sampler.Sample(v.units)
			for i, x := range e {
				v.units[i] += x
			}
			if within(v.units, q.Bound) {
				clear(e)
				return v, nil
			}
		}
		panic("client: internal error: the source of random bits is stuck")
	}, nil
}

// maxRedraws ends a loop where only a stuck source of bits can be: it is passed with probability 2^-2560.
const maxRedraws = 64

// within says whether the norm of e is at most bound, below 2^50, in time that depends on the length alone. Entries are below
// 2^63 in absolute value.
func within(e []int64, bound uint64) bool {
	var hi, lo, over uint64
	for _, x := range e {
		y := uint64((x ^ x>>63) - x>>63)
		var h, l, c uint64
		h, l = bits.Mul64(y, y)
		lo, c = bits.Add64(lo, l, 0)
		hi, c = bits.Add64(hi, h, c)
		over |= c
	}
	h, l := bits.Mul64(bound, bound)
	_, b := bits.Sub64(l, lo, 0)
	_, b = bits.Sub64(h, hi, b)
	return b|over == 0
}

// clipBelowOne returns a copy that is scaled to norm 1 - 2^-30 if it is longer. Floating point is wrong by less than 2^-30 for any
// length that a proof has, and rounding towards zero lengthens nothing.
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
