// Package cloaktest has derandomised twins of the users of package cloak: the same
// distribution of messages, from a seed. They are for tests only; messages that someone
// else can recompute hide nothing.
package cloaktest

import (
	"math/rand/v2"

	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/noise/noisetest"
	"github.com/starling-agg/starling/shuffle/cloak"
	"github.com/starling-agg/starling/shuffle/cloak/internal/twin"
)

// Seeded returns a copy of p whose messages are determined by seed. Unlike p it is not for
// concurrent use.
func Seeded(p *cloak.Params, seed [32]byte) *cloak.Params {
	return twin.With(p, rand.NewChaCha8(seed), func(s noise.Sampler) noise.Sampler {
		seed[31] ^= 1 // another stream than that of the residues
		switch s := s.(type) {
		case *noise.DiscreteLaplace:
			return noisetest.DiscreteLaplace(s, seed)
		case *noise.DiscreteLaplaceShare:
			return noisetest.DiscreteLaplaceShare(s, seed)
		}
		return s
	}).(*cloak.Params)
}
