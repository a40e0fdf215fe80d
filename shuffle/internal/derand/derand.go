// Package derand carries randomness where a test must choose it. Only package hoptest
// makes values of its type, so product code outside this module cannot fix an order.
package derand

import (
	"crypto/rand"
	"io"
)

// Rand is a stream of randomness. The zero Rand is cryptographic randomness.
type Rand struct{ r io.Reader }

// New returns the stream that r has, which must not end.
func New(r io.Reader) Rand { return Rand{r} }

// Reader returns what New was given, or [crypto/rand.Reader].
func (r Rand) Reader() io.Reader {
	if r.r == nil {
		return rand.Reader
	}
	return r.r
}
