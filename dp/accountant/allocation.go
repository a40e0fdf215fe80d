package accountant

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// allocation is Event released Steps times, where each record takes part in Picks of the
// releases, chosen uniformly and kept secret: random allocation, balls in bins. (Random
// check-ins, where others fill a slot, are checkedIn.) As for poissonSample, the number of
// records in each release must be hidden. It is for AddRemove and ZeroOut neighbours.
type allocation struct {
	Event event
	// Steps is how many releases there are; Picks how many of them a record is in, 1 or
	// more.
	Steps, Picks uint64
}

func (allocation) event() {}

const (
	allocationTheorem = "random allocation (Feldman and Shenfeld 2025; mean-preserving grid, docs/proofs/allocation.md)"
	maxSteps          = 1 << 30
)

func (a allocation) check(n release.Neighbours) error {
	if a.Steps == 0 || a.Steps > maxSteps {
		return parameter("number of steps", float64(a.Steps), "1 to 2^30")
	}
	if a.Picks == 0 || a.Picks > a.Steps {
		return parameter("number of picks", float64(a.Picks), "1 up to the number of steps")
	}
	if n == release.ReplaceOne {
		return fmt.Errorf("%w: random allocation for replace-one neighbours", release.ErrUnsupported)
	}
	return nil
}

// picksMany reports whether a record is in more than maxPicked steps, but not in all:
// then only something worse is accounted for, which bounds from above.
func picksMany(e event) bool {
	switch e := e.(type) {
	case selfCompose:
		return picksMany(e.Event)
	case poissonSample:
		return picksMany(e.Event)
	case composition:
		return slices.ContainsFunc(e, picksMany)
	case allocation:
		return e.Picks > maxPicked && e.Picks < e.Steps || picksMany(e.Event)
	}
	return false
}

func (a allocation) dominating(n release.Neighbours) (dominance, error) {
	if err := a.check(n); err != nil {
		return dominance{}, err
	}
	inner, ok := a.Event.(dominated)
	if !ok {
		return dominance{}, fmt.Errorf("%w: allocation of %s", release.ErrUnsupported, nameOf(a.Event))
	}
	d, err := inner.dominating(n)
	if err != nil {
		return dominance{}, err
	}
	if a.Picks > 1 && a.Steps > 1 && d.symmetric && d.below == nil {
		return a.several(d, n)
	}
	if d, err = d.allocated(a.Steps); err != nil {
		return dominance{}, fmt.Errorf("allocation of %s: %w", nameOf(a.Event), err)
	}
	return d, nil
}

// allocated returns the pair of one of steps releases of which d is each one's.
func (d dominance) allocated(steps uint64) (dominance, error) {
	if steps == 1 {
		return d, nil
	}
	if !d.symmetric || d.below != nil {
		return dominance{}, fmt.Errorf("%w: random allocation where the two directions differ", release.ErrUnsupported)
	}
	if e0, ok := binary(d.pair); ok {
		exact := responseAllocation(e0, float64(steps))
		out := dominance{pair: exact, attained: d.attained, slop: outward.Summed(float64(len(exact.loss))), theorem: allocationTheorem}
		if exact.pInf > 0 {
			out.below = exact.known(0, 0)
		}
		return out, nil
	}
	above, below, err := allocateOnce(d.pair, steps)
	if err != nil {
		return dominance{}, err
	}
	return dominance{pair: above, below: below, attained: d.attained, theorem: allocationTheorem}, nil
}

// binary reports whether x is binary randomized response, and its epsilon.
func binary(x pair) (float64, bool) {
	a, ok := x.(*atoms)
	if !ok || len(a.loss) != 2 || a.pInf != 0 || a.qInf != 0 || a.loss[0] != -a.loss[1] {
		return 0, false
	}
	return a.loss[1], true
}

// responseAllocation is 1 of t answers of binary randomized response. The likelihood
// ratio is S = (X e^e0 + (t-X) e^-e0)/t with X ~ Bin(t, 1/(1+e^e0)) where the record is
// absent.
func responseAllocation(e0, t float64) *atoms {
	a := &atoms{}
	p := 1 / (1 + math.Exp(e0))
	width := math.Sqrt(2*t*p*45) + 60 // Chernoff: beyond, less than e^-45
	from, to := max(0, math.Floor(t*p-width)), min(t, math.Ceil(t*p+width))
	rise := math.Exp(-e0) // p/(1-p)
	logW := lnBinomial(t, from) + from*math.Log(p) + (t-from)*math.Log1p(-p)
	w := math.Exp(logW)
	pMass, qMass := 0.0, 0.0
	for x := from; x <= to; x++ {
		s := (x*math.Exp(e0) + (t-x)*math.Exp(-e0)) / t
		a.loss, a.p, a.q = append(a.loss, math.Log(s)), append(a.p, w*s), append(a.q, w)
		pMass += w * s
		qMass += w
		w *= (t - x) / (x + 1) * rise
	}
	// The recurrence is exact up to a common factor, which normalising removes.
	for i := range a.p {
		a.p[i] /= pMass
		a.q[i] /= qMass
	}
	if from > 0 || to < t {
		a.pInf, a.qInf = spreadTail, spreadTail
	}
	a.a, a.b = a.loss[0], a.loss[0]
	return a
}

