package amplify

import (
	"math"
	"sync"

	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

// A cloneSum bounds what the types of m slots tell about one person's value when that
// person fills one slot of them, uniform and hidden, with probability p0, and each other
// slot is, with probability p, a clone of either of the two values with equal chances.
// With C ~ Bin(m, p) clones (the person's slot among them) of which A ~ Bin(C, 1/2) are
// of the first kind, the densities relative to that distribution are
//
//	f_P = 1 - p0 + p0 (2/(m p)) (al A + (1-al)(C-A)),  al = e^e0/(1+e^e0),
//
// and f_Q with al and 1-al swapped, so that delta(epsilon) = E (f_P - e^epsilon f_Q)_+,
// the same in both directions. See docs/proofs/check-ins.md; with p0 = 1 it is the clone
// bound for the shuffling of m users.
type cloneSum struct {
	e0, p0, m, p float64
	near, deep   func() []cloneBlock
}

// A cloneBlock is the numbers of clones from..to and the probability of the block,
// rounded up.
type cloneBlock struct{ from, to, mass float64 }

const (
	nearMiss  = 1e-24
	deepMiss  = 1e-290
	maxBlocks = 8192
)

// newCloneSum takes p rounded down: fewer clones only weaken the bound.
func newCloneSum(e0, m, p, p0 float64) *cloneSum {
	s := &cloneSum{e0: e0, p0: p0, m: m, p: p}
	s.near = sync.OnceValue(func() []cloneBlock { return s.blocks(nearMiss) })
	s.deep = sync.OnceValue(func() []cloneBlock { return s.blocks(deepMiss) })
	return s
}

// blocks cuts the numbers of clones, all but at most miss on either side, into at most
// maxBlocks.
func (s *cloneSum) blocks(miss float64) []cloneBlock {
	mean := s.m * s.p
	r := binomial.Radius(mean*(1-s.p), miss) + 2
	lo, hi := max(0, math.Floor(mean-r)), min(s.m, math.Ceil(mean+r))
	size := max(1, math.Ceil((hi-lo+1)/maxBlocks))
	odds := s.p / (1 - s.p)
	var out []cloneBlock
	for from := lo; from <= hi; from += size {
		to := min(from+size-1, hi)
		g, rel := binomial.PMF(from, s.m, s.p, 1-s.p)
		mass := g
		for c := from; c < to; c++ {
			g *= (s.m - c) / (c + 1) * odds
			mass += g
		}
		out = append(out, cloneBlock{from, to, outward.Widened(mass, rel+outward.Summed(size))})
	}
	return out
}

// upper bounds delta(epsilon) from above.
func (s *cloneSum) upper(epsilon float64) float64 {
	if v := s.over(s.near(), nearMiss, epsilon); v > 1e10*nearMiss {
		return v
	}
	return s.over(s.deep(), deepMiss, epsilon)
}

func (s *cloneSum) over(blocks []cloneBlock, miss, epsilon float64) float64 {
	th := math.Tanh(s.e0 / 2)
	rho := math.Tanh(epsilon/2) / th
	beta := (1 - s.p0) * s.m * s.p / (2 * s.p0)
	var total binomial.Sum
	for _, b := range blocks {
		// For every c of the block: A - c/2 grows with c in the convex order, and so does
		// what it must exceed.
		total.Add(b.mass * halfExcess(b.to, rho*(b.from/2+beta)))
	}
	scale := 2 * s.p0 / (s.m * s.p) * th * (1 + math.Exp(epsilon))
	// The distribution with density f_P puts at most 2 miss on the numbers of clones left
	// out.
	return outward.Up(total.Value()*scale) + 2*miss
}

// halfExcess bounds E (A - xi)_+ from above for A ~ Bin(c, 1/2), xi = c/2 + w, w >= 0.
func halfExcess(c, w float64) float64 { return (&excess{c: c}).of(w) }

// An excess is E (A - xi)_+ for one c. With T = P(A >= a) and g = P(A = a) at a =
// floor(xi)+1, it is g a/2 - w T; what the last xi took is kept, for the next often has the
// same a.
type excess struct {
	c      float64
	a      float64 // of the rest; 0: of none
	g, rel float64
	lo, hi float64 // of T/g
}

func (x *excess) of(w float64) float64 {
	c := x.c
	xi := c/2 + w
	if xi >= c {
		// Only by rounding can a term be left.
		if outward.Down(xi) > c {
			return 0
		}
		g, _ := binomial.PMF(c, c, 0.5, 0.5)
		return 2e-14 * xi * g
	}
	a := math.Floor(xi) + 1
	if a != x.a {
		x.a = a
		x.g, x.rel = binomial.PMF(a, c, 0.5, 0.5)
		if x.g > 0 {
			x.lo, x.hi = binomial.TailRatio(a, c, 0.5, 0.5)
		}
	}
	if x.g == 0 {
		return 1e-300
	}
	v := max(0, a/2-w*x.lo)
	slip := 1e-14 * xi * (x.hi + a/(c-a+1)) // of xi, and of a where xi is next to a whole number
	return x.g * (1 + x.rel) * (v + 1e-15*a + slip)
}

// clones returns a bound from below on the probability with which another user's message
// is a clone: e^-e0 for any e0-LDP randomizer (Feldman, McMillan and Talwar 2021).
func clones(e0 float64) float64 { return outward.Down(math.Exp(-e0)) }

// blanket returns the probability 2/(e^e0+1), rounded down, with which the bit of binary
// randomized response is a fair coin.
func blanket(e0 float64) float64 { return outward.Down(2 / (math.Exp(e0) + 1)) }
