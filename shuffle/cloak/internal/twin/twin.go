// Package twin lets package cloaktest, and nothing outside shuffle/cloak, choose what
// users draw.
package twin

import (
	"io"

	"github.com/starling-agg/starling/dp/noise"
)

// With returns a copy of a *cloak.Params whose bits are r's and whose noise is what
// sampler makes of it. Package cloak sets it.
var With func(params any, r io.Reader, sampler func(noise.Sampler) noise.Sampler) any
