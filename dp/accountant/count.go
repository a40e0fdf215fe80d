package accountant

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

func (dummyCount) event()  {}
func (fixedSample) event() {}

// dummyCount is the publication of how many reports came, when each of N others sends an
// empty one with probability Rate: a binomial count, which one more report moves by one.
// It hides whether a person took part; put it beside the sum,
//
//	poissonSample{Event: composition{dummyCount{...}, gaussian{...}}, ...},
//
// where the number is published. N counts those guaranteed to be honest.
type dummyCount struct {
	N    uint64
	Rate float64
}

func (d dummyCount) dominating(n release.Neighbours) (dominance, error) {
	if d.N == 0 || d.N > release.MaxCount {
		return dominance{}, parameter("number of senders of dummies", float64(d.N), "1 to 2^40")
	}
	if !(d.Rate > 0 && d.Rate < 1) {
		return dominance{}, parameter("rate of dummies", d.Rate, "between 0 and 1, both excluded")
	}
	if n == release.ReplaceOne {
		return dominance{}, fmt.Errorf("%w: a count does not change for replace-one neighbours", release.ErrUnsupported)
	}
	const tail = 1e-30
	m, q := float64(d.N), d.Rate
	from, to := binomial.Window(m, q, tail)
	if to-from > 4*maxAtoms {
		return dominance{}, fmt.Errorf("%w: a count of this many dummies", release.ErrUnsupported)
	}
	never, always := 0.0, 0.0
	if from == 0 {
		never = binomial.Mass(m, 0, q) // nobody: the person was not there
	}
	if to == m {
		always = binomial.Mass(m, m, q) // one more than all
	}
	a := &atoms{pInf: always + tail, qInf: never + tail}
	last := binomial.Mass(m, from, q)
	for x := from + 1; x <= to; x++ {
		w := binomial.Mass(m, x, q)
		a.loss, a.p, a.q = append(a.loss, math.Log(x*(1-q)/((m-x+1)*q))), append(a.p, last), append(a.q, w)
		last = w
	}
	if len(a.loss) == 0 {
		return dominance{}, parameter("rate of dummies", d.Rate, "such that dummies are sent at all")
	}
	a.a, a.b = a.loss[0], a.loss[0]
	return dominance{pair: a, below: a.known(always, never), attained: true, theorem: "binomial count of dummies, summed exactly"}, nil
}

// Steps of the grid on which two pairs are put together, in parts of the spread of both;
// the first pair's are coarser. Each step h adds about h^2/6 to the variance of the loss:
// some parts in 10^6 here.
const (
	mixedSteps  = 1 << 14
	mixedCoarse = 8
	mixedTail   = 1e-30
	// So many outcomes are multiplied out.
	mixedOutright = 1 << 14
)

// mixed returns a pair above that of two independent outcomes, the first of them
// discrete: both are moved to one grid by connecting the dots, and the masses convolved
// term by term, so that they keep their relative precision.
func mixed(x *atoms, y pair) (*atoms, error) {
	if z, ok := y.(*atoms); ok && len(x.loss)*len(z.loss) <= mixedOutright {
		return x.times(z), nil
	}
	xLow, xHigh := x.reach(mixedTail)
	yLow, yHigh := y.reach(mixedTail)
	h := math.Hypot(xHigh-xLow, yHigh-yLow) / mixedSteps
	if !(h > 0) || math.IsInf(h, 0) {
		return nil, fmt.Errorf("%w: the losses of one release spread too widely", release.ErrUnsupported)
	}
	a, ok := bin(x, mixedCoarse*h, mixedTail)
	b, ok2 := bin(y, h, mixedTail)
	if !ok || !ok2 {
		return nil, fmt.Errorf("%w: the losses of one release are too far from zero", release.ErrUnsupported)
	}
	f, g := a.upper(), b.upper()
	p := make([]float64, mixedCoarse*(len(f.p)-1)+len(g.p))
	for i, w := range f.p {
		if w == 0 {
			continue
		}
		to := p[mixedCoarse*i:]
		for j, v := range g.p {
			to[j] += w * v
		}
	}
	_, never := x.infinite()
	_, never2 := y.infinite()
	// Mass that Q loses at either end of a grid is taken for outcomes that P never has.
	out := &atoms{pInf: outward.Up(f.inf + g.inf), qInf: outward.Up(never + never2 + 4*mixedTail)}
	for i, v := range p {
		if l := f.origin + g.origin + float64(i)*h; v > 0 {
			out.loss, out.p, out.q = append(out.loss, l), append(out.p, v), append(out.q, v*math.Exp(-l))
		}
	}
	return out, nil
}

// times is the pair of two independent outcomes.
func (a *atoms) times(b *atoms) *atoms {
	out := &atoms{pInf: outward.Up(a.pInf + b.pInf), qInf: outward.Up(a.qInf + b.qInf)}
	for i, l := range a.loss {
		for j, m := range b.loss {
			out.loss, out.p, out.q = append(out.loss, l+m), append(out.p, a.p[i]*b.p[j]), append(out.q, a.q[i]*b.q[j])
		}
	}
	out.sort()
	return out
}

