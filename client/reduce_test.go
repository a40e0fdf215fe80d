package client

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/starling-agg/starling/recipe"
)

// reducing is a recipe of a query whose unit's records are reduced so.
func reducing(q recipe.Query, z recipe.Reduction, records uint32) *recipe.Recipe {
	return &recipe.Recipe{Query: q, Unit: &recipe.Unit{Name: recipe.UnitPerson, Records: records, Reduce: z}}
}

func TestReduce(t *testing.T) {
	n := func(list ...uint64) (values []Value) {
		for _, x := range list {
			values = append(values, Number(x))
		}
		return values
	}
	vec := func(list ...[]uint64) (values []Value) {
		for _, x := range list {
			values = append(values, Vector(x))
		}
		return values
	}
	sum, first, last := recipe.ClippedSum, recipe.FirstRecord, recipe.LastRecord
	for name, c := range map[string]struct {
		r       *recipe.Recipe
		records []Value
		want    Value
	}{
		"nothing":             {reducing(recipe.Sum{Max: 9}, sum, 3), nil, NoValue()},
		"first":               {reducing(recipe.Sum{Max: 9}, first, 1), n(4, 5, 6), Number(4)},
		"last":                {reducing(recipe.Sum{Max: 9}, last, 1), n(4, 5, 6), Number(6)},
		"sum":                 {reducing(recipe.Sum{Max: 9}, sum, 3), n(2, 3), Number(5)},
		"sum, clipped":        {reducing(recipe.Sum{Max: 9}, sum, 3), n(4, 5, 6), Number(9)},
		"sum of too many":     {reducing(recipe.Sum{Max: 9}, sum, 3), n(1, 1, 1, 1, 1), Number(3)},
		"sum that overflows":  {reducing(recipe.Mean{Max: 9}, sum, 3), n(math.MaxUint64, 2), Number(9)},
		"count":               {reducing(recipe.Count{}, sum, 3), []Value{Bool(true), Bool(false), Bool(true)}, Bool(true)},
		"sums":                {reducing(recipe.SumVec{Length: 2, Max: 5}, sum, 3), vec([]uint64{1, 3}, []uint64{1, 3}), Vector([]uint64{2, 5})},
		"marks":               {reducing(recipe.Multihot{Length: 3, MaxWeight: 3}, sum, 3), vec([]uint64{0, 0, 1}, []uint64{1, 0, 1}), Vector([]uint64{1, 0, 1})},
		"more marks than may": {reducing(recipe.Multihot{Length: 3, MaxWeight: 2}, sum, 3), vec([]uint64{0, 0, 1}, []uint64{1, 1, 0}), Vector([]uint64{1, 0, 1})},
		"a budget":            {reducing(recipe.L1BoundSum{Length: 3, Max: 9}, sum, 3), vec([]uint64{1, 0, 2}, []uint64{0, 3, 1}), Vector([]uint64{1, 3, 3})},
		"a budget, overdrawn": {reducing(recipe.L1BoundSum{Length: 3, Max: 5}, sum, 3), vec([]uint64{1, 0, 2}, []uint64{math.MaxUint64, 3, 1}), Vector([]uint64{3, 0, 2})},
		"last bucket":         {reducing(recipe.Histogram{Length: 9}, last, 1), []Value{Bucket(1), Bucket(7)}, Bucket(7)},
	} {
		got, err := Reduce(c.r, c.records)
		if err != nil || got.kind != c.want.kind || got.number != c.want.number || !slices.Equal(got.vector, c.want.vector) {
			t.Errorf("%s: %d %d %v, %v", name, got.kind, got.number, got.vector, err)
		}
	}
	q, err := recipe.NewVector(3, 2, 10, recipe.Pine64)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]float64{{3, 0, 4}, {1e308, 0, 0}, {0.5, 0.5, 0}, {0, 0, 0}} {
		got, err := Reduce(reducing(q, sum, 2), []Value{Reals(c), Reals([]float64{0, 0, 0}), Reals([]float64{9, 9, 9})})
		if err != nil {
			t.Fatal(err)
		}
		length := math.Hypot(math.Hypot(got.reals[0], got.reals[1]), got.reals[2])
		want := min(2, math.Hypot(math.Hypot(c[0], c[1]), c[2]))
		if math.Abs(length-want) > 1e-9 || want < 2 && !slices.Equal(got.reals, c) {
			t.Errorf("%v becomes %v, %v long, want %v", c, got.reals, length, want)
		}
	}
}

func TestReduceRefuses(t *testing.T) {
	sum := reducing(recipe.Sum{Max: 9}, recipe.ClippedSum, 3)
	vectors := reducing(recipe.SumVec{Length: 2, Max: 5}, recipe.ClippedSum, 3)
	for name, c := range map[string]struct {
		r       *recipe.Recipe
		records []Value
	}{
		"another kind":      {sum, []Value{Number(1), Bool(true)}},
		"no answer":         {sum, []Value{Number(1), NoValue()}},
		"the zero value":    {sum, []Value{{}}},
		"another length":    {vectors, []Value{Vector([]uint64{1, 2}), Vector([]uint64{1})}},
		"no number":         {reducing(recipe.Vector{Dimension: 1}, recipe.ClippedSum, 2), []Value{Reals([]float64{math.NaN()})}},
		"beyond all bounds": {reducing(recipe.Vector{Dimension: 1}, recipe.ClippedSum, 2), []Value{Reals([]float64{1e308}), Reals([]float64{1e308})}},
	} {
		if _, err := Reduce(c.r, c.records); !errors.As(err, new(*ValueError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Reduce(&recipe.Recipe{Query: recipe.Count{}}, []Value{Bool(true), Bool(true)}); !errors.As(err, new(*RecordsError)) {
		t.Errorf("two records where the recipe names no unit: %v", err)
	}
}
