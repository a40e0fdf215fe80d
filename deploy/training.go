package deploy

import (
	"fmt"

	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/service"
)

// A Tensor is one part of a model in a terms file.
type Tensor struct {
	// Name is what the training process knows it by. Required.
	Name string `toml:"name"`
	// Shape are its sizes; left out for a single number.
	Shape []uint32 `toml:"shape"`
}

// A Training is a terms file, training.toml: what devices must know of a training beside
// its recipe.
type Training struct {
	// Algorithm is "fedsgd" or "fedavg". Default "fedsgd".
	Algorithm string `toml:"algorithm"`
	// LocalSteps are how many steps of its own a device takes, of fedavg.
	LocalSteps uint32 `toml:"local_steps"`
	// LocalRate is the learning rate of these.
	LocalRate float64 `toml:"local_rate"`
	// Clip is the norm to which devices scale longer updates down. Required.
	Clip float64 `toml:"clip"`
	// Adaptive moves it. Optional.
	Adaptive *Adaptive `toml:"adaptive"`
	// Rounds is how many there are at most. Required.
	Rounds uint32 `toml:"rounds"`
	// FirstRound is the number of the first of the recipe's rounds that may be one.
	// Optional.
	FirstRound uint64 `toml:"first_round"`
	// Tensors are the layout of a model. Required.
	Tensors []Tensor `toml:"tensor"`
}

// Adaptive is how a clipping norm moves; see session.Adaptive.
type Adaptive struct {
	// Quantile of the updates that are to be no longer than the norm. Default 0.5.
	Quantile float64 `toml:"quantile"`
	// Rate at which it moves. Default 0.2.
	Rate float64 `toml:"rate"`
	// Weight is the share of the recipe's bound that the bit takes. Default 0.1.
	Weight float64 `toml:"weight"`
}

// ReadTerms reads a terms file. It fails with [Faults].
func ReadTerms(path string) (session.Terms, error) {
	f := Training{Algorithm: session.FedSGD.String()}
	if err := service.Load(path, &f); err != nil {
		return session.Terms{}, err
	}
	t := session.Terms{LocalSteps: f.LocalSteps, LocalRate: f.LocalRate, Clipping: session.Clipping{Norm: f.Clip}, Rounds: f.Rounds, FirstRound: f.FirstRound}
	var err error
	if t.Algorithm, err = session.ParseAlgorithm(f.Algorithm); err != nil {
		return session.Terms{}, ofFile(path, Faults{fmt.Errorf("algorithm: %w", err)})
	}
	if t.Algorithm == session.FedSGD && t.LocalSteps == 0 {
		t.LocalSteps = 1
	}
	if a := f.Adaptive; a != nil {
		or := func(x *float64, otherwise float64) {
			if *x == 0 {
				*x = otherwise
			}
		}
		or(&a.Quantile, 0.5)
		or(&a.Rate, 0.2)
		or(&a.Weight, 0.1)
		t.Clipping.Adaptive = &session.Adaptive{Quantile: a.Quantile, Rate: a.Rate, Weight: a.Weight}
	}
	for _, x := range f.Tensors {
		t.Layout = append(t.Layout, session.Tensor{Name: x.Name, Shape: x.Shape})
	}
	if err := t.Validate(); err != nil {
		return session.Terms{}, ofFile(path, Faults{err})
	}
	return t, nil
}
