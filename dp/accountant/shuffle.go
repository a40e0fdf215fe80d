package accountant

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

// A Randomizer says what is known about the local randomizer whose reports are shuffled. Only for some is more than the
// general bound proved: the proof of the stronger clone theorem (Feldman, McMillan and Talwar 2023, theorem 3.2) has an
// erratum and fails for a randomizer with outputs less likely than 1/(e^epsilon0 + 1).
type Randomizer uint8

const (
	// AnyRandomizer is any Epsilon0-DP randomizer, each chosen knowing the reports before it.
	AnyRandomizer Randomizer = iota
	// BinaryResponse is randomized response with two answers.
	BinaryResponse
	// KaryResponse is randomized response with more than two answers.
	KaryResponse
	// DeletionRAPPOR is one-hot RAPPOR that flips each bit with probability 1/(e^Epsilon0 + 1), so that Epsilon0 bounds
	// what a report says beyond no report: for ZeroOut neighbours. Under ReplaceOne it is 2 Epsilon0-DP.
	DeletionRAPPOR
)

// Shuffled is a collection of N messages, each of one person, whose origins a shuffler
// hides. N counts honest messages, the person's own included.
type Shuffled struct {
	Message Message
	N       uint64
}

func (Shuffled) event() {}

const (
	cloneTheorem    = "privacy amplification by shuffling, clones (Feldman, McMillan and Talwar 2021, theorem 3.2)"
	strongerTheorem = "privacy blanket of randomized response (Balle, Bell, Gascon and Nissim 2019), summed exactly"
)

// premise returns what is known of one message, for a relation that it is about.
func (s Shuffled) premise(n Neighbours) (Premise, error) {
	if s.Message == nil {
		return Premise{}, fmt.Errorf("%w: the messages are not stated", ErrParameter)
	}
	p, err := s.Message.Premise()
	if err != nil {
		return Premise{}, err
	}
	if !(p.Epsilon0 > 0 && p.Epsilon0 <= 50) {
		return Premise{}, parameter("epsilon0", p.Epsilon0, "above 0 and at most 50")
	}
	if s.N == 0 || s.N > maxCount {
		return Premise{}, parameter("number of reports", float64(s.N), "1 to 2*10^12")
	}
	if n != p.Neighbours {
		return Premise{}, fmt.Errorf("%w: shuffled reports of this randomizer for %v neighbours; ask about %v", ErrUnsupported, n, p.Neighbours)
	}
	return p, nil
}

// clones returns the pair of the reduction: of the other reports, C ~ Bin(N-1, p) look like either of the person's two
// values, each with probability 1/2; A of the C+1 have the first. The person has the first with probability
// e^e0/(1+e^e0), or the second.
func (s Shuffled) clones(is Premise) *clones {
	p := math.Exp(-is.Epsilon0)
	if is.Randomizer == BinaryResponse || is.Randomizer == DeletionRAPPOR {
		p = 2 / (math.Exp(is.Epsilon0) + 1)
	}
	return newClones(is.Epsilon0, float64(s.N-1), p)
}

func (s Shuffled) exact(n Neighbours, count float64) (curve, string, error) {
	p, err := s.premise(n)
	if err != nil {
		return nil, "", err
	}
	if count != 1 {
		return nil, "", fmt.Errorf("%w: no formula for several shuffled rounds", ErrUnsupported)
	}
	e0 := p.Epsilon0
	if p.Randomizer == KaryResponse {
		if float64(s.N) > 1e7 {
			return nil, "", fmt.Errorf("%w: the exact blanket of more than 10^7 reports", ErrUnsupported)
		}
		b := newBlanket(e0, float64(s.N), float64(p.K))
		return func(e float64) (lower, upper float64) {
			if e >= e0 {
				return 0, 0
			}
			return 0, b.delta(e)
		}, strongerTheorem, nil
	}
	c := s.clones(p)
	theorem, tight := cloneTheorem, false
	if p.Randomizer != AnyRandomizer {
		theorem, tight = strongerTheorem, p.Randomizer != DeletionRAPPOR
	}
	return func(e float64) (lower, upper float64) {
		if e >= e0 {
			return 0, 0
		}
		d := c.delta(e)
		_, upper = outward.Padded(d, outward.Summed(longestSum), c.outside)
		if tight && c.exact {
			lower, _ = outward.Padded(d, outward.Summed(longestSum), 0)
		}
		return lower, upper
	}, theorem, nil
}

