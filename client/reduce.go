package client

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/recipe"
)

// Reduce makes the one answer of a unit from its records, oldest first, as the recipe's
// privacy unit says: the first or the last of them alone, or the sum of the first so
// many, cut to what may be answered. A unit without records has no answer, which is
// [NoValue].
//
// It fails with *[RecordsError] where the recipe names no unit and there is more than one
// record, and with *[ValueError] for a record in a sum of another kind than the query's
// answers. But for sums, what it returns is not yet held against the query. A report does
// not tell how many records it is made of.
func Reduce(r *recipe.Recipe, records []Value) (Value, error) {
	u := r.PrivacyUnit()
	switch {
	case len(records) == 0:
		return NoValue(), nil
	case r.Unit == nil && len(records) > 1:
		return Value{}, &RecordsError{u.Name, len(records)}
	case u.Reduce == recipe.FirstRecord:
		return records[0], nil
	case u.Reduce == recipe.LastRecord:
		return records[len(records)-1], nil
	case u.Reduce == recipe.SharedSum:
		return Value{}, ErrShares
	}
	if len(records) > int(u.Records) {
		records = records[:u.Records]
	}
	q := r.Given()
	sum, err := zero(q)
	if err != nil {
		return Value{}, fmt.Errorf("client: records of query %T have no sum", q)
	}
	for _, record := range records {
		if err := sum.add(q, record); err != nil {
			return Value{}, err
		}
	}
	if q.Form() == isReals {
		shorten(sum.reals, q.Largest()*q.Unit())
	}
	return sum, nil
}

// ErrShares: the recipe takes the sum of several units of a site, each held to its share,
// which a site does that has all of them (package fl/agent), and nobody else.
var ErrShares = errors.New("client: the recipe is for sites, which hold each unit of theirs to its share of the bound")

// RecordsError: several records of one unit, of which the recipe takes one and does not
// say which.
type RecordsError struct {
	Unit    string
	Records int
}

func (e *RecordsError) Error() string {
	return fmt.Sprintf("client: %d records of one %s, and the recipe takes one and does not say which", e.Records, e.Unit)
}

// add adds a record to a sum, which stays an answer: yes if any is, numbers up to the
// largest, and of marks as many as may be set, the first first, and so of what is spread
// over places. Real vectors are cut at the end.
func (v *Value) add(q recipe.Query, record Value) error {
	if record.kind != v.kind || len(record.vector) != len(v.vector) || len(record.reals) != len(v.reals) || !record.finite() {
		return &ValueError{fmt.Sprintf("records that each answer: %s", q)}
	}
	if v.kind != isReals {
		numbers := v.numbers()
		q.Add(numbers, record.numbers())
		*v = ValueOf(v.kind, numbers)
		return nil
	}
	for i, x := range record.reals {
		v.reals[i] += x
	}
	if !v.finite() {
		return &ValueError{"records whose sum is finite"}
	}
	return nil
}

// shorten scales a vector down to a length, if it is longer.
func shorten(x []float64, length float64) {
	var largest, squares float64
	for _, y := range x {
		largest = max(largest, math.Abs(y))
	}
	if largest == 0 {
		return
	}
	for _, y := range x {
		squares += (y / largest) * (y / largest)
	}
	if norm := math.Sqrt(squares); norm > length/largest {
		for i := range x {
			x[i] = x[i] / largest / norm * length
		}
	}
}
