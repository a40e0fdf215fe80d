// Package twin lets package localtest, and nothing outside dp/local, choose where a
// randomizer's random bits come from. Package local sets its variables.
package twin

import (
	"io"

	"github.com/starling-agg/starling/dp/noise"
)

// WithSource returns a copy of a randomizer of package local, other than a *local.Gaussian, that reads its bits from r.
var WithSource func(randomizer any, r io.Reader) any

// WithNoise returns a copy of a *local.Gaussian with its sampler replaced.
var WithNoise func(gaussian any, with func(*noise.DiscreteGaussian) *noise.DiscreteGaussian) any