// lnBinomial returns ln C(n, k).
func lnBinomial(n, k float64) float64 {
	a, _ := math.Lgamma(n + 1)
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(n - k + 1)
	return a - b - c
}

// A spread is a distribution of the likelihood ratio S >= 0 under Q, on the grid
// e^((first+i) h), and with an atom at 0. Its mean and the excess, P-mass that counts as
// infinitely telling, add up to 1.
type spread struct {
	h            float64
	first        int
	q            []float64
	value        []float64 // nil: the grid points; else where the mass of each cell lies
	zero, excess float64
}

const (
	maxSpread  = 8192
	spreadTail = 1e-18
)

// allocate returns pairs above and below 1-of-t allocation of a pair: S = (1/t) sum
// e^(l_i), l_i independent under Q; delta is E max(0, S - e^epsilon) when the record is
// removed and E max(0, 1 - e^epsilon S) when it is added. Both are expectations of convex
// functions of S, so spreading masses with their mean kept bounds both from above, and
// merging them bounds both from below.
func allocate(x pair, t uint64) (above, below *atoms, err error) {
	lo, hi := x.reach(spreadTail)
	h := (hi - lo) / (maxSpread - 2)
	if !(hi-lo < 1400 && hi < 700 && hi-lo > 1e-9) {
		return nil, nil, fmt.Errorf("%w: allocation of steps whose losses spread this widely or this little", release.ErrUnsupported)
	}
	h = math.Exp2(math.Floor(math.Log2(h)) + 1)
	first := int(math.Floor(lo / h))
	n := int(math.Ceil(hi/h)) - first
	b, err := spreadBins(x, h, first, n)
	if err != nil {
		return nil, nil, err
	}
	up, down := b.spread(), b.merged()
	return power2(up, t).atoms(), power2(down, t).atoms(), nil
}

// allocations remembers what allocate said of Gaussian steps last: a question comes again
// with another delta, direction, rate or number of rounds, and the pairs do not change.
var allocations struct {
	sync.Mutex
	next int
	kept [8]struct {
		mu           float64
		t            uint64
		above, below *atoms
	}
}

// allocateOnce is allocate, and the same pairs for the same Gaussian steps. They are shared
// and must not be written to.
func allocateOnce(x pair, t uint64) (above, below *atoms, err error) {
	g, ok := x.(normalPair)
	if !ok {
		return allocate(x, t)
	}
	c := &allocations
	c.Lock()
	for _, k := range c.kept {
		if k.above != nil && k.mu == g.mu && k.t == t {
			c.Unlock()
			return k.above, k.below, nil
		}
	}
	c.Unlock()
	if above, below, err = allocate(x, t); err != nil {
		return nil, nil, err
	}
	c.Lock()
	defer c.Unlock()
	k := &c.kept[c.next%len(c.kept)]
	k.mu, k.t, k.above, k.below = g.mu, t, above, below
	c.next++
	return above, below, nil
}

// spreadBins cuts x at first h, ..., (first+n) h.
func spreadBins(x pair, h float64, first, n int) (*spreadBase, error) {
	edges := make([]float64, n+3)
	edges[0], edges[n+2] = math.Inf(-1), math.Inf(1)
	for i := 0; i <= n; i++ {
		edges[i+1] = float64(first+i) * h
	}
	p, q := make([]float64, n+2), make([]float64, n+2)
	x.masses(edges, p, q)
	x.points(func(loss, pm, qm float64) {
		i := int(min(max(math.Ceil((loss-edges[1])/h), 0), float64(n+1)))
		p[i] += pm
		q[i] += qm
	})
	pInf, qInf := x.infinite()
	return &spreadBase{h: h, first: first, p: p, q: q, pInf: pInf, qInf: qInf}, nil
}

// A spreadBase has the masses below, in n intervals, and above.
type spreadBase struct {
	h          float64
	first      int
	p, q       []float64
	pInf, qInf float64
}

