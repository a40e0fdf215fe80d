// Package localtest has derandomised twins of the randomizers of package local: the same
// law, from a seed. They are for tests only; an answer whose coins someone else can
// recompute protects nobody.
package localtest

import (
	"math/rand/v2"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/dp/local/internal/twin"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/noise/noisetest"
)

// A Randomizer is any of the randomizers of package local but Gaussian.
type Randomizer interface {
	*local.Response | *local.RAPPOR | *local.Projective | *local.Question | *local.RandomGroup | *local.Rounding
}

// Seeded returns a copy of r whose answers are determined by seed. Unlike r it is not for
// concurrent use.
func Seeded[R Randomizer](r R, seed [32]byte) R {
	return twin.WithSource(r, rand.NewChaCha8(seed)).(R)
}

// SeededGaussian returns a copy of g whose noise is determined by seed. Unlike g it is
// not for concurrent use.
func SeededGaussian(g *local.Gaussian, seed [32]byte) *local.Gaussian {
	return twin.WithNoise(g, func(n *noise.DiscreteGaussian) *noise.DiscreteGaussian {
		return noisetest.DiscreteGaussian(n, seed)
	}).(*local.Gaussian)
}
