package recipe

import "math/bits"

// linear is the vector of whole numbers that encodes an answer, of which a collection is the
// sum: as long as the query has aggregates, and zeros for no answer. It takes time that
// depends on the query alone. It is nil for [Reals], which are no whole numbers.
func linear(q Query, answer []uint64) []uint64 {
	x := make([]uint64, q.Aggregates())
	if answer == nil {
		return x
	}
	switch q := q.(type) {
	case Encoded:
		return q.Encode(answer)
	case Marked:
		for i, mark := range q.Marks(answer) {
			x[i] = bit(mark)
		}
		return x
	}
	switch q.Form() {
	case Bucket:
		for i := range x {
			_, x[i] = bits.Sub64(uint64(i)^answer[0], 1, 0) // 1 where they are the same
		}
	case YesOrNo, Number, Numbers:
		copy(x, answer)
	default:
		return nil
	}
	return x
}

// bit does not branch on what it is given.
func bit(b bool) uint64 {
	var x uint64
	if b { // a conditional move, as in crypto/subtle
		x = 1
	}
	return x
}
