package accountant

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// A term is count compositions of a dominating pair.
type term struct {
	dominance
	count uint64
}

const pldTheorem = "privacy loss distributions, connect-the-dots above and below (docs/proofs/pld-bounds.md)"

// pld answers by composing privacy loss distributions on a grid, refined until the two
// bounds meet the tolerance.
func (o Options) pld(leaves []leaf, g release.Guarantee, wantEpsilon bool) (release.Guarantee, error) {
	terms := make([]term, len(leaves))
	attained, symmetric := true, true
	for i, l := range leaves {
		d, ok := l.event.(dominated)
		if !ok {
			return release.Guarantee{}, fmt.Errorf("%w: no privacy loss distribution for %s", release.ErrUnsupported, nameOf(l.event))
		}
		dom, err := d.dominating(g.Neighbours)
		if err != nil {
			return release.Guarantee{}, err
		}
		terms[i] = term{dom, l.count}
		attained = attained && dom.attained
		symmetric = symmetric && dom.symmetric
	}
	g.Method, g.Theorem = string(PLD), pldTheorem
	if len(terms) == 1 && terms[0].theorem != "" {
		g.Theorem = terms[0].theorem + "; " + pldTheorem
	}
	if most := ceiling(leaves, g.Neighbours); !wantEpsilon && g.Epsilon >= most {
		none, _ := purely(g, most, false) // a grid would be refined until it gave up
		return none, nil
	}
	q := question{g: g, wantEpsilon: wantEpsilon, tail: 1e-30}
	count := 0.0
	for _, t := range terms {
		count += float64(t.count)
	}
	if wantEpsilon {
		q.tail = g.Delta * 1e-9 / count
	}
	q.tail = max(q.tail, 1e-280)
	for _, t := range terms {
		q.slop += 2 * max(massError, t.slop) * float64(t.count)
	}
	for _, t := range terms { // the losses themselves are rounded
		lo, hi := t.pair.reach(q.tail)
		q.slop += float64(t.count) * outward.Off(lo, hi)
	}
	q.blocks = q.even(terms)
	ways := [][]term{terms}
	if !symmetric {
		back := make([]term, len(terms))
		for i, t := range terms {
			back[i] = t
			if !t.symmetric {
				back[i].pair = swapped{t.pair}
				if t.below != nil {
					back[i].below = swapped{t.below}
				}
			}
		}
		if ways = append(ways, back); o.Direction == release.Remove {
			ways = ways[:1]
		} else if o.Direction == release.Add {
			ways = ways[1:]
		}
	}
	var best bounds
	for i, w := range ways {
		b, ok := q.direct(w, attained)
		var err error
		if !ok {
			b, err = q.bracket(w, o.Tolerance, attained, best)
		}
		if err != nil {
			return release.Guarantee{}, err
		}
		if i == 0 || b.upper > best.upper {
			best.upper = b.upper
		}
		best.lower = max(best.lower, b.lower)
	}
	if wantEpsilon {
		g.Epsilon, g.EpsilonLower = best.upper, min(best.lower, best.upper)
		if g.Epsilon > release.MaxEpsilon {
			return release.Guarantee{}, release.ErrNoGuarantee
		}
		return g, nil
	}
	g.Delta, g.DeltaLower = best.upper, min(best.lower, best.upper)
	return g, nil
}

// bounds on the answer, and how many steps of the grid the window took.
type bounds struct {
	lower, upper float64
	size         int
}

// A question is an epsilon at a delta or the reverse.
type question struct {
	g           release.Guarantee
	wantEpsilon bool
	tail        float64
	slop        float64 // ln of the factor by which computed distributions may be off, each way
	blocks      bool    // compose very many releases in two stages
}

// direct answers for one release of a discrete pair by its sum, without a grid.
func (q question) direct(terms []term, attained bool) (bounds, bool) {
	if len(terms) != 1 || terms[0].count != 1 || !discretePair(terms[0].pair) || terms[0].below != nil && !discretePair(terms[0].below) {
		return bounds{}, false
	}
	above, below := pointsCurve(terms[0].pair), pointsCurve(terms[0].pair)
	if terms[0].below != nil {
		below = pointsCurve(terms[0].below)
	}
	both := charge(func(e float64) (lower, upper float64) {
		_, upper = above(e)
		if attained {
			lower, _ = below(e)
		}
		return lower, upper
	}, terms[0].slop)
	if !q.wantEpsilon {
		lo, hi := both(q.g.Epsilon)
		return bounds{lower: lo, upper: hi}, true
	}
	lo, hi, err := both.epsilon(q.g.Delta)
	if err != nil {
		hi = math.Inf(1)
	}
	return bounds{lower: lo, upper: hi}, true
}

