package client

import (
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/prio3"
)

// A Value is one person's answer, made by [Bool], [Number], [Bucket], [InGroup], [Vector],
// [Reals], [Text] or [NoValue]; the zero Value is refused. It never prints what it holds.
type Value struct {
	kind   kind
	number uint64
	vector []uint64
	reals  []float64
	units  []int64 // what the device's own noise made of reals; nil before
}

type kind = recipe.Form

const (
	isBool    = recipe.YesOrNo
	isNumber  = recipe.Number
	isBucket  = recipe.Bucket
	isVector  = recipe.Numbers
	isReals   = recipe.Reals
	isGrouped = recipe.Grouped
	isText    = recipe.Text
	isNothing = recipe.Text + 1
)

// Bool answers yes or no.
func Bool(yes bool) Value {
	v := Value{kind: isBool}
	if yes {
		v.number = 1
	}
	return v
}

// Number answers with a whole number.
func Number(n uint64) Value { return Value{kind: isNumber, number: n} }

// Bucket answers with a bucket; they count from 0.
func Bucket(i uint32) Value { return Value{kind: isBucket, number: uint64(i)} }

// InGroup answers a [recipe.GroupSums] with a number of one group; they count from 0.
func InGroup(n int64, group uint32) Value {
	return Value{kind: isGrouped, vector: []uint64{uint64(n), uint64(group)}}
}

// Vector answers a [recipe.Multihot], with zeros and ones, a [recipe.SumVec] or a
// [recipe.L1BoundSum]. It keeps v, which must not change until the report is made.
func Vector(v []uint64) Value { return Value{kind: isVector, vector: v} }

// Text answers a query by a text. It fails with *[ValueError] where that is no answer. It
// takes time that depends on the text, on the device that knows it.
func Text(q recipe.Tabled, text string) (Value, error) {
	numbers, ok := q.Spell(text)
	if !ok {
		return Value{}, &ValueError{q.Wanted()}
	}
	return ValueOf(isText, numbers), nil
}

const redacted = "redacted"

func (Value) String() string               { return redacted }
func (Value) Format(f fmt.State, _ rune)   { io.WriteString(f, redacted) }
func (Value) LogValue() slog.Value         { return slog.StringValue(redacted) }
func (Value) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// ValueError: the value is no answer to the recipe's query. It does not say what the
// value was.
type ValueError struct{ Want string }

func (e *ValueError) Error() string {
	return "client: the value is no answer to the query: want " + e.Want
}

// A sharder checks a value against the query and splits it into input shares for two
// aggregators.
type sharder func(ctx []byte, v Value, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error)

// newSharder returns the sharder of a recipe's query that has been validated.
func newSharder(r *recipe.Recipe) (sharder, error) {
	shard, err := shardOf(r)
	if err != nil {
		return nil, err
	}
	return valued(r.Query, shard), nil
}

// shardOf returns what splits a value that is of the query's form, by the VDAF of the
// recipe.
func shardOf(r *recipe.Recipe) (sharder, error) {
	const aggregators = 2
	config, err := r.VDAFConfig()
	if err != nil {
		return nil, err
	}
	switch c := config.(type) {
	case dap.CountConfig:
		v, err := prio3.NewCount(aggregators)
		return measured(v, func(x Value) bool { return x.number == 1 }), err
	case dap.SumConfig:
		v, err := prio3.NewSum(aggregators, c.MaxMeasurement)
		return measured(v, func(x Value) uint64 { return x.number }), err
	case dap.HistogramConfig:
		v, err := prio3.NewHistogram(aggregators, int(c.Length), int(c.ChunkLength))
		return measured(v, func(x Value) int { return int(x.number) }), err
	case dap.MultihotCountVecConfig:
		q, ok := r.Query.(recipe.Marked)
		if !ok {
			break
		}
		v, err := prio3.NewMultihotCountVec(aggregators, int(c.Length), int(c.MaxWeight), int(c.ChunkLength))
		return measured(v, func(x Value) []bool { return q.Marks(x.numbers()) }), err
	case dap.SumVecConfig:
		v, err := prio3.NewSumVec(aggregators, int(c.Length), c.MaxMeasurement, int(c.ChunkLength))
		return measured(v, func(x Value) []uint64 { return x.vector }), err
	case dap.L1BoundSumConfig:
		v, err := prio3.NewL1BoundSum(aggregators, int(c.Length), c.MaxValue, int(c.ChunkLength))
		if q, ok := r.Query.(recipe.Encoded); ok {
			return measured(v, func(x Value) []uint64 { return q.Encode(x.vector) }), err
		}
		return measured(v, func(x Value) []uint64 { return x.vector }), err
	}
	if q, ok := r.Vector(); ok {
		return newVectorSharder(config, q.Encoding())
	}
	return nil, fmt.Errorf("client: no measurement for %T", config)
}

// measured returns a sharder of values that get gives as the VDAF takes them.
func measured[M any](c vdaf.Client[M], get func(Value) M) sharder {
	return func(ctx []byte, v Value, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
		return c.Shard(ctx, get(v), nonce)
	}
}

// valued refuses values that are no answer, and turns what the VDAF refuses into a
// [ValueError].
func valued(q recipe.Query, shard sharder) sharder {
	return func(ctx []byte, v Value, nonce *[vdaf.NonceSize]byte) (*vdaf.Shares, error) {
		if v.kind != q.Form() || v.kind != isReals && !q.Holds(v.numbers()) {
			return nil, &ValueError{q.Wanted()}
		}
		s, err := shard(ctx, v, nonce)
		if errors.Is(err, vdaf.ErrMeasurement) {
			return nil, &ValueError{q.Wanted()}
		}
		return s, err
	}
}

// numbers are those of an answer that is not of real numbers.
func (v Value) numbers() []uint64 {
	if v.kind == isVector || v.kind == isGrouped || v.kind == isText {
		return v.vector
	}
	return []uint64{v.number}
}

// ValueOf answers a query of that form, but for [recipe.Reals], with as many numbers as it
// takes: one, two for [recipe.Grouped], for [recipe.Numbers] one for each place, or for
// [recipe.Text] those that spell a text.
func ValueOf(form recipe.Form, numbers []uint64) Value {
	if form == isVector || form == isGrouped || form == isText {
		return Value{kind: form, vector: numbers}
	}
	return Value{kind: form, number: numbers[0]}
}
