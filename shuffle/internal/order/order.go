// Package order draws the order in which a hop hands on what it has.
package order

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"

	"github.com/starling-agg/starling/shuffle/internal/derand"
)

// Draw draws an order of n things, each of the n! with the same probability, by Fisher and
// Yates: thing order[i] comes to place i. It takes 4n bytes of memory, and panics where the
// randomness ends.
func Draw(n uint32, random derand.Rand) []uint32 {
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	r := bufio.NewReaderSize(random.Reader(), min(8*len(order), 16<<10))
	for i := len(order) - 1; i > 0; i-- {
		j := below(uint64(i)+1, r)
		order[i], order[j] = order[j], order[i]
	}
	return order
}

// below is uniform below n: 64 bits of which those are thrown away that would make some
// remainders likelier.
func below(n uint64, r io.Reader) uint64 {
	whole := math.MaxUint64 - math.MaxUint64%n // a multiple of n
	for {
		var b [8]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			panic("order: internal error: no randomness: " + err.Error())
		}
		if x := binary.BigEndian.Uint64(b[:]); x < whole {
			return x % n
		}
	}
}
