package client

import (
	"errors"

	"github.com/starling-agg/starling/recipe"
)

// NoValue is no answer: a dummy of a recipe that has dummies, or of a device's own
// randomizer. It adds zero to the sum, or what the randomizer makes of nothing. It takes
// the same coins, time and size as an answer.
func NoValue() Value { return Value{kind: isNothing} }

// Kind says on which coins of the recipe a value's reporting depends. It fails with
// *[ValueError] where v is no answer.
func (c *Client) Kind(v Value) (recipe.Answer, error) { return Kind(c.recipe, v) }

// Kind says on which coins of a recipe a value's reporting depends. It fails with
// *[ValueError] where v is no answer.
func Kind(r *recipe.Recipe, v Value) (recipe.Answer, error) {
	if v.kind == isNothing {
		return recipe.NoAnswer, nil
	}
	if err := check(r, v); err != nil {
		return 0, err
	}
	if !r.ByAnswer() {
		return recipe.OtherAnswer, nil
	}
	var any uint64
	for _, x := range v.vector {
		any |= x
	}
	return recipe.DefaultAnswer + recipe.Answer((any|-any)>>63), nil
}

// Messages makes the messages of a contribution on a path without proofs, of an answer or
// of none ([NoValue]). m is the recipe's. It fails with *[ValueError]. The messages hold what
// the device's randomizer made of the answer, and are to be cleared once they are sealed.
func Messages(r *recipe.Recipe, m *recipe.Messenger, v Value) ([][]byte, error) {
	var numbers []uint64 // nil of no answer
	if v.kind != isNothing {
		if err := check(r, v); err != nil {
			return nil, err
		}
		numbers = v.numbers()
	}
	all, err := m.Messages(numbers)
	if odd := new(recipe.AnswerError); errors.As(err, &odd) {
		err = &ValueError{odd.Want}
	}
	return all, err
}

// check says whether v answers the query, before any randomizer.
func check(r *recipe.Recipe, v Value) error {
	q := r.Given()
	ok := v.kind == q.Form()
	if v.kind == isReals {
		ok = ok && len(v.reals) == q.Aggregates() && v.finite()
	} else {
		ok = ok && q.Holds(v.numbers())
	}
	if !ok {
		return &ValueError{q.Wanted()}
	}
	return nil
}

// newBlur returns what the device does to a checked value, or to none, before it is
// shared; nil if it does nothing and has no dummies.
func newBlur(r *recipe.Recipe) (func(Value) (Value, error), error) {
	switch z := r.Randomizer.(type) {
	case recipe.VectorRandomizer:
		noised, err := z.Noised(r.Query)
		return func(v Value) (Value, error) {
			if v.kind == isNothing {
				v = Reals(make([]float64, r.Query.Aggregates()))
			}
			units, err := noised(v.reals)
			if err != nil {
				return Value{}, &ValueError{r.Query.Wanted()}
			}
			v.units = units
			return v, nil
		}, err
	case recipe.PlaceRandomizer:
		blur, err := z.Blur(r.Query)
		return func(v Value) (Value, error) {
			y, err := blur(place(v))
			if err != nil {
				return Value{}, err
			}
			return ValueOf(r.Query.Form(), y), nil
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

// place is what of a checked value a local randomizer takes.
func place(v Value) int {
	if v.kind == isNothing {
		return recipe.NoPlace
	}
	return recipe.Place(v.kind, v.numbers())
}

// zero is the answer that adds nothing.
func zero(q recipe.Query) (Value, error) {
	switch form := q.Form(); form {
	case isBucket, isGrouped, isText:
		return Value{}, &ValueError{"an answer; this query has no zero"}
	case isReals:
		return Reals(make([]float64, q.Aggregates())), nil
	default:
		return ValueOf(form, make([]uint64, q.Aggregates())), nil
	}
}