// spread moves the mass of each interval to its ends, keeping mass and mean; below the
// grid to 0 and its first point; above, to its last point, and the rest of the mean to
// the excess.
func (b *spreadBase) spread() *spread {
	n := len(b.p) - 2
	s := &spread{h: b.h, first: b.first, q: make([]float64, n+1), zero: b.qInf, excess: b.pInf}
	for i := 0; i < n; i++ {
		p, q := b.p[i+1], b.q[i+1]
		lo := math.Exp(float64(b.first+i) * b.h)
		v := min(max((p-q*lo)/(lo*math.Expm1(b.h)), 0), q)
		s.q[i+1] += v
		s.q[i] += q - v
		if q < leastNormal { // and has lost digits
			s.excess += max(0, p-lo*(q+v*math.Expm1(b.h)))
		}
	}
	v := min(b.p[0]*math.Exp(-float64(b.first)*b.h), b.q[0])
	s.q[0] += v
	s.zero += b.q[0] - v
	s.q[n] += b.q[n+1]
	s.excess += max(0, b.p[n+1]-b.q[n+1]*math.Exp(float64(b.first+n)*b.h))
	return s
}

// merged moves the mass of each interval to its mean; of the ends, to 0 and to the
// excess, where it does least.
func (b *spreadBase) merged() *spread {
	n := len(b.p) - 2
	s := &spread{h: b.h, first: b.first, q: make([]float64, n+1), value: make([]float64, n+1), zero: b.qInf, excess: b.pInf}
	for i := 0; i < n; i++ {
		if p, q := b.p[i+1], b.q[i+1]; q > 0 {
			s.q[i], s.value[i] = q, p/q
			if q < leastNormal { // too small for the quotient
				s.value[i] = math.Exp(float64(b.first+i) * b.h)
			}
		}
	}
	// The two ends are merged with their neighbours.
	join := func(i int, p, q float64) {
		if q += s.q[i]; q > 0 {
			s.value[i] = (p + s.q[i]*s.value[i]) / q
			s.q[i] = q
		}
	}
	join(0, b.p[0], b.q[0])
	join(n, b.p[n+1], b.q[n+1])
	return s
}

// atoms returns the pair of which s is the distribution of the likelihood ratio.
func (s *spread) atoms() *atoms {
	a := &atoms{pInf: s.excess, qInf: s.zero}
	for i, q := range s.q {
		if q == 0 {
			continue
		}
		l := float64(s.first+i) * s.h
		v := math.Exp(l)
		if s.value != nil {
			v = s.value[i]
			l = math.Log(v)
		}
		if v > 0 {
			a.loss, a.p, a.q = append(a.loss, l), append(a.p, q*v), append(a.q, q)
		}
	}
	if s.value == nil {
		a.a, a.b = a.loss[0], a.loss[0]+s.h
	} else {
		a.sort()
		a.a, a.b = a.loss[0], a.loss[0]
	}
	return a
}

// power2 returns the distribution of the mean of t independent copies, by the binary
// digits of t from the left.
func power2(base *spread, t uint64) *spread {
	s, m := base, uint64(1)
	top := 63
	for t>>top == 0 {
		top--
	}
	for i := top - 1; i >= 0; i-- {
		s = s.trim().refine()
		s = combine(s, s, 0.5)
		m *= 2
		if t>>i&1 == 1 {
			s = s.trim()
			s = combine(base.at(s.h), s, 1/float64(m+1))
			m++
		}
	}
	return s.trim()
}

// at returns s on a finer grid, of which its own is a part.
func (s *spread) at(h float64) *spread {
	r := int(math.Round(s.h / h))
	if r == 1 {
		return s
	}
	f := &spread{h: h, first: s.first * r, zero: s.zero, excess: s.excess}
	f.q = make([]float64, (len(s.q)-1)*r+1)
	if s.value != nil {
		f.value = make([]float64, len(f.q))
	}
	for i, q := range s.q {
		f.q[i*r] = q
		if s.value != nil {
			f.value[i*r] = s.value[i]
		}
	}
	return f
}

// refine halves the step while there is room, at most twice.
func (s *spread) refine() *spread {
	for range 2 {
		if 2*len(s.q) > maxSpread {
			break
		}
		s = s.at(s.h / 2)
	}
	return s
}

// trim cuts ends of little mass under P and under Q off: the top's to the last point kept
// and the excess, the bottom's to 0 and the first point kept. Merged cells keep their
// mass and mean.
func (s *spread) trim() *spread {
	at := func(i int) float64 {
		if s.value != nil {
			return s.value[i]
		}
		return math.Exp(float64(s.first+i) * s.h)
	}
	hi, lo := len(s.q)-1, 0
	for tail := 0.0; hi > 0; hi-- {
		if tail += s.q[hi] * (1 + at(hi)); tail > spreadTail {
			break
		}
	}
	for tail := 0.0; lo < hi; lo++ {
		if tail += s.q[lo] * max(1, at(lo)); tail > spreadTail {
			break
		}
	}
	t := &spread{h: s.h, first: s.first + lo, zero: s.zero, excess: s.excess}
	t.q = append([]float64(nil), s.q[lo:hi+1]...)
	if s.value != nil {
		t.value = append([]float64(nil), s.value[lo:hi+1]...)
	}
	move := func(i, to int) {
		q := s.q[i]
		if q == 0 {
			return
		}
		v := at(i)
		switch {
		case s.value != nil:
			k := to - lo
			if sum := t.q[k] + q; sum > 0 {
				t.value[k] = (t.q[k]*t.value[k] + q*v) / sum
				t.q[k] = sum
			}
		case i > to:
			t.q[to-lo] += q
			t.excess += q * (v - at(to))
		default:
			w := q * v / at(to)
			t.q[0] += w
			t.zero += q - w
		}
	}
	for i := hi + 1; i < len(s.q); i++ {
		move(i, hi)
	}
	for i := 0; i < lo; i++ {
		move(i, lo)
	}
	return t
}

