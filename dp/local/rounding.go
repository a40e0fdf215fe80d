package local

import (
	"fmt"
	"io"
)

// maxNumber bounds the numbers that a Rounding takes.
const maxNumber = 1 << 33

// A Rounding makes of whole numbers from -largest to largest the values +-1..+-m that
// [Question] and [RandomGroup] take, at random, so that the value is on average the number
// times m/largest: the two values next to that, or both of +-1 where it is between them.
// It protects nothing; with m = largest it changes no number but 0. It is safe for
// concurrent use.
type Rounding struct {
	largest, m uint64
	src        io.Reader
}

// NewRounding returns a rounding of numbers up to largest, 1 to 2^33, to 2m values, m from
// 1 to 65536 and at most largest.
func NewRounding(largest uint64, m int) (*Rounding, error) {
	if largest < 1 || largest > maxNumber {
		return nil, parameter("largest number", float64(largest), "1 to 2^33")
	}
	if m < 1 || m > maxMagnitude || uint64(m) > largest {
		return nil, parameter("largest value", float64(m), "1 to 65536, and at most the largest number")
	}
	return &Rounding{largest, uint64(m), system}, nil
}

// Randomize returns the value of a number. Its time depends on m alone.
func (r *Rounding) Randomize(number int64) (int, error) {
	if number < -int64(r.largest) || number > int64(r.largest) {
		return 0, parameter("number", float64(number), fmt.Sprintf("within %d of 0", r.largest))
	}
	s := newSource(r.src, 2)
	defer s.wipe()
	// The number of levels 1..2m, of largest each, that the number is above, with what is
	// left over as the probability of one more: the value plus m, 0 among the values.
	at := uint64(number*int64(r.m)+int64(r.largest*r.m)) + s.uniform(r.largest)
	var level uint64
	for i := uint64(1); i <= 2*r.m; i++ {
		level += 1 ^ below(at, i*r.largest)
	}
	// For 0, 1 or -1.
	up := s.uint64() >> 63
	zero := equal(level, r.m)
	level += zero & up
	level -= zero & (1 ^ up)
	return int(level) - int(r.m), nil
}
