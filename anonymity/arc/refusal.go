package arc

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/anonymity/internal/p256"
)

// Sentinels of a [Refusal], for errors.Is.
var (
	// ErrMalformed: not the one encoding of a message. A point is off the curve, the
	// identity or written otherwise, a scalar is 0 or not below the order, a length or a
	// version is another.
	ErrMalformed = errors.New("malformed")
	// ErrProof: the message is well formed, and what it claims does not hold.
	ErrProof = errors.New("the proof does not hold")
)

// A Refusal is the error of everything that a stranger sends. It wraps [ErrMalformed] or
// [ErrProof].
type Refusal struct {
	// Message is what was refused: "presentation", "credential request" and so on.
	Message string
	// Field is where: a field of the message by the draft's name, "length", or "proof". It
	// comes from a closed set, so that it may label a metric.
	Field string
	// Err is why.
	Err error
}

// Error implements error.
func (r *Refusal) Error() string { return "arc: " + r.Message + ": " + r.Field + ": " + r.Err.Error() }

// Unwrap returns Err.
func (r *Refusal) Unwrap() error { return r.Err }

// A reader takes the fields of a message one after the other. The first failure sticks.
type reader struct {
	message string
	b       []byte
	err     error
}

// read begins a message, of which the length is known.
func read(message string, b []byte, size int) *reader {
	r := &reader{message: message, b: b}
	if len(b) != size {
		r.fail("length", fmt.Errorf("%w: %d bytes, not %d", ErrMalformed, len(b), size))
	}
	return r
}

func (r *reader) fail(field string, err error) {
	if r.err == nil {
		r.err = &Refusal{r.message, field, err}
	}
}

func (r *reader) version(want byte) {
	if r.err != nil {
		return
	}
	if r.b[0] != want {
		r.fail("version", fmt.Errorf("%w: %d, not %d", ErrMalformed, r.b[0], want))
	}
	r.b = r.b[1:]
}

func (r *reader) element(e *p256.Element, field string) {
	if r.err != nil {
		return
	}
	var err error
	if *e, err = p256.ReadElement(r.b[:p256.ElementSize]); err != nil {
		r.fail(field, fmt.Errorf("%w: %w", ErrMalformed, err))
	}
	r.b = r.b[p256.ElementSize:]
}

func (r *reader) scalar(s *p256.Scalar, field string) {
	if r.err != nil {
		return
	}
	var err error
	if *s, err = p256.ReadScalar(r.b[:p256.ScalarSize]); err != nil {
		r.fail(field, fmt.Errorf("%w: %w", ErrMalformed, err))
	}
	r.b = r.b[p256.ScalarSize:]
}

// elements reads n elements, which have one name.
func (r *reader) elements(n int, field string) []p256.Element {
	all := make([]p256.Element, n)
	for i := range all {
		r.element(&all[i], field)
	}
	return all
}

// scalars reads n scalars, which have one name.
func (r *reader) scalars(n int, field string) []p256.Scalar {
	all := make([]p256.Scalar, n)
	for i := range all {
		r.scalar(&all[i], field)
	}
	return all
}

// proof reads a compact proof: a challenge, and n responses.
func (r *reader) proof(challenge *p256.Scalar, responses *[]p256.Scalar, n int) {
	r.scalar(challenge, "challenge")
	*responses = r.scalars(n, "response")
}

// appendElements appends elements one after the other.
func appendElements(b []byte, elements ...*p256.Element) []byte {
	for _, e := range elements {
		b = e.Append(b)
	}
	return b
}

// appendScalars appends scalars one after the other.
func appendScalars(b []byte, scalars ...p256.Scalar) []byte {
	for _, s := range scalars {
		b = s.Append(b)
	}
	return b
}
