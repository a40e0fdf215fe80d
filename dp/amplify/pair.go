package amplify

import (
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

// A Pair is a dominating pair: two distributions P and Q over outcomes, of which Loss is
// ln(P/Q), that no neighbours exceed. Unlike a [Curve] it composes over rounds.
type Pair struct {
	Loss, P, Q []float64
	// PInf and QInf bound what is left out of P and Q.
	PInf, QInf float64
	// Slop is ln of the factor by which what is computed may be off, each way.
	Slop    float64
	Theorem string
}

func (p *Pair) add(loss, mass, other float64) {
	p.Loss, p.P, p.Q = append(p.Loss, loss), append(p.P, mass), append(p.Q, other)
}

const (
	pairCloneTheorem   = "privacy amplification by shuffling, clones (Feldman, McMillan and Talwar 2021, theorem 3.2)"
	pairBlanketTheorem = "privacy blanket of randomized response (Balle, Bell, Gascon and Nissim 2019), summed exactly"
	pairKaryTheorem    = "privacy blanket of k-ary randomized response as a dominating pair (docs/proofs/shuffling.md, theorem 5)"
)

// MostReports bounds the messages of which a pair is tabulated; of more, as many count.
const MostReports = 1e9

// ShuffledPair is the pair of n shuffled messages of this premise: theorem 5 of
// docs/proofs/shuffling.md for k-ary randomized response, where it has not too many
// outcomes, and else clones.
func ShuffledPair(is release.Premise, n uint64) *Pair {
	reports := min(float64(n), MostReports)
	if is.Answers > 2 {
		if x, ok := newKaryPair(is.Epsilon0, reports, float64(is.Answers)); ok {
			x.Slop, x.Theorem = outward.Summed(longestSum), pairKaryTheorem
			return x
		}
	}
	// Of the other reports, C ~ Bin(n-1, p) look like either of the person's two values,
	// each with probability 1/2; A of the C+1 have the first. The person has the first with
	// probability e^e0/(1+e^e0), or the second.
	p, theorem := math.Exp(-is.Epsilon0), pairCloneTheorem
	if is.Answers == 2 {
		p, theorem = 2/(math.Exp(is.Epsilon0)+1), pairBlanketTheorem
	}
	counts, weights, outside := cloneCounts(min(float64(n-1), MostReports), p)
	from, to := binomial.Window(counts[len(counts)-1]+1, 0.5, cloneTail)
	x := clonePair(is.Epsilon0, counts, weights, outside)
	x.Slop, x.Theorem = outward.Summed(to-from), theorem
	return x
}

const (
	cloneTail  = 1e-20
	maxCounts  = 4096
	maxOutcome = 400_000
	// longestSum bounds the steps of a recurrence over the outcomes of 10^9 coins.
	longestSum = 1e5
)

// cloneCounts returns numbers of clones among n messages, each one with probability p,
// their probabilities, and a bound on the probability of the others. Losing clones is never
// better, since adding an independent one is post-processing: so fewer may stand for more.
func cloneCounts(n, p float64) (counts, weights []float64, outside float64) {
	from, to := binomial.Window(n, p, cloneTail)
	// A sum over a takes of the order of sqrt(c) terms; keep the work in bounds.
	size := min(maxCounts, max(256, int(4e6/math.Sqrt(to+1))))
	stride := math.Ceil((to - from + 1) / float64(size))
	for c := from; c <= to; c += stride {
		w := 0.0
		for x := c; x < c+stride && x <= to; x++ {
			w += binomial.Mass(n, x, p)
		}
		counts, weights = append(counts, c), append(weights, w)
	}
	return counts, weights, 3 * cloneTail
}

// clonePair is the pair of C+1 messages, A of them the first value, with C on few of its
// values. With a of m = c+1,
//
//	P = 2 Bin(m, 1/2)(a) [r a + (1-r)(m-a)]/m,  r = e^e0/(1+e^e0),
//
// and Q has r and 1-r exchanged.
func clonePair(e0 float64, counts, weights []float64, outside float64) *Pair {
	from, to := binomial.Window(counts[len(counts)-1]+1, 0.5, cloneTail)
	if size := max(64, int(maxOutcome/(to-from+1))); len(counts) > size {
		stride := (len(counts) + size - 1) / size
		all, each := counts, weights
		counts, weights = nil, nil
		for i := 0; i < len(all); i += stride {
			w := 0.0
			for j := i; j < min(i+stride, len(all)); j++ {
				w += each[j]
			}
			counts, weights = append(counts, all[i]), append(weights, w)
		}
	}
	r, rest := 1/(1+math.Exp(-e0)), 1/(1+math.Exp(e0))
	out := &Pair{PInf: outside, QInf: outside}
	for i, c := range counts {
		m := c + 1
		from, to := binomial.Window(m, 0.5, cloneTail)
		b := binomial.Mass(m, from, 0.5)
		for a := from; a <= to; a++ {
			p := 2 * b * (r*a + rest*(m-a)) / m * weights[i]
			q := 2 * b * (rest*a + r*(m-a)) / m * weights[i]
			out.add(math.Log(p/q), p, q)
			b *= (m - a) / (a + 1)
		}
		out.PInf += 2 * cloneTail * weights[i]
		out.QInf += 2 * cloneTail * weights[i]
	}
	return out
}

// The pair of k-ary randomized response: of the others m - 1 send a uniform message; of
// these and the person's, a are the person's one value and b the other. A uniform place is
// the person's, so that relative to m uniform messages
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
)

// newKaryPair returns a pair above that of n reports; ok is false where that takes too
// long.
func newKaryPair(e0, n, k float64) (pair *Pair, ok bool) {
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
			w += binomial.Mass(n-1, x, g)
		}
		karyOutcomes(c+1, k, rise, w*g/(c+1), h, p, q)
	}
	// Outcomes that were left out may all give the person away. Their probability is at
	// most that of uniform messages times the largest ratio, twice over for s and for a.
	out := &Pair{}
	out.PInf = karyTail * (2 + 4*min(k, rise+1))
	out.QInf = out.PInf
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
			out.add(loss, v, v*math.Exp(-loss))
		}
	}
	return out, true
}

// karyOutcomes adds the outcomes of m messages with a >= b, at the given weight, to the
// cells of width h. Those with a < b are the same with the distributions exchanged; of a
// = b, half is each's.
func karyOutcomes(m, k, rise, weight, h float64, p, q []float64) {
	lo, hi := binomial.Window(m, 2/k, karyTail)
	ps := binomial.Mass(m, lo, 2/k)
	odds := 2 / (k - 2)
	ln := make([]float64, int(hi)+1)
	for a := range ln {
		ln[a] = math.Log1p(rise * float64(a) / m)
	}
	for s := lo; s <= hi; s++ {
		_, top := binomial.Window(s, 0.5, karyTail)
		a := math.Ceil(s / 2)
		pa := binomial.Mass(s, a, 0.5) * ps * weight
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
