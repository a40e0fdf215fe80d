package client

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/starling-agg/starling/dap"
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

// Vectors reach the aggregators verified, those that are too long at the norm of the
// recipe and in their direction.
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

// Of 500 entries far over the norm, each is proved: whatever rounding did, the integers
// are within the bound.
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

// With a projection devices give long vectors and send what the map makes of them,
// clipped: a vector of any size is proved, and what was sent is the projection of the
// vectors that were not too long.
func TestRealsAreProjected(t *testing.T) {
	for name, q := range vectorQueries(40) {
		r := testRecipe(q)
		r.Projection = &recipe.Projection{Entries: 100, Seed: [32]byte{5}}
		s := newServers(t, r)
		cl := s.client(nil)
		p, err := r.Projection.Map(q)
		if err != nil {
			t.Fatal(err)
		}
		long, short := make([]float64, 100), make([]float64, 100)
		for i := range long {
			short[i], long[i] = math.Cos(float64(i))/20, math.Sin(float64(i))*math.MaxFloat64
		}
		for _, x := range [][]float64{short, long} {
			if err := cl.Report(t.Context(), Reals(x)); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		for i := range long {
			long[i] = math.Sin(float64(i))
		}
		want, other := p.Apply(short), p.Apply(long)
		length := 0.0
		for _, y := range other {
			length = math.Hypot(length, y)
		}
		for i, n := range s.sums() {
			if y := want[i] + other[i]/length; math.Abs(q.Real(n)-y) > 2e-3 {
				t.Errorf("%s: number %d is %v, want %v", name, i, q.Real(n), y)
			}
		}
		var bad *ValueError
		if err := cl.Report(t.Context(), Reals(make([]float64, 40))); !errors.As(err, &bad) {
			t.Errorf("%s: a vector of the projected length: %v, want a ValueError", name, err)
		}
		if _, err := cl.Kind(Reals(short)); err != nil {
			t.Errorf("%s: %v", name, err)
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

// A report that the leader could only refuse is not sent at all.
func TestTooLargeIsNotSent(t *testing.T) {
	s := newServers(t, testRecipe(recipe.Count{}))
	cl := s.client(nil)
	if err := cl.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	good, err := cl.Prepare(Bool(true), now)
	if err != nil {
		t.Fatal(err)
	}
	large := good
	large.Leader.Payload = make([]byte, 16<<20+1)
	var tooLarge *recipe.TooLargeError
	if _, err := cl.Upload(t.Context(), []dap.Report{good, large}); !errors.As(err, &tooLarge) || tooLarge.Bytes != 16<<20+1 || s.uploads != 0 {
		t.Errorf("%v after %d uploads, want a TooLargeError after none", err, s.uploads)
	}
}
