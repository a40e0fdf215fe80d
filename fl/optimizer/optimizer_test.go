package optimizer_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/starling-agg/starling/fl/optimizer"
)

// Both optimisers do what their papers say, on two steps by hand.
func TestOptimizers(t *testing.T) {
	near := func(got, want float64) bool { return math.Abs(got-want) < 1e-12 }
	p := []float64{1}
	by := optimizer.New(optimizer.Config{Kind: optimizer.SGD, Rate: 0.5, Momentum: 0.9}, 1)
	by.Step(p, []float64{2})
	by.Step(p, []float64{-1})
	if !near(p[0], 1-0.5*2-0.5*(0.9*2-1)) {
		t.Error(p)
	}
	p = []float64{1}
	by = optimizer.New(optimizer.Config{Kind: optimizer.Adam, Rate: 0.5, Momentum: 0.9}, 1)
	by.Step(p, []float64{2})
	if math.Abs(p[0]-0.5) > 1e-8 { // the first step has the length of the rate
		t.Error(p)
	}
	by.Step(p, []float64{-1})
	m, v := (0.9*0.2+0.1*-1)/(1-0.81), (0.999*0.004+0.001)/(1-0.998001)
	if math.Abs(p[0]-(0.5-0.5*m/math.Sqrt(v))) > 1e-7 {
		t.Errorf("%g, want %g", p[0], 0.5-0.5*m/math.Sqrt(v))
	}
}

// TestRestore: one that took up another's state goes on to the same bits.
func TestRestore(t *testing.T) {
	for _, kind := range []string{optimizer.SGD, optimizer.Adam} {
		c := optimizer.Config{Kind: kind, Rate: 0.1, Momentum: 0.9}
		a, b := optimizer.New(c, 2), optimizer.New(c, 2)
		x := []float64{1, 2}
		a.Step(x, []float64{0.3, -0.7})
		s := a.State()
		if err := b.Restore(optimizer.State{Steps: s.Steps, First: slices.Clone(s.First), Second: slices.Clone(s.Second)}); err != nil {
			t.Fatal(err)
		}
		y := slices.Clone(x)
		a.Step(x, []float64{0.2, 0.1})
		b.Step(y, []float64{0.2, 0.1})
		if !slices.Equal(x, y) {
			t.Errorf("%s: %v and %v", kind, x, y)
		}
		if err := b.Restore(optimizer.State{First: make([]float64, 3)}); !errors.Is(err, optimizer.ErrConfig) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	for _, c := range []optimizer.Config{{}, {Kind: "x", Rate: 1}, {Kind: "sgd"}, {Kind: "sgd", Rate: math.NaN()}, {Kind: "sgd", Rate: math.Inf(1)},
		{Kind: "adam", Rate: 1, Momentum: 1}, {Kind: "adam", Rate: 1, Momentum: math.NaN()}} {
		if err := c.Validate(); !errors.Is(err, optimizer.ErrConfig) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
