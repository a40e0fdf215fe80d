package client

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/starling-agg/starling/recipe"
)

func vectorQueries(dim uint32) map[string]recipe.Vector {
	return map[string]recipe.Vector{
		"pine32":    {Dimension: dim, Bound: 1 << 15, FracBits: 15, Proof: recipe.Pine32, Rounding: recipe.RoundNearest},
		"pine40":    {Dimension: dim, Bound: 1 << 15, FracBits: 15, Proof: recipe.Pine40, Rounding: recipe.RoundRandomly},
		"pine64":    {Dimension: dim, Bound: 1 << 15, FracBits: 15, Proof: recipe.Pine64, Rounding: recipe.RoundNearest},
		"pine128":   {Dimension: dim, Bound: 1 << 15, FracBits: 15, Proof: recipe.Pine128, Rounding: recipe.RoundNearest},
		"l2fixed16": {Dimension: dim, Bound: 1 << 15, FracBits: 15, Proof: recipe.L2Fixed16, Rounding: recipe.RoundTowardsZero},
		"l2fixed32": {Dimension: dim, Bound: 1 << 31, FracBits: 31, Proof: recipe.L2Fixed32, Rounding: recipe.RoundTowardsZero},
	}
}

// Vectors reach the aggregators verified, those that are too long at the norm of the recipe and in their direction.
func TestReals(t *testing.T) {
	for name, q := range vectorQueries(3) {
		t.Run(name, func(t *testing.T) {
			s := newServers(t, testRecipe(q))
			cl := s.client(nil)
			for _, x := range [][]float64{{0.5, -0.25, 0}, {0, 0, 0}, {3e10, -4e10, 0}, {1, 0, 0}, {0, 0, math.SmallestNonzeroFloat64}} {
				if err := cl.Report(t.Context(), Reals(x)); err != nil {
					t.Fatal(err)
				}
			}
			for i, want := range []float64{0.5 + 0.6 + 1, -0.25 - 0.8, 0} {
				if got := q.Real(s.sums()[i]); math.Abs(got-want) > 1e-3 {
					t.Errorf("entry %d: %v, want %v", i, got, want)
				}
			}
		})
	}
}

// Of 500 entries far over the norm, each is proved: whatever rounding did, the integers are within the bound.
func TestRealsAreClipped(t *testing.T) {
	for name, q := range vectorQueries(500) {
		s := newServers(t, testRecipe(q))
		cl := s.client(nil)
		x := make([]float64, 500)
		for i := range x {
			x[i] = math.Sin(float64(i)) * 1e200
		}
		if err := cl.Report(t.Context(), Reals(x)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		norm := 0.0
		for _, n := range s.sums() {
			norm += q.Real(n) * q.Real(n)
		}
		if norm = math.Sqrt(norm); norm > 1 || norm < 0.98 {
			t.Errorf("%s: the vector has norm %v", name, norm)
		}
	}
}

func TestRealsAreChecked(t *testing.T) {
	for name, q := range vectorQueries(2) {
		s := newServers(t, testRecipe(q))
		cl := s.client(nil)
		for i, v := range []Value{
			{}, Reals(nil), Reals([]float64{1}), Reals([]float64{1, 0, 0}), Vector([]uint64{1, 0}),
			Reals([]float64{math.NaN(), 0}), Reals([]float64{0, math.Inf(-1)}), Reals([]float64{math.Inf(1), math.NaN()}), NoValue(),
		} {
			var bad *ValueError
			if err := cl.Report(t.Context(), v); !errors.As(err, &bad) {
				t.Errorf("%s: value %d: %v, want a ValueError", name, i, err)
			}
		}
		if s.uploads != 0 {
			t.Errorf("%s: a bad value was uploaded", name)
		}
		if k, err := cl.Kind(Reals([]float64{9, 9})); err != nil || k != recipe.OtherAnswer {
			t.Errorf("%s: kind %v, %v", name, k, err)
		}
	}
}

// A dummy of a vector is the zero vector.
func TestRealsDummy(t *testing.T) {
	q := vectorQueries(3)["pine40"]
	v, err := zero(q)
	if err != nil || v.kind != isReals || !slices.Equal(v.reals, make([]float64, 3)) {
		t.Errorf("kind %v, %v", v.kind, err)
	}
}
