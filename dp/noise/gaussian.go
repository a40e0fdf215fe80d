package noise

import (
	"crypto/rand"
	"io"
	"math"
	"math/bits"
)

// A DiscreteGaussian draws integers y with probability proportional to exp(-y^2/(2
// sigma^2)). It is safe for concurrent use.
type DiscreteGaussian struct {
	num, den uint64 // sigma^2, in lowest terms
	m        uint64 // the proposal is discrete Laplace of scale sigma^2/m
	src      io.Reader
}

// NewDiscreteGaussian returns a sampler with sigma^2 = num/den. It needs 1 <= num, den <
// 2^63, sigma^2 >= 1/4 (below, rejection becomes slow, and the noise hides nothing) and
// sigma^2 <= 2^62, or returns a *RangeError.
func NewDiscreteGaussian(num, den uint64) (*DiscreteGaussian, error) {
	if num == 0 || num >= 1<<63 {
		return nil, &RangeError{"sigma^2 numerator", num, "1 to 2^63-1"}
	}
	if den == 0 || den >= 1<<63 {
		return nil, &RangeError{"sigma^2 denominator", den, "1 to 2^63-1"}
	}
	if num < den/4+min(1, den%4) {
		return nil, &RangeError{"sigma^2", num / den, "at least 1/4"}
	}
	if num/den > MaxGaussianVariance {
		return nil, &RangeError{"sigma^2", num / den, "at most 2^62"}
	}
	g := gcd(num, den)
	num, den = num/g, den/g
	return &DiscreteGaussian{num: num, den: den, m: max(1, isqrt(num/den)), src: rand.Reader}, nil
}

// Sigma2 returns sigma^2 as a fraction in lowest terms.
func (g *DiscreteGaussian) Sigma2() (num, den uint64) { return g.num, g.den }

// Sample fills dst with independent draws. Every draw is below 2^47 in absolute value.
func (g *DiscreteGaussian) Sample(dst []int64) {
	var src source
	src.init(g.src, len(dst))
	defer src.wipe()
	scale := g.den * g.m // <= sqrt(num den) + den < 2^64
	for i := range dst {
		for {
			y, negative := src.laplace(g.num, scale)
			if !src.accept(g.exponent(y)) {
				continue
			}
			dst[i] = int64(y)
			if negative {
				dst[i] = -dst[i]
			}
			break
		}
	}
}

// exponent returns (y-m)^2/(2 sigma^2) as a whole part and a remainder over 2 num. With y
// < 2^14 sigma^2/m + 1 the numerator (y-m)^2 den is below 2^32 num, so it fits 128 bits
// and the quotient 64.
func (g *DiscreteGaussian) exponent(y uint64) (whole, rem, den uint64) {
	d := y - g.m
	if y < g.m {
		d = g.m - y
	}
	hi, lo := bits.Mul64(d, d)
	h, l := bits.Mul64(lo, g.den)
	whole, rem = bits.Div64(hi*g.den+h, l, 2*g.num)
	return whole, rem, 2 * g.num
}

// accept is true with probability exactly exp(-(whole + rem/den)).
func (s *source) accept(whole, rem, den uint64) bool {
	for ; whole > 0; whole-- {
		if !s.bernoulliExp1() {
			return false
		}
	}
	return s.bernoulliExp(rem, den)
}

// Variance returns the variance, which is at most sigma^2, to within a relative error of
// 1e-12. For sigma >= 1 it is sigma^2 but for less than 3e-15 of it.
func (g *DiscreteGaussian) Variance() float64 {
	s2 := float64(g.num) / float64(g.den)
	if s2 >= 1 {
		return s2
	}
	var mass, moment float64
	for y := 40.0; y > 0; y-- {
		p := math.Exp(-y * y / (2 * s2))
		mass += 2 * p
		moment += 2 * y * y * p
	}
	return moment / (mass + 1)
}

// Tail returns a k such that |y| > k has probability at most p, 0 < p < 1: the discrete
// Gaussian is sigma^2-subgaussian (Canonne, Kamath, Steinke), so P(|y| > k) <= 2
// exp(-k^2/(2 sigma^2)).
func (g *DiscreteGaussian) Tail(p float64) int64 {
	return tail(math.Sqrt(2 * math.Log(2/p) * float64(g.num) / float64(g.den)))
}
