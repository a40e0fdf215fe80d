package voprf

import (
	"fmt"

	"github.com/starling-agg/starling/anonymity/internal/derand"
	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// A Blinding is a client's side of a request until it is answered.
type Blinding struct {
	inputs  [][]byte
	blinds  []p256.Scalar
	request Request
}

// A Request has blinded inputs, 1 to [MaxBatch], of which nothing shows.
type Request struct{ elements []p256.Element }

// Blind begins a request about 1 to [MaxBatch] inputs of at most 65,535 bytes, with blinds
// of cryptographic randomness.
func Blind(inputs ...[]byte) *Blinding { return BlindDerandomized(derand.Rand{}, inputs...) }

// BlindDerandomized is [Blind] with randomness that a test chooses (voprftest.Blind).
//
// Constant time for inputs of given lengths; nothing of them or the blinds leaks.
func BlindDerandomized(r derand.Rand, inputs ...[]byte) *Blinding {
	if len(inputs) == 0 || len(inputs) > MaxBatch {
		panic(fmt.Sprintf("voprf: internal error: a request about %d inputs", len(inputs)))
	}
	blinds := make([]p256.Scalar, len(inputs))
	for i := range blinds {
		blinds[i] = p256.RandomScalar(r.Reader())
	}
	return blindWith(blinds, inputs)
}

func blindWith(blinds []p256.Scalar, inputs [][]byte) *Blinding {
	b := &Blinding{inputs: inputs, blinds: blinds}
	for i, input := range inputs {
		b.request.elements = append(b.request.elements, affine(p256.Mul(blinds[i], hashToGroup(input))))
	}
	return b
}

// Request is what is sent.
func (b *Blinding) Request() *Request { return &b.request }

// Finalize checks the answer to the request under the public key and returns an output for
// each input. The error is [ErrProof].
//
// The proof is public, and verified in variable time; what follows takes constant time.
func (b *Blinding) Finalize(k PublicKey, e *Evaluation) ([][OutputSize]byte, error) {
	if len(e.elements) != len(b.inputs) || !e.proves(k, &b.request) {
		return nil, ErrProof
	}
	outputs := make([][OutputSize]byte, len(b.inputs))
	for i, input := range b.inputs {
		outputs[i] = output(input, p256.Mul(b.blinds[i].Invert(), e.elements[i].Point()))
	}
	return outputs, nil
}
