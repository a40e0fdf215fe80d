package client_test

import (
	"errors"
	"testing"

	. "github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestSharesRefused: a recipe about one of several persons of a site is for who cuts each to
// a share. A device that does not is refused, before it has an answer, and records of a
// person have no sum.
func TestSharesRefused(t *testing.T) {
	q, err := recipe.NewVector(3, 1, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := account.New(account.Options{
		Name: "Shares", Query: q, Leader: "https://leader.example/", Helper: "https://helper.example/", MinBatch: 20, Epsilon: recipe.Decimal{Coefficient: 2},
		Unit: &recipe.Unit{Name: "person", Records: 4, Reduce: recipe.SharedSum},
	})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Recipe: b, Prover: account.Prover, AnyKeys: true}
	refused := new(RefusedError)
	if _, err := New(o); !errors.As(err, &refused) || !errors.Is(err, ErrShares) {
		t.Errorf("%v", err)
	}
	o.Shares = true
	if _, err := New(o); err != nil {
		t.Error(err)
	}
	if _, err := Reduce(r, []Value{Reals([]float64{1, 0, 0})}); !errors.Is(err, ErrShares) {
		t.Errorf("%v", err)
	}
}