// joint returns the pair of a single event, or of a count of dummies together with
// another event.
func joint(e event, n release.Neighbours) (dominance, error) {
	if c, ok := e.(composition); ok && len(c) == 2 {
		for i := range c {
			count, ok := c[i].(dummyCount)
			other, ok2 := c[1-i].(dominated)
			if !ok || !ok2 {
				continue
			}
			a, err := count.dominating(n)
			if err != nil {
				return dominance{}, err
			}
			b, err := other.dominating(n)
			if err != nil {
				return dominance{}, err
			}
			// Of b only the pair above goes in, and nothing is claimed from below.
			both, err := mixed(a.pair.(*atoms), b.pair)
			if err != nil {
				return dominance{}, err
			}
			theorem := a.theorem
			if b.theorem != "" {
				theorem += "; " + b.theorem
			}
			return dominance{pair: both, slop: a.slop + b.slop, theorem: theorem}, nil
		}
	}
	d, ok := e.(dominated)
	if !ok {
		return dominance{}, fmt.Errorf("%w: sampling of %s", release.ErrUnsupported, nameOf(e))
	}
	return d.dominating(n)
}

// fixedSample is a release about a public number of records, a uniformly chosen secret
// subset of all: Rate is the size of the subset over the number of honest records, at its
// upper quantile if it varies. It is for ReplaceOne neighbours, and what is left of
// amplification where the count is public.
type fixedSample struct {
	Event event
	Rate  float64
}

const fixedTheorem = "sampling without replacement (Balle, Barthe and Gaboardi 2018, theorem 10; Zhu, Dong and Wang 2022, proposition 30)"

func (s fixedSample) dominating(n release.Neighbours) (dominance, error) {
	if err := checkSampling(s.Rate); err != nil {
		return dominance{}, err
	}
	if n != release.ReplaceOne {
		return dominance{}, fmt.Errorf("%w: sampling without replacement for %v neighbours", release.ErrUnsupported, n)
	}
	inner, ok := s.Event.(dominated)
	if !ok {
		return dominance{}, fmt.Errorf("%w: sampling of %s", release.ErrUnsupported, nameOf(s.Event))
	}
	d, err := inner.dominating(n)
	if err != nil || s.Rate == 1 {
		return d, err
	}
	if !d.symmetric {
		return dominance{}, fmt.Errorf("%w: sampling without replacement of %s", release.ErrUnsupported, nameOf(s.Event))
	}
	return dominance{pair: newFixed(d.pair, s.Rate), symmetric: true, slop: d.slop, theorem: fixedTheorem}, nil
}

// fixedPair has the curve of ((1-r) Q + r P, Q) for losses above 0 and of (P, (1-r) P + r
// Q) below, and the mass that is left at 0.
type fixedPair struct {
	up, down pair
	zero     float64
}

func newFixed(x pair, rate float64) fixedPair {
	f := fixedPair{up: poisson{x, rate}, down: swapped{poisson{swapped{x}, rate}}}
	count := func(x pair, sign float64) float64 {
		p, q := make([]float64, 1), make([]float64, 1)
		edges := []float64{0, math.Inf(1)}
		if sign < 0 {
			edges = []float64{math.Inf(-1), 0}
		}
		x.masses(edges, p, q)
		sum := p[0]
		x.points(func(l, pm, _ float64) {
			if l*sign > 0 {
				sum += pm
			}
		})
		return sum
	}
	inf, _ := f.infinite()
	f.zero = max(0, 1-inf-count(f.up, 1)-count(f.down, -1))
	return f
}

func (f fixedPair) masses(edges, p, q []float64) {
	ps, qs := make([]float64, len(p)), make([]float64, len(q))
	clipped := make([]float64, len(edges))
	for i, e := range edges {
		clipped[i] = max(e, 0)
	}
	f.up.masses(clipped, p, q)
	for i, e := range edges {
		clipped[i] = min(e, 0)
	}
	f.down.masses(clipped, ps, qs)
	for i := range p {
		p[i] += ps[i]
		q[i] += qs[i]
	}
}

func (f fixedPair) points(g func(loss, p, q float64)) {
	f.up.points(func(l, p, q float64) {
		if l > 0 {
			g(l, p, q)
		}
	})
	f.down.points(func(l, p, q float64) {
		if l < 0 {
			g(l, p, q)
		}
	})
	g(0, f.zero, f.zero)
}

func (f fixedPair) infinite() (p, q float64) {
	p, _ = f.up.infinite()
	_, q = f.down.infinite()
	return p, q
}

func (f fixedPair) reach(tail float64) (lo, hi float64) {
	_, hi = f.up.reach(tail)
	lo, _ = f.down.reach(tail)
	return min(lo, 0), max(hi, 0)
}

func (fixedPair) anchors() (a, b float64) { return 0, 0 }
