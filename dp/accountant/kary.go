package accountant

import (
	"math"

	"github.com/starling-agg/starling/dp/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

// karyPair is the blanket of k-ary randomized response as a pair of laws, which composes
// over rounds (docs/proofs/shuffling.md, theorem 5): of the others m - 1 send a uniform
// message; of these and the person's, a are the person's one value and b the other. A
// uniform place is the person's, so that relative to m uniform messages
//
//	P = (g/m) (m + (e^e0 - 1) a),  Q = (g/m) (m + (e^e0 - 1) b),  g = k/(e^e0 + k - 1).

const (
	// karyTail is left out of each window.
	karyTail = 1e-20
	// karyWork bounds the outcomes that are summed, and karyCells the intervals that
	// their losses are put on.
	karyWork  = 1 << 26
	karyCells = 1 << 14
	// karySizes are how many values of m stand for all, at least and at most: fewer
	// uniform messages are never better.
	leastSizes, mostSizes = 8, 64

	karyTheorem = "privacy blanket of k-ary randomized response as a pair of laws (docs/proofs/shuffling.md, theorem 5)"
)

// newKaryPair returns a pair above that of n reports; ok is false where that takes too long.
func newKaryPair(e0, n, k float64) (pair *atoms, ok bool) {
	rise := math.Expm1(e0)
	g := k / (rise + k)
	from, to := binomial.Window(n-1, g, karyTail)
	area := func(m float64) float64 { // outcomes of m uniform messages
		lo, hi := binomial.Window(m, 2/k, karyTail)
		bottom, top := binomial.Window(hi, 0.5, karyTail)
		return (hi - lo + 1) * (top - bottom + 1) / 2
	}
	sizes := math.Floor(min(mostSizes, karyWork/area(to+1)))
	if sizes < leastSizes {
		return nil, false
	}
	stride := math.Ceil((to - from + 1) / sizes)
	// The largest loss of a window, for the grid.
	most := 0.0
	for m := from + 1; m <= to+1; m += stride {
		lo, hi := binomial.Window(m, 2/k, karyTail)
		for s := lo; s <= hi; s++ {
			_, a := binomial.Window(s, 0.5, karyTail)
			most = max(most, math.Log1p(rise*a/m)-math.Log1p(rise*(s-a)/m))
		}
	}
	if !(most > 0) {
		return nil, false
	}
	h := outward.Up(most) / karyCells
	p, q := make([]float64, karyCells), make([]float64, karyCells) // of losses from ih to (i+1)h
	for c := from; c <= to; c += stride {
		w := 0.0
		for x := c; x < c+stride && x <= to; x++ {
			w += binomial.PMF(n-1, x, g)
		}
		karyOutcomes(c+1, k, rise, w*g/(c+1), h, p, q)
	}
	// Outcomes that were left out may all give the person away. Their probability is at
	// most that of uniform messages times the largest ratio, twice over for s and for a.
	out := &atoms{}
	out.pInf = karyTail * (2 + 4*min(k, rise+1))
	out.qInf = out.pInf
	at := make([]float64, 2*karyCells+1) // P-mass at loss (i - karyCells) h
	put := func(i int, p, q float64) {   // of losses from ih on, keeping both masses
		v := min(max((p-q*math.Exp(float64(i)*h))/-math.Expm1(-h), 0), p)
		at[karyCells+i] += p - v
		at[karyCells+i+1] += v
	}
	for i := range p {
		put(i, p[i], q[i])
		put(-i-1, q[i], p[i])
	}
	for i, v := range at {
		if loss := float64(i-karyCells) * h; v > 0 {
			out.loss, out.p, out.q = append(out.loss, loss), append(out.p, v), append(out.q, v*math.Exp(-loss))
		}
	}
	return out, true
}

// karyOutcomes adds the outcomes of m messages with a >= b, at the given weight, to the
// cells of width h. Those with a < b are the same with the laws exchanged; of a = b, half
// is each's.
func karyOutcomes(m, k, rise, weight, h float64, p, q []float64) {
	lo, hi := binomial.Window(m, 2/k, karyTail)
	ps := binomial.PMF(m, lo, 2/k)
	odds := 2 / (k - 2)
	ln := make([]float64, int(hi)+1)
	for a := range ln {
		ln[a] = math.Log1p(rise * float64(a) / m)
	}
	for s := lo; s <= hi; s++ {
		_, top := binomial.Window(s, 0.5, karyTail)
		a := math.Ceil(s / 2)
		pa := binomial.PMF(s, a, 0.5) * ps * weight
		for ; a <= top; a++ {
			b := s - a
			u := pa
			if a == b {
				u /= 2
			}
			i := min(int((ln[int(a)]-ln[int(b)])/h), len(p)-1)
			p[i] += u * (m + rise*a)
			q[i] += u * (m + rise*b)
			pa *= b / (a + 1)
		}
		ps *= (m - s) / (s + 1) * odds
	}
}
