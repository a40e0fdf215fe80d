package ohttp

import "github.com/starling-agg/starling/anonymity/internal/padme"

// The padded sizes are shared by all recipes: a recipe is not known by the size of its
// reports.
const (
	// MinRequest is the smallest padded request, in bytes.
	MinRequest = 4 << 10
	// MinResponse is the smallest padded response, in bytes. A leader's answer about one
	// report fits in.
	MinResponse = 1 << 10
)

// PaddedSize is the least padded size of n bytes or more: smallest, the powers of two
// above it up to 64 KiB, and above that sizes that add at most 4 % (Padmé's).
func PaddedSize(n, smallest int) int { return padme.Size(n, smallest) }

// Pad appends zeros up to the padded size; binary HTTP takes them for padding (RFC 9292
// section 3.8).
func Pad(message []byte, smallest int) []byte {
	return append(message, make([]byte, PaddedSize(len(message), smallest)-len(message))...)
}
