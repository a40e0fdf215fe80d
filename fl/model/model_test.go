package model

import (
	"math"
	"strings"
	"testing"
)

// numbers is a sequence of numbers between -1 and 1 that no pattern of a model has.
func numbers() func() float64 {
	x := 0.1234
	return func() float64 { x = 1 - 1.99*x*x; return x }
}

// Each entry of a gradient is what central differences say, at many parameters, inputs and
// labels: they are off by step^2 times a third derivative, and by rounding over step.
func TestGradient(t *testing.T) {
	const step = 1e-5
	for name, c := range map[string]struct {
		m      Model
		inputs int
	}{"logistic": {NewLogistic(5, 4), 5}, "network": {NewNetwork(5, 3, 4), 5}, "convolution": {NewConvolution(7, 2, 1, 2, 4), 49},
		"convolution with a rim": {NewConvolution(8, 3, 2, 2, 4), 64}} {
		m, next := c.m, numbers()
		for trial := range 40 {
			p, x, got := make([]float64, m.Parameters()), make([]float64, c.inputs), make([]float64, m.Parameters())
			for i := range p {
				p[i], got[i] = next(), math.NaN()
			}
			for i := range x {
				x[i] = next()
			}
			label := trial % 4
			loss := m.Gradient(got, p, x, label)
			at := func(i int, by float64) float64 {
				q := append([]float64(nil), p...)
				q[i] += by
				return m.Gradient(make([]float64, len(p)), q, x, label)
			}
			if l := at(0, 0); l != loss || !(l > 0) {
				t.Fatalf("%s: loss %g and %g", name, l, loss)
			}
			for i, g := range got {
				if want := (at(i, step) - at(i, -step)) / (2 * step); !(math.Abs(g-want) < 1e-8) {
					t.Fatalf("%s: entry %d is %g, differences say %g", name, i, g, want)
				}
			}
		}
	}
}

// The loss is what its definition says, also where scores are so large that exponentials
// of them are not numbers.
func TestLoss(t *testing.T) {
	for _, c := range []struct {
		scores []float64
		label  int
		want   float64
	}{{[]float64{0, 0, 0, 0}, 2, math.Log(4)}, {[]float64{1, 2}, 0, math.Log(1 + math.E)}, {[]float64{2000, 0}, 1, 2000}, {[]float64{-5000, -5000}, 0, math.Ln2}} {
		s := append([]float64(nil), c.scores...)
		if got := loss(s, c.label); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v: %g, want %g", c, got, c.want)
		}
		sum := 0.0
		for _, g := range s {
			sum += g
		}
		if !(math.Abs(sum) < 1e-12) {
			t.Errorf("%v: the gradient adds up to %g", c, sum)
		}
	}
}

// A model learns what it is shown by plain descent: the network a class that is no side of
// a line, which regression cannot.
func TestLearns(t *testing.T) {
	inputs, labels := [][]float64{{1, 1}, {-1, -1}, {1, -1}, {-1, 1}}, []int{0, 0, 1, 1}
	for name, c := range map[string]struct {
		m     Model
		right int
	}{"logistic": {NewLogistic(2, 2), 3}, "network": {NewNetwork(2, 8, 2), 4}} {
		p, g := c.m.Start(numbers()), make([]float64, c.m.Parameters())
		for range 2000 {
			for i, x := range inputs {
				c.m.Gradient(g, p, x, labels[i])
				for j := range p {
					p[j] -= 0.1 * g[j]
				}
			}
		}
		right := 0
		for i, x := range inputs {
			if c.m.Classify(p, x) == labels[i] {
				right++
			}
		}
		if right > c.right || name == "network" && right < 4 {
			t.Errorf("%s: %d of 4", name, right)
		}
	}
}

// Shapes are stated, and other shapes are the caller's fault.
func TestShape(t *testing.T) {
	for want, m := range map[string]Model{"10 classes of 784 weights and a constant": NewLogistic(784, 10),
		"8 filters of 6 x 6 weights and a constant, 10 classes of 6 x 6 x 8 and a constant": NewConvolution(28, 6, 2, 8, 10),
		"32 hidden of 196 weights and a constant, 10 classes of 32 and a constant":          NewNetwork(196, 32, 10)} {
		if m.Shape() != want {
			t.Errorf("%q, want %q", m.Shape(), want)
		}
	}
	if n := NewLogistic(784, 10).Parameters(); n != 7850 {
		t.Error(n)
	}
	if n := NewNetwork(196, 32, 10).Parameters(); n != 32*197+330 {
		t.Error(n)
	}
	if n := NewConvolution(28, 6, 2, 8, 10).Parameters(); n != 8*37+10*289 {
		t.Error(n)
	}
	for _, m := range []Model{NewLogistic(4, 2), NewNetwork(4, 2, 2), NewConvolution(2, 1, 1, 3, 2)} {
		n := m.Parameters()
		for _, call := range []func(){
			func() { m.Gradient(make([]float64, n-1), make([]float64, n), make([]float64, 4), 0) },
			func() { m.Gradient(make([]float64, n), make([]float64, n+1), make([]float64, 4), 0) },
			func() { m.Classify(make([]float64, n), make([]float64, 3)) },
		} {
			func() {
				defer func() {
					if r, ok := recover().(string); !ok || !strings.Contains(r, "internal error") {
						t.Errorf("recovered %v", r)
					}
				}()
				call()
			}()
		}
	}
}
