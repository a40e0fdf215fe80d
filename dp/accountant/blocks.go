package accountant

import (
	"math"
	"slices"

	"github.com/starling-agg/starling/internal/outward"
)

// Very many releases are composed in two stages: blocks of about the root of their number
// on a fine grid, and then the blocks on a grid that is as much coarser as a block's loss
// is wider. One grid for all would need a step below the loss of one release and a window
// as wide as that of all, a transform of a hundred million points for 10^9 releases.

// manyReleases is from where on.
const manyReleases = 1 << 18

// blocksOf returns how many releases are in a block, how many blocks there are, one to
// spare perhaps, and by which factor the second grid is coarser than the first; 1, count,
// 1 for few releases.
func (q question) blocksOf(count uint64) (each, times uint64, fine float64) {
	if !q.blocks || count < manyReleases {
		return 1, count, 1
	}
	// Of the numbers near the root, take the one that leaves the least to spare.
	root := uint64(math.Sqrt(float64(count)))
	least := count
	for t := root - root/16; t <= root; t++ {
		if e := (count + t - 1) / t; e*t-count < least {
			least, each, times = e*t-count, e, t
		}
	}
	return each, times, math.Round(math.Sqrt(float64(each)))
}

// even reports whether no loss of a release of which there are very many stands out: the
// noise of a block's transform is spread over as wide a range of losses as the block has,
// and the tilt of all blocks together must not weigh the far end of it much more than the
// rest.
func (q question) even(terms []term) bool {
	if !slices.ContainsFunc(terms, func(t term) bool { return t.count >= manyReleases }) {
		return false
	}
	variance, span := 0.0, 0.0
	for _, t := range terms {
		lo, hi := t.pair.reach(q.tail)
		if !(hi-lo < 1e6) {
			return false
		}
		b, ok := bin(t.pair, max((hi-lo)/2000, 1e-12*(math.Abs(lo)+math.Abs(hi)), 1e-300), q.tail)
		if !ok {
			return false
		}
		_, _, v := b.upper().tilt(0)
		if variance += float64(t.count) * v; t.count >= manyReleases {
			span = max(span, hi-lo)
		}
	}
	logDelta := 70.0
	if q.wantEpsilon {
		logDelta = -math.Log(q.g.Delta)
	}
	return span*math.Sqrt(2*logDelta/variance) < 2
}

// inBlocks returns the blocks of a term on the grid of step h: of at least as many
// releases above, of at most as many below.
func (q question) inBlocks(t term, h float64) (up, low part, err error) {
	each, times, fine := q.blocksOf(t.count)
	below := t.pair
	if t.below != nil {
		below = t.below
	}
	if up, err = q.block(t.pair, each, times, h, fine, true); err != nil {
		return up, low, err
	}
	if each*times > t.count {
		times--
	}
	low, err = q.block(below, each, times, h, fine, false)
	return up, low, err
}

// block composes each releases of x without a tilt, which would be weak for so few of all
// of them, and returns so many blocks of that.
func (q question) block(x pair, each, times uint64, h, fine float64, upper bool) (part, error) {
	b, ok := bin(x, snap([]term{{dominance: dominance{pair: x}, count: each}}, h/fine), q.tail)
	if !ok {
		return part{}, errTooFine{}
	}
	g := b.lower()
	if upper {
		g = b.upper()
	}
	// The mass outside of the window is part of the answer as a probability, once for
	// each block.
	wrap := math.Log(q.tail) - 1
	l, err := convolveParts([]part{{g, each}}, 0, max(wrap, -300))
	if err != nil {
		return part{}, err
	}
	composed := l.losses(upper)
	if b, ok = bin(composed, h, q.tail); !ok {
		return part{}, errTooFine{}
	}
	if upper {
		return part{b.upper(), times}, nil
	}
	return part{b.lower(), times}, nil
}

// losses returns a distribution that was convolved without a tilt as a pair whose curve
// is above that of the releases, or below it.
func (l *convolution) losses(upper bool) *atoms {
	n := len(l.g)
	a := &atoms{pInf: outward.Down(-math.Expm1(l.keep))}
	if upper {
		a.pInf = min(1, outward.Up(-math.Expm1(l.keep))+l.outside)
	}
	scale := math.Exp(l.k)
	for i := range n {
		v := l.g[modulo(l.first+i, n)]
		if upper { // what wrapped around only adds: it is counted as infinite too
			v = outward.Above(max(v+l.noise, 0) * scale)
		} else {
			v = outward.Beneath(max(v-l.noise-l.wrapped, 0) * scale)
		}
		if loss := l.lowest + float64(l.first+i)*l.h; v > 0 {
			a.loss, a.p, a.q = append(a.loss, loss), append(a.p, v), append(a.q, v*math.Exp(-loss))
		}
	}
	return a
}

// snap is the function, for the terms that are not composed in blocks, which have a grid
// of their own.
func (q question) snap(terms []term, h float64) float64 {
	var few []term
	for _, t := range terms {
		if each, _, _ := q.blocksOf(t.count); each == 1 {
			few = append(few, t)
		}
	}
	return snap(few, h)
}
