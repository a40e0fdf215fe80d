// Package noisetest has derandomised twins of the samplers of package noise: the same
// law, from a seed. They are for tests only; noise that someone else can recompute
// protects nobody.
package noisetest

import (
	"math/rand/v2"

	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/noise/internal/twin"
)

// DiscreteGaussian returns a copy of g whose draws are determined by seed. Unlike g it is
// not for concurrent use.
func DiscreteGaussian(g *noise.DiscreteGaussian, seed [32]byte) *noise.DiscreteGaussian {
	return twin.WithSource(g, rand.NewChaCha8(seed)).(*noise.DiscreteGaussian)
}

// DiscreteLaplace returns a copy of l whose draws are determined by seed. Unlike l it is
// not for concurrent use.
func DiscreteLaplace(l *noise.DiscreteLaplace, seed [32]byte) *noise.DiscreteLaplace {
	return twin.WithSource(l, rand.NewChaCha8(seed)).(*noise.DiscreteLaplace)
}

// DiscreteLaplaceShare returns a copy of l whose draws are determined by seed. Unlike l it
// is not for concurrent use.
func DiscreteLaplaceShare(l *noise.DiscreteLaplaceShare, seed [32]byte) *noise.DiscreteLaplaceShare {
	return twin.WithSource(l, rand.NewChaCha8(seed)).(*noise.DiscreteLaplaceShare)
}
