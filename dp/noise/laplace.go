package noise

import (
	"crypto/rand"
	"io"
	"math"
	"math/bits"
)

// maxGeometric bounds the geometric part of a draw. Exact sampling goes beyond it with
// probability exp(-16384); a source of bits that gets there is stuck.
const maxGeometric = 1 << 14

// A DiscreteLaplace draws integers y with probability proportional to exp(-|y| s/t). It
// is safe for concurrent use.
type DiscreteLaplace struct {
	t, s uint64
	src  io.Reader
}

// NewDiscreteLaplace returns a sampler of scale t/s. It needs 1 <= t, s < 2^63 and t/s <=
// 2^40, or returns a *RangeError.
func NewDiscreteLaplace(t, s uint64) (*DiscreteLaplace, error) {
	if t == 0 || t >= 1<<63 {
		return nil, &RangeError{"scale numerator", t, "1 to 2^63-1"}
	}
	if s == 0 || s >= 1<<63 {
		return nil, &RangeError{"scale denominator", s, "1 to 2^63-1"}
	}
	if hi, lo := bits.Mul64(s, MaxLaplaceScale); hi == 0 && lo < t {
		return nil, &RangeError{"scale", t / s, "at most 2^40"}
	}
	g := gcd(t, s)
	return &DiscreteLaplace{t: t / g, s: s / g, src: rand.Reader}, nil
}

// Scale returns t/s in lowest terms.
func (l *DiscreteLaplace) Scale() (t, s uint64) { return l.t, l.s }

// Sample fills dst with independent draws. Every draw is below 2^55 in absolute value.
func (l *DiscreteLaplace) Sample(dst []int64) {
	var src source
	src.init(l.src, len(dst))
	defer src.wipe()
	for i := range dst {
		y, negative := src.laplace(l.t, l.s)
		dst[i] = int64(y)
		if negative {
			dst[i] = -dst[i]
		}
	}
}

// Variance returns the variance 1/(2 sinh^2(s/(2t))), to within a relative error of 1e-14.
func (l *DiscreteLaplace) Variance() float64 {
	h := math.Sinh(float64(l.s) / float64(l.t) / 2)
	return 1 / (2 * h * h)
}

// Tail returns a k such that |y| > k has probability at most p, 0 < p < 1: P(|y| > k) <=
// exp(-k s/t).
func (l *DiscreteLaplace) Tail(p float64) int64 {
	return tail(-math.Log(p) * float64(l.t) / float64(l.s))
}

// laplace draws the absolute value and the sign of one discrete Laplace variable of scale
// t/s (algorithm 2).
func (src *source) laplace(t, s uint64) (y uint64, negative bool) {
	for {
		u := src.uniform(t)
		if !src.bernoulliExp(u, t) {
			continue
		}
		v := uint64(0)
		for src.bernoulliExp1() {
			if v++; v == maxGeometric {
				panic("noise: internal error: the source of random bits is stuck")
			}
		}
		hi, lo := bits.Mul64(t, v)
		lo, carry := bits.Add64(lo, u, 0)
		y, _ = bits.Div64(hi+carry, lo, s) // (u + t v)/s < 2^14 t/s <= 2^54, so the quotient fits
		negative = src.bit()
		if y == 0 && negative {
			continue // else zero would come twice
		}
		return y, negative
	}
}
