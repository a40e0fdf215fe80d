package recipe

import (
	"math/bits"

	"github.com/starling-agg/starling/vdaf/prio3"
)

// Helpers of queries of one or more whole numbers.

// within says whether no element is above most, in time that does not depend on them.
func within(x []uint64, most uint64) bool {
	var over uint64
	for _, y := range x {
		_, b := bits.Sub64(most, y, 0)
		over |= b
	}
	return over == 0
}

// sumWithin says whether the elements add up to at most most, in time that does not depend
// on them.
func sumWithin(x []uint64, most uint64) bool {
	var sum, over, carry uint64
	for _, y := range x {
		sum, carry = bits.Add64(sum, y, 0)
		over |= carry
	}
	_, carry = bits.Sub64(most, sum, 0)
	return over|carry == 0
}

// clippedSum is x + y, at most most.
func clippedSum(x, y, most uint64) uint64 {
	sum, carry := bits.Add64(x, y, 0)
	return min(sum|-carry, most)
}

// numbers checks the bounds of vectors whose answers take so many field elements, which
// what says of their length.
func (v *validator) numbers(length uint32, most uint64, chunk uint32, elements uint64, what string) {
	inMax, inLength := v.between("query.max", most, 1, MaxMeasurement), v.between("query.length", uint64(length), 1, MaxElements)
	switch {
	case !inMax || !inLength: // the rest follows from it
	case elements > MaxElements:
		v.add("query.length", "%s is %d field elements, want at most %d", what, elements, MaxElements)
	default:
		v.between("query.chunk", uint64(chunk), 1, elements)
	}
}

// chunk is the length that is given, and else the one that makes reports shortest.
func chunk(given uint32, elements uint64) uint32 {
	if given != 0 {
		return given
	}
	return uint32(prio3.OptimalChunk(int(min(elements, MaxElements))))
}