func (s Shuffled) dominating(n Neighbours) (dominance, error) {
	p, err := s.premise(n)
	if err != nil {
		return dominance{}, err
	}
	if p.Randomizer == KaryResponse {
		if x, ok := newKaryPair(p.Epsilon0, min(float64(s.N), mostReports), float64(p.K)); ok {
			return dominance{pair: x, symmetric: true, slop: outward.Summed(longestSum), theorem: karyTheorem}, nil
		}
		p.Randomizer = AnyRandomizer // too many outcomes
	}
	c := s.clones(p)
	from, to := binomial.Window(c.c[len(c.c)-1]+1, 0.5, cloneTail)
	d := dominance{pair: c.coarse(), symmetric: true, slop: outward.Summed(to - from), theorem: cloneTheorem}
	if p.Randomizer != AnyRandomizer {
		d.theorem = strongerTheorem
	}
	return d, nil
}

// clones is the pair of counts (C, A), see Shuffled.clones. Losing clones is never better, since adding an independent
// one is post-processing: C may be rounded down.
type clones struct {
	e0      float64
	c, w    []float64 // values of C and their probabilities
	outside float64   // bounds the probability of the others
	exact   bool      // every value of C within the window stands for itself
}

const (
	cloneTail = 1e-20
	// Less is no longer summed: at most 2^64 outcomes of it are far below cloneTail. Subnormal numbers are slow, and the
	// least of them stays itself when it is made a little smaller.
	cloneFloor = 1e-290
	maxCounts  = 4096
	// longestSum bounds the steps of a recurrence over the outcomes of 10^9 coins.
	longestSum = 1e5
	// mostReports bounds the work; package amplify goes further.
	mostReports = 1e9
	maxCoarse   = 400_000 // outcomes
)

func newClones(e0, n, p float64) *clones {
	s := &clones{e0: e0, outside: 3 * cloneTail}
	n = min(n, mostReports) // a bound for fewer reports holds for more
	from, to := binomial.Window(n, p, cloneTail)
	// A sum over a takes of the order of sqrt(c) terms; keep the work in bounds.
	s.group(n, p, from, to, min(maxCounts, max(256, int(4e6/math.Sqrt(to+1)))))
	return s
}

// group puts the window's probabilities on at most size values.
func (s *clones) group(n, p, from, to float64, size int) {
	stride := math.Ceil((to - from + 1) / float64(size))
	s.exact = stride == 1
	for c := from; c <= to; c += stride {
		w := 0.0
		for x := c; x < c+stride && x <= to; x++ {
			w += binomial.PMF(n, x, p)
		}
		s.c, s.w = append(s.c, c), append(s.w, w)
	}
}

// delta sums P - e^epsilon Q over the outcomes where it is positive. With a of c+1,
//
//	P = 2 Bin(c+1, 1/2)(a) [r a + (1-r)(c+1-a)]/(c+1),  r = e^e0/(1+e^e0),
//
// and Q has r and 1-r exchanged, so the difference is linear in a times the binomial.
func (s *clones) delta(epsilon float64) float64 {
	r, rest := 1/(1+math.Exp(-s.e0)), 1/(1+math.Exp(s.e0))
	e := math.Exp(epsilon)
	gain, loss := r-e*rest, e*r-rest // per unit of a, and of c+1-a
	total := 0.0
	for i, c := range s.c {
		m := c + 1
		a := math.Floor(m*loss/(gain+loss)) + 1
		if a > m {
			continue
		}
		b := binomial.PMF(m, a, 0.5)
		sum := 0.0
		for ; a <= m; a++ {
			term := b * (a*gain - (m-a)*loss)
			sum += max(0, term)
			b *= (m - a) / (a + 1)
			if b < cloneFloor || term < sum*1e-18 {
				break
			}
		}
		total += s.w[i] * 2 * sum / m
	}
	return total
}

