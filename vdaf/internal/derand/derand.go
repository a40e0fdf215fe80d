// Package derand carries the randomness of one sharding where a test must choose it. Only
// package vdaftest makes values of its type, so product code outside this module cannot
// fix a client's randomness.
package derand

// Rand is the randomness of one sharding, in the order VDAF-18 consumes it. The zero Rand
// is empty, which no VDAF takes.
type Rand struct{ b []byte }

// New holds b, which the caller must not change until the sharding returns.
func New(b []byte) Rand { return Rand{b} }

// Bytes returns what New was given.
func (r Rand) Bytes() []byte { return r.b }
