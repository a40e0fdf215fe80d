package accountant

import (
	"math"

	"github.com/starling-agg/starling/internal/outward"
)

// A rare large loss, as in a release about one person in a million, spoils the tilt of
// compose: under it the large losses weigh more than those near epsilon, and the bounds
// on what the transform does to the latter become poor. They are counted apart then. With
// P = N + F, the losses up to some point and those beyond it, of total mass f,
//
//	P^T = N^T + T N^(T-1) F + R,  0 <= |R| <= (T f)^2/2,
//
// and the curves, which are linear in the measure, add up. Both parts suit a tilt of
// their own.

// apart is a bound on the curve of count compositions, from measures above or below.
type apart struct {
	near, far *composed // far may be nil
	times     float64   // that far counts
	rest      float64
}

// newApart splits p at the given loss, or further up where more than rest would be left
// out. It fails if nothing is there.
func newApart(p part, at, rest, delta float64, upper bool) (*apart, bool) {
	t := float64(p.count)
	cut := len(p.p)
	mass := 0.0
	for cut > 1 {
		m := mass + p.p[cut-1]
		if p.origin+float64(cut-1)*p.h <= at || t*t*m*m/2 > rest {
			break
		}
		mass, cut = m, cut-1
	}
	if cut == len(p.p) || mass == 0 {
		return nil, false
	}
	near := part{grid{p.h, p.origin, p.p[:cut], p.inf}, p.count}
	tilt, _ := tiltFor([]part{near}, delta)
	a := &apart{times: t}
	var err error
	if a.near, err = compose([]part{near}, tilt, upper); err != nil {
		return nil, false
	}
	others := part{grid{p.h, p.origin, p.p[:cut], 0}, p.count - 1} // what is infinite is counted with near
	beyond := part{grid{p.h, p.origin + float64(cut)*p.h, p.p[cut:], 0}, 1}
	const level = 1e-3 // hardly a tilt: most of the mass is near zero, and all of the other part counts
	if a.far, err = compose([]part{others, beyond}, level, upper); err != nil {
		return nil, false
	}
	if upper {
		a.rest = outward.Up(t * t * mass * mass / 2)
	}
	return a, true
}

// at bounds delta(epsilon).
func (a *apart) at(epsilon float64, upper bool) float64 {
	sum := a.rest
	for _, c := range []struct {
		*composed
		times float64
	}{{a.near, 1}, {a.far, a.times}} {
		e := epsilon
		if !upper {
			e = max(e, c.origin) // the curve falls
		}
		sum += c.times * c.at(e)
	}
	return sum
}

// epsilon returns where the curve falls to delta, on the side asked for; most is a point
// where it is below.
func (a *apart) epsilon(delta, most float64, upper bool) float64 {
	if a.at(0, upper) <= delta {
		return 0
	}
	low, high := 0.0, most
	for range 60 {
		if mid := (low + high) / 2; a.at(mid, upper) <= delta {
			high = mid
		} else {
			low = mid
		}
	}
	if upper {
		return high
	}
	return low
}

// farLosses answers like once, counting rare large losses apart, where what is known is
// too wide.
func (q question) farLosses(terms []term, h float64, known bounds) bounds {
	if len(terms) != 1 || terms[0].count < 2 || q.blocks || math.IsInf(known.upper, 0) || !(known.upper > 0) {
		return known
	}
	t := terms[0]
	below := t.pair
	if t.below != nil {
		below = t.below
	}
	b, ok := bin(t.pair, h, q.tail)
	if !ok {
		return known
	}
	at, rest := 1.2*known.upper, 1e-5*q.g.Delta
	if a, ok := newApart(part{b.upper(), t.count}, at, rest, q.g.Delta, true); ok {
		if d := q.g.Delta * math.Exp(-q.slop); a.at(known.upper, true) <= d {
			known.upper = min(known.upper, a.epsilon(d, known.upper, true)+2*q.slop)
		}
	}
	g, ok := lowest(below, h, q.tail, t.count)
	if !ok {
		return known
	}
	if a, ok := newApart(part{g, t.count}, at, rest, q.g.Delta, false); ok {
		lower := a.epsilon(q.g.Delta*math.Exp(q.slop), known.upper, false) - 2*q.slop
		known.lower = min(max(known.lower, lower), known.upper)
	}
	return known
}
