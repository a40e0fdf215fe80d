// Package voprftest has the functions of package voprf that draw randomness, with
// randomness that a test chooses: 48 bytes for each scalar. Chosen randomness destroys
// anonymity and shows keys; nothing but tests may import this package.
package voprftest

import (
	"io"

	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/voprf"
)

// Blind is [voprf.Blind]: a scalar for each input.
func Blind(rand io.Reader, inputs ...[]byte) *voprf.Blinding {
	return voprf.BlindDerandomized(derand.New(rand), inputs...)
}

// Evaluate is [voprf.Key.Evaluate]: one scalar for the proof.
func Evaluate(k *voprf.Key, r *voprf.Request, rand io.Reader) *voprf.Evaluation {
	return k.EvaluateDerandomized(r, derand.New(rand))
}
