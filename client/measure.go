package client

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/bits"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// A Value is one person's answer, made by [Bool], [Number], [Bucket], [Vector], [Reals] or [NoValue]; the zero Value is refused. It never
// prints what it holds.
type Value struct {
	kind   kind
	number uint64
	vector []uint64
	reals  []float64
	units  []int64 // what the device's own noise made of reals; nil before
}

type kind uint8

const (
	isBool kind = iota + 1
	isNumber
	isBucket
	isVector
	isReals
	isNothing
)

// Bool answers a [recipe.Count].
func Bool(yes bool) Value {
	v := Value{kind: isBool}
	if yes {
		v.number = 1
	}
	return v
}

// Number answers a [recipe.Sum] or a [recipe.Mean].
func Number(n uint64) Value { return Value{kind: isNumber, number: n} }

// Bucket answers a [recipe.Histogram]; buckets count from 0.
func Bucket(i uint32) Value { return Value{kind: isBucket, number: uint64(i)} }

// Vector answers a [recipe.Multihot], with zeros and ones, a [recipe.SumVec] or a
// [recipe.L1BoundSum]. It keeps v, which must not change until the report is made.
func Vector(v []uint64) Value { return Value{kind: isVector, vector: v} }

const redacted = "redacted"

func (Value) String() string               { return redacted }
func (Value) Format(f fmt.State, _ rune)   { io.WriteString(f, redacted) }
func (Value) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// ValueError: the value is no answer to the recipe's query. It does not say what the value was.
type ValueError struct{ Want string }

func (e *ValueError) Error() string {
	return "client: the value is no answer to the query: want " + e.Want
}

// A sharder checks a value against the query and splits it into input shares for two aggregators.
type sharder func(ctx []byte, v Value, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error)

// newSharder returns the sharder of a query that has been validated.
func newSharder(q recipe.Query) (sharder, error) {
	const aggregators = 2
	switch q := q.(type) {
	case recipe.Count:
		c, err := prio3.NewCount(aggregators)
		return measured(c, isBool, "yes or no", func(v Value) bool { return v.number == 1 }), err
	case recipe.Sum:
		c, err := prio3.NewSum(aggregators, q.Max)
		return measured(c, isNumber, fmt.Sprintf("a number from 0 to %d", q.Max), Value.uint64), err
	case recipe.Mean:
		c, err := prio3.NewSum(aggregators, q.Max)
		return measured(c, isNumber, fmt.Sprintf("a number from 0 to %d", q.Max), Value.uint64), err
	case recipe.Histogram:
		c, err := prio3.NewHistogram(aggregators, int(q.Length), int(q.Chunk))
		return measured(c, isBucket, fmt.Sprintf("a bucket from 0 to %d", q.Length-1),
			func(v Value) int { return int(v.number) }), err
	case recipe.Multihot:
		c, err := prio3.NewMultihotCountVec(aggregators, int(q.Length), int(q.MaxWeight), int(q.Chunk))
		want := fmt.Sprintf("a vector of %d zeros and ones, at most %d of them ones", q.Length, q.MaxWeight)
		shard := measured(c, isVector, want, Value.flags)
		return func(ctx []byte, v Value, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
			if v.over(1) {
				return nil, &ValueError{want}
			}
			return shard(ctx, v, nonce)
		}, err
	case recipe.SumVec:
		c, err := prio3.NewSumVec(aggregators, int(q.Length), q.Max, int(q.Chunk))
		return measured(c, isVector, fmt.Sprintf("a vector of %d numbers from 0 to %d", q.Length, q.Max),
			func(v Value) []uint64 { return v.vector }), err
	case recipe.L1BoundSum:
		c, err := prio3.NewL1BoundSum(aggregators, int(q.Length), q.Max, int(q.Chunk))
		return measured(c, isVector, fmt.Sprintf(l1Words, q.Length, q.Max), func(v Value) []uint64 { return v.vector }), err
	case recipe.Vector:
		shard, err := newVectorSharder(q, q.VDAFConfig())
		if err != nil {
			return nil, err
		}
		return valued(isReals, vectorWords(q), shard), nil
	}
	return nil, fmt.Errorf("client: no measurement for query %T", q)
}

// l1Words say what answers an L1BoundSum.
const l1Words = "a vector of %d numbers from 0 on that add up to at most %d"

// measured returns a sharder of values of one kind, which get gives as the VDAF takes them. What the VDAF refuses is a
// [ValueError] too.
func measured[M any](c vdaf.Client[M], k kind, want string, get func(Value) M) sharder {
	return valued(k, want, func(ctx []byte, v Value, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
		return c.Shard(ctx, get(v), nonce)
	})
}

// valued refuses values of another kind, and turns what the VDAF refuses into a [ValueError].
func valued(k kind, want string, shard sharder) sharder {
	return func(ctx []byte, v Value, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
		if v.kind != k {
			return nil, &ValueError{want}
		}
		s, err := shard(ctx, v, nonce)
		if errors.Is(err, vdaf.ErrMeasurement) {
			return nil, &ValueError{want}
		}
		return s, err
	}
}

func (v Value) uint64() uint64 { return v.number }

func (v Value) flags() []bool {
	flags := make([]bool, len(v.vector))
	for i, x := range v.vector {
		flags[i] = x == 1
	}
	return flags
}

// over says whether an element is above max, in time that does not depend on which.
func (v Value) over(max uint64) bool {
	var over uint64
	for _, x := range v.vector {
		_, b := bits.Sub64(max, x, 0)
		over |= b
	}
	return over != 0
}

// sumWithin says whether the elements add up to at most max, in time that does not depend
// on them.
func (v Value) sumWithin(max uint64) bool {
	var sum, over, carry uint64
	for _, x := range v.vector {
		sum, carry = bits.Add64(sum, x, 0)
		over |= carry
	}
	_, carry = bits.Sub64(max, sum, 0)
	return over|carry == 0
}
