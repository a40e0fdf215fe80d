package noise

import "math/bits"

// A ratio is the rational number x/den in [0, 1), as the first 64 bits of its binary
// expansion and what is left over: x * 2^64 = q * den + rem, rem < den.
type ratio struct{ q, rem, den uint64 }

// newRatio returns x/den for x < den.
func newRatio(x, den uint64) ratio {
	q, rem := bits.Div64(x, 0, den)
	return ratio{q, rem, den}
}

// bernoulli is true with probability exactly f: it compares a uniform real with f,
// drawing bits until they differ. Sixteen bits decide all but one comparison in 65,536.
func (s *source) bernoulli(f ratio) bool {
	if u, v := s.uint16(), f.q>>48; u != v {
		return u < v
	}
	return s.bernoulliTied(f)
}

// bernoulliTied goes on where the first sixteen bits were equal.
func (s *source) bernoulliTied(f ratio) bool {
	u := s.uint16()<<32 | s.uint16()<<16 | s.uint16()
	if v := f.q & (1<<48 - 1); u != v {
		return u < v
	}
	for f.rem != 0 {
		f.q, f.rem = bits.Div64(f.rem, 0, f.den)
		if u := s.uint64(); u != f.q {
			return u < f.q
		}
	}
	return false // the expansion of f has ended, and the uniform real is at least f
}

// inverse[k] is 1/k.
var inverse = func() (t [24]ratio) {
	for k := 2; k < len(t); k++ {
		t[k] = newRatio(1, uint64(k))
	}
	return t
}()

// oneIn is true with probability exactly 1/k, k >= 2.
func (s *source) oneIn(k int) bool {
	if k == 2 {
		return s.bit()
	}
	if k < len(inverse) {
		return s.bernoulli(inverse[k])
	}
	return s.bernoulli(newRatio(1, uint64(k)))
}

// bernoulliExp is true with probability exactly exp(-x/den), x < den: it counts successes
// of Bernoulli(x/(den k)) for k = 1, 2, ... up to the first failure, and the failing k is
// odd with that probability (algorithm 1 of the paper).
func (s *source) bernoulliExp(x, den uint64) bool {
	if x == 0 {
		return true
	}
	f := newRatio(x, den)
	odd := true
	for k := 1; ; k++ {
		if (k > 1 && !s.oneIn(k)) || !s.bernoulli(f) {
			return odd
		}
		odd = !odd
	}
}

// bernoulliExp1 is true with probability exactly 1/e.
func (s *source) bernoulliExp1() bool {
	odd := false // k = 1 always succeeds
	for k := 2; s.oneIn(k); k++ {
		odd = !odd
	}
	return odd
}
