package voprf

import (
	"encoding/binary"
	"fmt"

	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// Append appends the request to b: how many elements, in 16 bits, and the elements.
func (r *Request) Append(b []byte) []byte { return appendElements(b, r.elements) }

// ReadRequest reads a request of 1 to [MaxBatch] elements. The error wraps
// [ErrMalformed].
func ReadRequest(b []byte) (*Request, error) {
	elements, rest, err := readElements(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: trailing bytes", ErrMalformed)
	}
	if err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	return &Request{elements}, nil
}

// Append appends the answer to b: how many elements, in 16 bits, the elements, and the
// proof of two scalars.
func (e *Evaluation) Append(b []byte) []byte {
	return e.response.Append(e.challenge.Append(appendElements(b, e.elements)))
}

// ReadEvaluation reads an answer with 1 to [MaxBatch] elements. The error wraps
// [ErrMalformed]. The proof is not verified yet ([Blinding.Finalize]).
func ReadEvaluation(b []byte) (*Evaluation, error) {
	elements, rest, err := readElements(b)
	if err == nil && len(rest) != 2*p256.ScalarSize {
		err = fmt.Errorf("%w: a proof of %d bytes", ErrMalformed, len(rest))
	}
	if err != nil {
		return nil, fmt.Errorf("evaluation: %w", err)
	}
	e := &Evaluation{elements: elements}
	if e.challenge, err = p256.ReadScalar(rest[:p256.ScalarSize]); err == nil {
		e.response, err = p256.ReadScalar(rest[p256.ScalarSize:])
	}
	if err != nil {
		return nil, fmt.Errorf("%w evaluation: proof: %w", ErrMalformed, err)
	}
	return e, nil
}

func appendElements(b []byte, elements []p256.Element) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(len(elements)))
	for i := range elements {
		b = elements[i].Append(b)
	}
	return b
}

// readElements reads elements behind their number, and returns what is left.
func readElements(b []byte) (elements []p256.Element, rest []byte, err error) {
	if len(b) < 2 {
		return nil, nil, fmt.Errorf("%w: no number of elements", ErrMalformed)
	}
	n, b := int(binary.BigEndian.Uint16(b)), b[2:]
	if n == 0 || n > MaxBatch || len(b) < n*p256.ElementSize {
		return nil, nil, fmt.Errorf("%w: %d elements in %d bytes", ErrMalformed, n, len(b))
	}
	elements = make([]p256.Element, n)
	for i := range elements {
		if elements[i], err = p256.ReadElement(b[:p256.ElementSize]); err != nil {
			return nil, nil, fmt.Errorf("%w: element %d: %w", ErrMalformed, i, err)
		}
		b = b[p256.ElementSize:]
	}
	return elements, b, nil
}
