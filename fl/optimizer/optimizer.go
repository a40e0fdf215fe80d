// Package optimizer steps a server's model along the mean of what devices report: stochastic
// gradient descent with momentum, and Adam. It sees released sums only, so that whatever it
// does costs no privacy. An [Optimizer] can be written down and read again, to the last bit.
package optimizer

import (
	"errors"
	"fmt"
	"math"
)

// The kinds of [Config].
const (
	SGD  = "sgd"
	Adam = "adam"
)

// adamBeta2 is the paper's. So large an epsilon would only matter for gradients of 0.
const (
	adamBeta2   = 0.999
	adamEpsilon = 1e-8
)

// A Config chooses an optimizer.
type Config struct {
	// Kind is SGD or Adam. Required.
	Kind string
	// Rate is the learning rate, for a mean in units of the parameters; above 0.
	Rate float64
	// Momentum of SGD, beta1 of Adam: from 0, below 1.
	Momentum float64
}

// ErrConfig is wrapped by what is wrong with a Config.
var ErrConfig = errors.New("optimizer")

// Validate says what is wrong with a Config. Errors wrap [ErrConfig].
func (c Config) Validate() error {
	switch {
	case c.Kind != SGD && c.Kind != Adam:
		return fmt.Errorf("%w: kind %q, want %s or %s", ErrConfig, c.Kind, SGD, Adam)
	case !(c.Rate > 0) || math.IsInf(c.Rate, 0):
		return fmt.Errorf("%w: rate %v, want above 0", ErrConfig, c.Rate)
	case !(c.Momentum >= 0 && c.Momentum < 1):
		return fmt.Errorf("%w: momentum %v, want from 0, below 1", ErrConfig, c.Momentum)
	}
	return nil
}

// State is what an optimizer keeps between steps.
type State struct {
	Steps uint32
	// First is SGD's velocity or Adam's first moment, Second Adam's second: one number for
	// each parameter.
	First, Second []float64
}

// An Optimizer steps one model. It is not safe for concurrent use.
type Optimizer struct {
	c Config
	n int
	s State
}

// New returns the optimizer of a valid configuration for a number of parameters.
func New(c Config, parameters int) *Optimizer {
	o := &Optimizer{c: c, n: parameters}
	o.s.First = make([]float64, parameters)
	if c.Kind == Adam {
		o.s.Second = make([]float64, parameters)
	}
	return o
}

// State is what the optimizer keeps; not to be changed.
func (o *Optimizer) State() State { return o.s }

// Restore takes up the state of an optimizer of the same configuration. Errors wrap
// [ErrConfig].
func (o *Optimizer) Restore(s State) error {
	if len(s.First) != len(o.s.First) || len(s.Second) != len(o.s.Second) {
		return fmt.Errorf("%w: a state of %d and %d numbers, want %d and %d", ErrConfig, len(s.First), len(s.Second), len(o.s.First), len(o.s.Second))
	}
	o.s = s
	return nil
}

// Step moves parameters, in place, against the mean gradient of a round.
func (o *Optimizer) Step(parameters, gradient []float64) {
	if len(parameters) != o.n || len(gradient) != o.n {
		panic("optimizer: internal error: another number of parameters")
	}
	o.s.Steps++
	if o.c.Kind == SGD {
		// v = momentum v + g, p = p - rate v.
		for i, x := range gradient {
			o.s.First[i] = o.c.Momentum*o.s.First[i] + x
			parameters[i] -= o.c.Rate * o.s.First[i]
		}
		return
	}
	// Kingma and Ba, Adam, 2015, algorithm 1.
	beta1 := o.c.Momentum
	c1, c2 := 1-math.Pow(beta1, float64(o.s.Steps)), 1-math.Pow(adamBeta2, float64(o.s.Steps))
	for i, x := range gradient {
		o.s.First[i] = beta1*o.s.First[i] + (1-beta1)*x
		o.s.Second[i] = adamBeta2*o.s.Second[i] + (1-adamBeta2)*x*x
		parameters[i] -= o.c.Rate * (o.s.First[i] / c1) / (math.Sqrt(o.s.Second[i]/c2) + adamEpsilon)
	}
}