// coarse returns the pair as atoms, with C on few values.
func (s *clones) coarse() *atoms {
	counts, weights := s.c, s.w
	from, to := binomial.Window(counts[len(counts)-1]+1, 0.5, cloneTail)
	if size := max(64, int(maxCoarse/(to-from+1))); len(counts) > size {
		stride := (len(counts) + size - 1) / size
		counts, weights = nil, nil
		for i := 0; i < len(s.c); i += stride {
			w := 0.0
			for j := i; j < min(i+stride, len(s.c)); j++ {
				w += s.w[j]
			}
			counts, weights = append(counts, s.c[i]), append(weights, w)
		}
	}
	r, rest := 1/(1+math.Exp(-s.e0)), 1/(1+math.Exp(s.e0))
	out := &atoms{pInf: s.outside, qInf: s.outside}
	for i, c := range counts {
		m := c + 1
		from, to := binomial.Window(m, 0.5, cloneTail)
		b := binomial.PMF(m, from, 0.5)
		for a := from; a <= to; a++ {
			p := 2 * b * (r*a + rest*(m-a)) / m * weights[i]
			q := 2 * b * (rest*a + r*(m-a)) / m * weights[i]
			out.loss, out.p, out.q = append(out.loss, math.Log(p/q)), append(out.p, p), append(out.q, q)
			b *= (m - a) / (a + 1)
		}
		out.pInf += 2 * cloneTail * weights[i]
		out.qInf += 2 * cloneTail * weights[i]
	}
	out.sort()
	return out
}

// blanket is the exact privacy-blanket bound of k-ary randomized response over n reports, n - 1 of them of others. Each
// report is uniform ("blanket") with probability g = k/(e^e0 + k - 1); M ~ Bin(n, g) are, and of those a fall on the
// person's first value and b on the second:
//
//	delta = 1/n E max(0, (e^e0 - 1)(a - e^epsilon b) - M (e^epsilon - 1)).
type blanket struct {
	e0, n, k float64
	from, to float64 // of M
	first    float64 // least s = a + b
	tails    [][2][]float64
}

const blanketTail = 1e-17

// newBlanket tabulates, for each s, the tails of the fair binomial a of s from floor(s/2) on: the sums of its
// probabilities, and of them times a - s/2.
func newBlanket(e0, n, k float64) *blanket {
	x := &blanket{e0: e0, n: n, k: k}
	x.from, x.to = binomial.Window(n, k/(math.Exp(e0)+k-1), blanketTail)
	lo, _ := binomial.Window(x.from, 2/k, blanketTail)
	_, hi := binomial.Window(x.to, 2/k, blanketTail)
	x.first = lo
	for s := lo; s <= hi; s++ {
		_, top := binomial.Window(s, 0.5, blanketTail*1e-20)
		half := math.Floor(s / 2)
		size := int(top-half) + 2
		p, moment := make([]float64, size), make([]float64, size)
		b := binomial.PMF(s, half, 0.5)
		for i := range size - 1 {
			a := half + float64(i)
			p[i], moment[i] = b, b*(a-s/2)
			b *= (s - a) / (a + 1)
		}
		for i := size - 2; i >= 0; i-- {
			p[i] += p[i+1]
			moment[i] += moment[i+1]
		}
		x.tails = append(x.tails, [2][]float64{p, moment})
	}
	return x
}

// delta conditions on s = a + b, of which a is a fair binomial: a (1+e^epsilon) must exceed
// e^epsilon s + M (e^epsilon - 1)/(e^e0 - 1), so that the inner sum is a tail.
func (x *blanket) delta(epsilon float64) float64 {
	g := x.k / (math.Exp(x.e0) + x.k - 1)
	scale, e := math.Expm1(x.e0), math.Exp(epsilon)
	rise := math.Expm1(epsilon) / scale
	total := 0.0
	pm := binomial.PMF(x.n, x.from, g)
	odds := 2 / (x.k - 2)
	for m := x.from; m <= x.to; m++ {
		lo, hi := binomial.Window(m, 2/x.k, blanketTail)
		lo = max(lo, x.first)
		hi = min(hi, x.first+float64(len(x.tails)-1))
		ps := binomial.PMF(m, lo, 2/x.k)
		inner := 0.0
		for s := lo; s <= hi; s++ {
			bound := (e*s + m*rise) / (1 + e)
			t := &x.tails[int(s-x.first)]
			if i := int(math.Floor(bound)+1) - int(s)/2; i < len(t[0]) {
				inner += ps * max(0, t[1][i]-(bound-s/2)*t[0][i])
			}
			ps *= (m - s) / (s + 1) * odds
		}
		total += pm * inner
		pm *= (x.n - m) / (m + 1) * g / (1 - g)
	}
	// Outside the windows the value is at most e^e0 M, and M at most n.
	return min(1, total*(1+e)*scale/x.n*(1+outward.Summed(10*longestSum))+6*blanketTail*math.Exp(x.e0))
}
