// Package padme says to which size a message is padded so that its own does not show.
package padme

import "math/bits"

// powersUpTo is the largest padded size that is a power of two; above it they are
// Padmé's.
const powersUpTo = 64 << 10

// Size is the least padded size of n bytes or more: smallest, the powers of two above it
// up to 64 KiB, and above that the numbers that Padmé allows, whose leading bits hold
// about as many digits as their length has, so that padding adds at most 4 % there and a
// size tells O(log log) bits ("Reducing Metadata Leakage from Encrypted Files and
// Communication with PURBs", PoPETs 2019, section 4).
func Size(n, smallest int) int {
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