// combine returns the distribution of w X + (1-w) Y for independent X and Y on grids of
// equal step. Only the difference of the indices decides where the result falls:
// w e^i + (1-w) e^j = e^j (1 - w + w e^(i-j)).
func combine(x, y *spread, w float64) *spread {
	h := x.h
	// The result lies between the smaller first point (or less, for zeros) and the larger
	// last point.
	lowX, lowY := math.Log(w)/h, math.Log1p(-w)/h
	first := int(math.Floor(min(float64(x.first)+lowX, float64(y.first)+lowY))) - 1
	last := max(x.first+len(x.q), y.first+len(y.q))
	out := &spread{h: h, first: first, q: make([]float64, last-first+2)}
	merged := x.value != nil
	var mean []float64
	if merged {
		mean = make([]float64, len(out.q))
	}
	out.excess = w*x.excess + (1-w)*y.excess
	out.zero = x.zero * y.zero
	if y.zero > 0 {
		for i, p := range x.q {
			out.put(mean, x, i, w, p*y.zero)
		}
	}
	// Diagonal by diagonal: d is the index of Y less that of X. A mean of a distribution
	// with itself is symmetric in d.
	dMin := y.first - (x.first + len(x.q) - 1)
	dMax := y.first + len(y.q) - 1 - x.first
	same := x == y && w == 0.5
	if same {
		dMin = 0
	}
	for d := dMin; d <= dMax; d++ {
		k, share := place(w, 1-w, float64(d), h)
		off := d + x.first - y.first // j = i + off
		from, to := max(0, -off), min(len(x.q), len(y.q)-off)
		if from >= to {
			continue
		}
		twice := 1.0
		if same && d > 0 {
			twice = 2
		}
		xs := x.q[from:to]
		ys := y.q[from+off : to+off][:len(xs)] // of as many, so that no index below is checked
		at := x.first + from + k - first
		if !merged {
			os := out.q[at : at+len(xs)+1]
			carry := 0.0
			share *= twice
			rest := twice - share
			sums := os[:len(xs)]
			for i, p := range xs {
				m := p * ys[i]
				sums[i] += m*rest + carry
				carry = m * share
			}
			os[len(xs)] += carry
			continue
		}
		os, ms := out.q[at:][:len(xs)], mean[at:][:len(xs)]
		xv, yv := x.value[from:][:len(xs)], y.value[from+off:][:len(xs)]
		for i, p := range xs {
			m := p * ys[i] * twice
			os[i] += m
			ms[i] += m * (w*xv[i] + (1-w)*yv[i])
		}
	}
	if x.zero > 0 {
		for j, q := range y.q {
			out.put(mean, y, j, 1-w, q*x.zero)
		}
	}
	if merged {
		out.value = mean
		for k, m := range out.q {
			if m > 0 {
				mean[k] /= m
			}
		}
	}
	return out
}

// place finds k and the share of k+1 so that w + u e^(dh) lies between e^(kh) and
// e^((k+1)h) in that proportion.
func place(w, u, d, h float64) (k int, share float64) {
	l := d * h
	var v float64 // ln(w + u e^l)
	if l > 0 {
		v = l + math.Log(u+w*math.Exp(-l))
	} else {
		v = math.Log(w + u*math.Exp(l))
	}
	f := math.Floor(v / h)
	return int(f), min(max(math.Expm1(v-f*h)/math.Expm1(h), 0), 1)
}

// put adds the mass of weight times point i of s.
func (s *spread) put(mean []float64, from *spread, i int, weight, mass float64) {
	if mean != nil {
		v := weight * from.value[i]
		k := max(0, from.first+i-s.first+int(math.Floor(math.Log(weight)/s.h)))
		s.q[k] += mass
		mean[k] += mass * v
		return
	}
	at := float64(from.first+i-s.first) + math.Log(weight)/s.h
	f := math.Floor(at)
	share := math.Expm1((at-f)*s.h) / math.Expm1(s.h)
	s.q[int(f)] += mass * (1 - share)
	s.q[int(f)+1] += mass * share
}
