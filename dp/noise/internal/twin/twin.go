// Package twin lets package noisetest, and nothing outside dp/noise, choose where a
// sampler's bits come from.
package twin

import "io"

// WithSource returns a copy of a *noise.DiscreteGaussian, *noise.DiscreteLaplace or
// *noise.DiscreteLaplaceShare that reads its bits from r. Package noise sets it.
var WithSource func(sampler any, r io.Reader) any