// discretePair reports whether x consists of atoms.
func discretePair(x pair) bool {
	switch x := x.(type) {
	case *atoms:
		return true
	case poisson:
		return discretePair(x.pair)
	case swapped:
		return discretePair(x.pair)
	}
	return false
}

// pointsCurve returns the curve of a discrete pair.
func pointsCurve(x pair) curve {
	var loss, p []float64
	x.points(func(l, pm, _ float64) { loss, p = append(loss, l), append(p, pm) })
	inf, _ := x.infinite()
	return func(e float64) (lower, upper float64) {
		s, mass := 0.0, 0.0
		for i, l := range loss {
			if l > e-outward.Formula*(1+e) { // or next to it
				s -= p[i] * math.Expm1(min(0, e-l))
				mass += p[i]
			}
		}
		lower, upper = outward.Padded(s, massError, mass*(massError+outward.Off(e)))
		return min(1, lower+outward.Down(inf)), min(1, upper+outward.Up(inf))
	}
}

// bracket answers for one direction. A direction that turns out to be below what is
// already proved as a lower bound of the other one need not be refined.
func (q question) bracket(terms []term, tolerance float64, attained bool, other bounds) (bounds, error) {
	h, err := q.firstStep(terms)
	if err != nil {
		return bounds{}, err
	}
	result := bounds{0, math.Inf(1), 0}
	good := 0.0 // the last step that worked
	few := len(terms) == 1 && terms[0].count <= fewReleases
	for round := 0; ; round++ {
		b, err := q.once(terms, q.snap(terms, h), other.lower)
		if errors.As(err, new(errTooFine)) {
			// Too fine at once: coarser. Too fine after refining: half the way, and no
			// further.
			switch {
			case good == 0 && h < 1e3:
				h *= 2
				continue
			case good > 0 && good > 1.5*h:
				h = math.Sqrt(good * h)
				round = maxRounds - 1
				continue
			case good > 0:
				return result.claim(attained), nil
			}
			return bounds{}, fmt.Errorf("%w: the losses spread too widely", release.ErrUnsupported)
		}
		if err != nil {
			return bounds{}, err
		}
		good = h
		if q.wantEpsilon && b.lower < 0.99*b.upper && b.upper > other.lower {
			b = q.farLosses(terms, q.snap(terms, h), b)
		}
		before := result
		result.upper = min(result.upper, b.upper)
		result.lower = max(result.lower, b.lower)
		gap, want := result.upper-result.lower, tolerance*result.upper
		if q.wantEpsilon { // an epsilon of zero has no relative precision
			want = max(want, 1e-4*tolerance) + 4*q.slop
		}
		if round >= maxRounds || gap <= want || math.IsInf(result.upper, 1) || result.upper <= other.lower {
			return result.claim(attained), nil
		}
		// Where finer grids move neither bound, they never will.
		if was := before.upper - before.lower; few && round > 0 && gap > 0.75*was && before.upper-result.upper <= want {
			return result.claim(attained), nil
		}
		// The gap falls with h^2 where the distribution is smooth, with h where it is
		// not.
		factor := min(max(1.2*math.Sqrt(gap/want), 1.5), 6)
		if gap <= 10*want && float64(b.size)*factor > softTransform {
			return result.claim(attained), nil
		}
		if room := 0.95 * maxTransform / float64(b.size); factor > room {
			if factor = room; factor < 1.5 {
				return result.claim(attained), nil
			}
			round = maxRounds - 1
		}
		h /= factor
	}
}

const (
	// fewReleases is up to where a coarse grid is a good start: each release adds its
	// rounding.
	fewReleases = 1 << 10
	// maxRounds bounds the refinements of the grid.
	maxRounds = 5
	// softTransform is the length of a transform that is not worth exceeding when the gap
	// is nearly closed.
	softTransform = 1 << 19
)

// claim drops the lower bound of a pair that nobody is known to reach.
func (b bounds) claim(attained bool) bounds {
	if !attained {
		b.lower = 0
	}
	return b
}

