package client

import (
	"fmt"

	"github.com/starling-agg/starling/recipe"
)

// NoValue is no answer: a dummy of a recipe that has dummies, or of a device's own randomizer. It adds zero to the sum, or
// what the randomizer makes of nothing. It takes the same coins, time and size as an answer.
func NoValue() Value { return Value{kind: isNothing} }

// Kind says on which coins of the recipe a value's reporting depends. It fails with *[ValueError] where v is no answer.
func (c *Client) Kind(v Value) (recipe.Answer, error) {
	if v.kind == isNothing {
		return recipe.NoAnswer, nil
	}
	if err := c.check(v); err != nil {
		return 0, err
	}
	if _, ok := c.recipe.Participation.(recipe.Importance); !ok {
		return recipe.OtherAnswer, nil
	}
	var any uint64
	for _, x := range v.vector {
		any |= x
	}
	return recipe.DefaultAnswer + recipe.Answer((any|-any)>>63), nil
}

// check says whether v answers the query, before any randomizer.
func (c *Client) check(v Value) error {
	switch q := c.recipe.Query.(type) {
	case recipe.Count:
		return wanted(v.kind == isBool, "yes or no")
	case recipe.Sum:
		return wanted(v.kind == isNumber && v.number <= q.Max, "a number from 0 to %d", q.Max)
	case recipe.Mean:
		return wanted(v.kind == isNumber && v.number <= q.Max, "a number from 0 to %d", q.Max)
	case recipe.Histogram:
		return wanted(v.kind == isBucket && v.number < uint64(q.Length), "a bucket from 0 to %d", q.Length-1)
	case recipe.Multihot:
		weight := q.MaxWeight
		if c.recipe.Randomized() {
			weight = 1 // what the randomizer is about; MaxWeight bounds what it makes
		}
		var ones uint64
		for _, x := range v.vector {
			ones += x & 1
		}
		ok := v.kind == isVector && len(v.vector) == int(q.Length) && !v.over(1) && ones <= weight
		return wanted(ok, "a vector of %d zeros and ones, at most %d of them ones", q.Length, weight)
	case recipe.SumVec:
		ok := v.kind == isVector && len(v.vector) == int(q.Length) && !v.over(q.Max)
		return wanted(ok, "a vector of %d numbers from 0 to %d", q.Length, q.Max)
	case recipe.L1BoundSum:
		ok := v.kind == isVector && len(v.vector) == int(q.Length) && v.sumWithin(q.Max)
		return wanted(ok, l1Words, q.Length, q.Max)
	case recipe.Vector:
		ok := v.kind == isReals && len(v.reals) == c.recipe.Entries() && v.finite()
		return wanted(ok, "a vector of %d finite numbers", c.recipe.Entries())
	}
	return fmt.Errorf("client: no measurement for query %T", c.recipe.Query)
}

func wanted(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return &ValueError{fmt.Sprintf(format, args...)}
}

// newBlur returns what the device does to a checked value, or to none, before it is shared; nil if it does nothing and has
// no dummies.
func newBlur(r *recipe.Recipe) (func(Value) (Value, error), error) {
	switch z := r.Randomizer.(type) {
	case recipe.Gaussian:
		return newNoisyVector(r.Query.(recipe.Vector), z)
	case recipe.LocalRandomizer:
		blur, err := z.Blur(r.Query)
		return func(v Value) (Value, error) {
			y, err := blur(place(v))
			if err != nil {
				return Value{}, err
			}
			if _, bucket := r.Query.(recipe.Histogram); bucket {
				return Bucket(uint32(y[0])), nil
			}
			return Vector(y), nil
		}, err
	}
	if r.Dummies == nil {
		return nil, nil
	}
	return func(v Value) (Value, error) {
		if v.kind != isNothing {
			return v, nil
		}
		return zero(r.Query)
	}, nil
}

// place is the bucket, or which bit of at most one is set, of a checked value.
func place(v Value) int {
	if v.kind == isBucket {
		return int(v.number)
	}
	x := recipe.NoPlace
	for i, bit := range v.vector {
		x += int(bit) * (i + 1) // NoPlace is -1
	}
	return x
}

// zero is the answer that adds nothing.
func zero(q recipe.Query) (Value, error) {
	switch q := q.(type) {
	case recipe.Count:
		return Bool(false), nil
	case recipe.Sum, recipe.Mean:
		return Number(0), nil
	case recipe.Multihot:
		return Vector(make([]uint64, q.Length)), nil
	case recipe.SumVec:
		return Vector(make([]uint64, q.Length)), nil
	case recipe.L1BoundSum:
		return Vector(make([]uint64, q.Length)), nil
	case recipe.Vector:
		return Reals(make([]float64, q.Dimension)), nil
	}
	return Value{}, &ValueError{"an answer; this query has no zero"}
}
