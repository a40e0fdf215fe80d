package ohttp

import "math/bits"

// The padded sizes are shared by all recipes: a recipe is not known by the size of its
// reports.
const (
	// MinRequest is the smallest padded request, in bytes.
	MinRequest = 4 << 10
	// MinResponse is the smallest padded response, in bytes. A leader's answer about one
	// report fits in.
	MinResponse = 1 << 10
	// powersUpTo is the largest padded size that is a power of two; above it they are
	// Padmé's.
	powersUpTo = 64 << 10
)

// PaddedSize is the least padded size of n bytes or more: smallest, the powers of two
// above it up to 64 KiB, and above that the numbers that Padmé allows, whose leading bits
// hold about as many digits as their length has, so that padding adds at most 4 % there
// and a size tells O(log log) bits ("Reducing Metadata Leakage from Encrypted Files and
// Communication with PURBs", PoPETs 2019, section 4).
func PaddedSize(n, smallest int) int {
	if n <= smallest {
		return smallest
	}
	if n <= powersUpTo {
		return 1 << bits.Len(uint(n-1))
	}
	e := bits.Len(uint(n)) - 1 // floor(log2 n)
	s := bits.Len(uint(e))     // floor(log2 e) + 1
	mask := 1<<(e-s) - 1
	return (n + mask) &^ mask
}

// Pad appends zeros up to the padded size; binary HTTP takes them for padding (RFC 9292
// section 3.8).
func Pad(message []byte, smallest int) []byte {
	return append(message, make([]byte, PaddedSize(len(message), smallest)-len(message))...)
}