// snap returns a step of at most h for which the anchors of the most frequent term that
// has two are grid points.
func snap(terms []term, h float64) float64 {
	best, width := uint64(0), 0.0
	for _, t := range terms {
		if a, b := t.pair.anchors(); b-a > h && t.count > best {
			best, width = t.count, b-a
		}
	}
	if width == 0 {
		return h
	}
	return width / math.Ceil(outward.Down(width/h))
}

// firstStep guesses a grid from a coarse look at each pair.
func (q question) firstStep(terms []term) (float64, error) {
	const coarse = 2000
	variance, count := 0.0, 0.0
	span := 0.0
	for _, t := range terms {
		lo, hi := t.pair.reach(q.tail)
		if !(hi-lo < 1e6) || math.IsNaN(hi-lo) {
			return 0, fmt.Errorf("%w: the losses of one release spread too widely", release.ErrUnsupported)
		}
		h := max((hi-lo)/coarse, 1e-12*(math.Abs(lo)+math.Abs(hi)), 1e-300)
		b, ok := bin(t.pair, h, q.tail)
		if !ok {
			return 0, fmt.Errorf("%w: the losses of one release are too far from zero", release.ErrUnsupported)
		}
		_, _, v := b.upper().tilt(0)
		variance += float64(t.count) * v
		each, times, fine := q.blocksOf(t.count)
		if each > 1 {
			times *= 2 // rounded twice
		}
		count += float64(times)
		span = max(span, (hi-lo)*fine)
	}
	// Rounding adds about h^2/6 to the variance of each loss.
	steps := float64(1 << 18)
	if count <= fewReleases {
		steps = 1 << 14 // to begin with; a finer one follows where it helps
	}
	return max(math.Sqrt(3.7e-4*variance/count), span/steps, 15*math.Sqrt(variance)/softTransform, 1e-18), nil
}

// once computes both bounds on the grid of step h; only the upper one if that is at most
// enough.
func (q question) once(terms []term, h, enough float64) (bounds, error) {
	up, low := make([]part, len(terms)), make([]part, len(terms))
	for i, t := range terms {
		if each, _, _ := q.blocksOf(t.count); each > 1 {
			var err error
			if up[i], low[i], err = q.inBlocks(t, h); err != nil {
				return bounds{}, err
			}
			continue
		}
		b, ok := bin(t.pair, h, q.tail)
		if !ok {
			return bounds{}, errTooFine{}
		}
		up[i] = part{b.upper(), t.count}
		below := t.pair
		if t.below != nil {
			below = t.below
		}
		g, ok := lowest(below, h, q.tail, t.count)
		if !ok {
			return bounds{}, errTooFine{}
		}
		low[i] = part{g, t.count}
	}
	if q.wantEpsilon {
		lambda, _ := tiltFor(up, q.g.Delta)
		var c *composed
		var hi float64
		for try := 0; ; try++ {
			var err error
			if c, err = compose(up, lambda, true); err != nil {
				return bounds{}, err
			}
			if hi = c.epsilon(q.g.Delta * math.Exp(-q.slop)); !math.IsInf(hi, -1) {
				break
			}
			if hi = c.origin; try == 6 { // below the window, whose lower end is a bound
				break
			}
			lambda /= 4 // look further down
		}
		if hi += 2 * q.slop; hi <= enough {
			return bounds{0, max(0, hi), c.size}, nil
		}
		var err error
		if c, err = compose(low, lambda, false); err != nil {
			return bounds{}, err
		}
		lo := max(0, c.epsilon(q.g.Delta*math.Exp(q.slop))-2*q.slop)
		if math.IsInf(lo, 1) {
			lo = min(hi, release.MaxEpsilon)
		}
		return bounds{min(lo, hi), max(0, hi), c.size}, nil
	}
	lambda, _ := tiltAt(up, q.g.Epsilon)
	c, err := compose(up, lambda, true)
	if err != nil {
		return bounds{}, err
	}
	hi := 1.0
	if e := q.g.Epsilon - 2*q.slop; e >= 0 {
		hi = c.at(e)
	} else {
		hi = c.at(0) + 4*q.slop // the curve's slope is at most 1 there
	}
	if hi = min(1, hi*math.Exp(q.slop)); hi <= enough {
		return bounds{0, hi, c.size}, nil
	}
	if c, err = compose(low, lambda, false); err != nil {
		return bounds{}, err
	}
	lo := 0.0
	if e := q.g.Epsilon + 2*q.slop; e >= c.origin {
		lo = c.at(e) * math.Exp(-q.slop)
	}
	return bounds{min(lo, hi), hi, c.size}, nil
}
