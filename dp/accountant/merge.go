package accountant

import "math"

// merged is a pair of which all outcomes of a loss of at most upto are one outcome: a
// post-processing, so that its curve is below that of the pair. See
// docs/proofs/pld-bounds.md: a release about a rare person loses next to nothing with
// probability close to one, and no grid that reaches its large losses has points between
// the small ones. A lower bound then has a Q-mass a little above one, as much as T times
// which it loses; merged and put on a grid point, that mass is exact.
type merged struct {
	pair
	upto       float64
	loss, p, q float64
}

// newMerged merges, if more than half of the probability is there.
func newMerged(x pair, upto float64) (merged, bool) {
	m := merged{pair: x, upto: upto}
	p, q := make([]float64, 1), make([]float64, 1)
	x.masses([]float64{math.Inf(-1), upto}, p, q)
	m.p, m.q = p[0], q[0]
	x.points(func(l, p, q float64) {
		if l <= upto {
			m.p, m.q = m.p+p, m.q+q
		}
	})
	_, never := x.infinite()
	m.q += never
	m.loss = math.Log(m.p / m.q)
	return m, m.p > 0.5 && m.q > 0.5
}

func (m merged) masses(edges, p, q []float64) {
	clipped := make([]float64, len(edges))
	for i, e := range edges {
		clipped[i] = max(e, m.upto)
	}
	m.pair.masses(clipped, p, q)
}

func (m merged) points(f func(loss, p, q float64)) {
	f(m.loss, m.p, m.q)
	m.pair.points(func(l, p, q float64) {
		if l > m.upto {
			f(l, p, q)
		}
	})
}

func (m merged) infinite() (p, q float64) {
	p, _ = m.pair.infinite()
	return p, 0
}

func (m merged) reach(tail float64) (lo, hi float64) {
	_, hi = m.pair.reach(tail)
	return m.loss, max(hi, m.loss)
}

func (m merged) anchors() (a, b float64) { return m.loss, m.loss }

// lowest returns a measure on a grid of step h whose curve is below that of x, for count
// compositions: of x itself or, if together they would lose more than a step by it, of x
// with the small losses merged.
func lowest(x pair, h, tail float64, count uint64) (grid, bool) {
	b, ok := bin(x, h, tail)
	if !ok {
		return grid{}, false
	}
	g := b.lower()
	excess := g.logMoment(-1) // of the Q-mass
	if lo, _ := x.reach(tail); !(float64(count)*excess > h && lo > -h) {
		return g, true
	}
	m, ok := newMerged(x, h)
	if !ok {
		return g, true
	}
	if b, ok = bin(m, h, tail); !ok {
		return g, true
	}
	if other := b.lower(); other.logMoment(-1) < excess/2 {
		return other, true
	}
	return g, true
}
