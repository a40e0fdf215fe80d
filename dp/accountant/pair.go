package accountant

import (
	"cmp"
	"math"
	"slices"
)

// A pair is two distributions P and Q of one outcome, seen through the privacy loss
// ln(P/Q). A pair dominates a mechanism if no neighbours are easier to tell apart;
// dominating pairs compose (Zhu, Dong and Wang 2022, theorem 10).
type pair interface {
	// masses sets p[i] and q[i] to the probabilities of a loss in (edges[i], edges[i+1]],
	// to a relative error of at most massError, without the atoms. Edges ascend and may
	// be infinite; losses that are themselves infinite do not count.
	masses(edges, p, q []float64)
	// points calls f with each atom: its loss, and its probabilities under P and Q.
	points(f func(loss, p, q float64))
	// infinite returns the probability under P of outcomes that Q never has, and the
	// other way round.
	infinite() (p, q float64)
	// reach returns bounds beyond which a finite loss has probability at most tail on
	// each side, under P and under Q.
	reach(tail float64) (lo, hi float64)
	// anchors returns two losses that a grid should have among its points, because there
	// are atoms or ends of the distribution there. They may be equal.
	anchors() (a, b float64)
}

// massError bounds the relative error of masses: true and computed pairs are within a
// factor e^(+-massError) of each other, outcome by outcome, which the composition
// charges.
const massError = 1e-13

// swapped is (Q, P).
type swapped struct{ pair }

func (s swapped) masses(edges, p, q []float64) {
	n := len(edges)
	back := make([]float64, n)
	for i, e := range edges {
		back[n-1-i] = -e
	}
	s.pair.masses(back, q, p)
	reverse(p)
	reverse(q)
}

func (s swapped) points(f func(loss, p, q float64)) {
	s.pair.points(func(loss, p, q float64) { f(-loss, q, p) })
}

func (s swapped) infinite() (p, q float64) {
	q, p = s.pair.infinite()
	return p, q
}

func (s swapped) reach(tail float64) (lo, hi float64) {
	lo, hi = s.pair.reach(tail)
	return -hi, -lo
}

func (s swapped) anchors() (a, b float64) {
	b, a = s.pair.anchors()
	return -a, -b
}

func reverse(x []float64) {
	for i, j := 0, len(x)-1; i < j; i, j = i+1, j-1 {
		x[i], x[j] = x[j], x[i]
	}
}

// poisson is ((1-rate) Q + rate P, Q): one person's record, which makes P out of Q, is
// kept with probability rate. It dominates the sampled mechanism when that record is
// removed, and swapped when it is added (Zhu, Dong and Wang 2022, theorem 11).
type poisson struct {
	pair
	rate float64
}

// maxExp is a loss of which e^loss is far from overflowing, and 1 nothing beside it.
const maxExp = 600

// sampledLoss returns ln(1 - rate + rate e^l): what becomes of a loss when a record is
// kept with probability rate.
func sampledLoss(l, rate float64) float64 {
	if l > maxExp {
		return logAdd(l+math.Log(rate), math.Log1p(-rate))
	}
	return math.Log1p(rate * math.Expm1(l))
}

// unsampledLoss is the inverse of sampledLoss; -infinity below its range.
func unsampledLoss(l, rate float64) float64 {
	if l > 1 {
		return l - math.Log(rate) + math.Log1p(-(1-rate)*math.Exp(-l))
	}
	x := math.Expm1(l) / rate
	if x <= -1 {
		return math.Inf(-1)
	}
	return math.Log1p(x)
}

// base maps a loss of the sampled pair to one of the pair itself.
func (s poisson) base(l float64) float64 { return unsampledLoss(l, s.rate) }

func (s poisson) masses(edges, p, q []float64) {
	inner := make([]float64, len(edges))
	for i, e := range edges {
		inner[i] = s.base(e)
	}
	s.pair.masses(inner, p, q)
	for i := range p {
		p[i] = (1-s.rate)*q[i] + s.rate*p[i]
	}
}

func (s poisson) points(f func(loss, p, q float64)) {
	if _, never := s.pair.infinite(); never > 0 { // outcomes that P never has now have the least loss
		f(math.Log1p(-s.rate), (1-s.rate)*never, never)
	}
	s.pair.points(func(loss, p, q float64) { f(s.loss(loss), (1-s.rate)*q+s.rate*p, q) })
}

func (s poisson) infinite() (p, q float64) {
	p, q = s.pair.infinite()
	if s.rate < 1 {
		q = 0
	}
	return s.rate * p, q
}

func (s poisson) reach(tail float64) (lo, hi float64) {
	lo, hi = s.pair.reach(tail)
	if _, never := s.pair.infinite(); never > 0 {
		lo = math.Inf(-1)
	}
	return s.loss(lo), s.loss(hi)
}

// loss maps a loss of the pair itself to one of the sampled pair.
func (s poisson) loss(l float64) float64 { return sampledLoss(l, s.rate) }

func (s poisson) anchors() (a, b float64) {
	if a, b = s.pair.anchors(); b > a && a == -b { // two atoms
		return s.loss(a), s.loss(b)
	}
	a = math.Log1p(-s.rate) // outcomes that P hardly ever has crowd here
	return a, a
}

// normalPair is N(mu, 1) against N(0, 1).
type normalPair struct{ mu float64 }

func (g normalPair) masses(edges, p, q []float64) {
	x := make([]float64, len(edges))
	for i, l := range edges {
		x[i] = l/g.mu + g.mu/2
	}
	for i := range p {
		p[i] = normalInterval(x[i]-g.mu, x[i+1]-g.mu)
		q[i] = normalInterval(x[i], x[i+1])
	}
}

func (normalPair) points(func(loss, p, q float64)) {}

func (normalPair) infinite() (p, q float64) { return 0, 0 }

func (normalPair) anchors() (a, b float64) { return 0, 0 }

func (g normalPair) reach(tail float64) (lo, hi float64) {
	z := tailQuantile(tail)
	return -g.mu*z - g.mu*g.mu/2, g.mu*z + g.mu*g.mu/2
}

// tailQuantile returns a z with P(N(0,1) > z) <= tail.
func tailQuantile(tail float64) float64 { return math.Sqrt(max(0, -2*math.Log(2*tail))) }

// normalInterval returns P(a < N(0,1) <= b).
func normalInterval(a, b float64) float64 {
	if a >= b {
		return 0
	}
	d, m := b-a, a+(b-a)/2
	switch {
	case d*(1+math.Abs(m)) < 0.03: // the midpoint rule with two corrections
		m2, d2 := m*m, d*d
		return math.Exp(-m2/2) / math.Sqrt(2*math.Pi) * d * (1 + (m2-1)*d2/24 + (m2*m2-6*m2+3)*d2*d2/1920)
	case a > 0:
		return normalTail(a) - normalTail(b)
	case b < 0:
		return normalTail(-b) - normalTail(-a)
	}
	return (math.Erf(b/math.Sqrt2) + math.Erf(-a/math.Sqrt2)) / 2
}

// normalReplace is (1-rate) N(0,1) + rate N(mu,1) against (1-rate) N(0,1) + rate
// N(-mu,1): one of two opposite records is kept with probability rate. It is its own
// mirror image.
type normalReplace struct{ mu, rate float64 }

func (g normalReplace) loss(x float64) float64 {
	side := func(x float64) float64 { return sampledLoss(g.mu*x-g.mu*g.mu/2, g.rate) }
	return side(x) - side(-x)
}

// outcome inverts loss: with y = e^(mu x) and c = e^(-mu^2/2), r c y^2 - (1-r)(e^l - 1) y - e^l r c = 0.
func (g normalReplace) outcome(l float64) float64 {
	if math.IsInf(l, 0) {
		return l
	}
	if l < 0 {
		return -g.outcome(-l)
	}
	// Divided by e^l, and in units that keep c from underflowing: y = w/c.
	r, m := g.rate, math.Exp(-l)
	b := (1 - r) * (1 - m)
	c2 := math.Exp(-g.mu * g.mu)
	w := (b + math.Sqrt(b*b+4*r*r*c2*m)) / (2 * r * m)
	if l > 600 {
		return (l + math.Log(max(1-r, 1e-300)/r) + g.mu*g.mu/2) / g.mu
	}
	return (math.Log(w) + g.mu*g.mu/2) / g.mu
}

func (g normalReplace) masses(edges, p, q []float64) {
	x := make([]float64, len(edges))
	for i, l := range edges {
		x[i] = g.outcome(l)
	}
	for i := range p {
		mid := (1 - g.rate) * normalInterval(x[i], x[i+1])
		p[i] = mid + g.rate*normalInterval(x[i]-g.mu, x[i+1]-g.mu)
		q[i] = mid + g.rate*normalInterval(x[i]+g.mu, x[i+1]+g.mu)
	}
}

func (normalReplace) points(func(loss, p, q float64)) {}

func (normalReplace) infinite() (p, q float64) { return 0, 0 }

func (normalReplace) anchors() (a, b float64) { return 0, 0 }

func (g normalReplace) reach(tail float64) (lo, hi float64) {
	hi = g.loss(tailQuantile(tail) + g.mu)
	return -hi, hi
}

// laplacePair is the Laplace distribution at 0 against the one at mu, both of scale 1.
type laplacePair struct{ mu float64 }

func (g laplacePair) masses(edges, p, q []float64) {
	for i := range p {
		// The loss mu - 2x falls over 0 <= x <= mu and is constant outside.
		a, b := max(edges[i], -g.mu), min(edges[i+1], g.mu)
		p[i], q[i] = 0, 0
		if a < b {
			x, d := (g.mu-b)/2, (b-a)/2
			p[i] = math.Exp(-x) * -math.Expm1(-d) / 2
			q[i] = math.Exp(x-g.mu) * math.Expm1(d) / 2
		}
	}
}

func (g laplacePair) points(f func(loss, p, q float64)) {
	f(-g.mu, math.Exp(-g.mu)/2, 0.5)
	f(g.mu, 0.5, math.Exp(-g.mu)/2)
}

func (laplacePair) infinite() (p, q float64) { return 0, 0 }

func (g laplacePair) reach(float64) (lo, hi float64) { return -g.mu, g.mu }

func (g laplacePair) anchors() (a, b float64) { return -g.mu, g.mu }

// atoms is a discrete pair: losses ascend, and q[i] = p[i] e^-loss[i].
type atoms struct {
	loss, p, q []float64
	pInf, qInf float64
	a, b       float64 // anchors
}

// known returns a pair below a: without the tails that a counts as infinitely telling
// because they were not looked at, but for what truly is.
func (a *atoms) known(pInf, qInf float64) *atoms {
	b := *a
	b.pInf, b.qInf = pInf, qInf
	return &b
}

func (a *atoms) anchors() (x, y float64) { return a.a, a.b }

// sort orders the atoms by loss.
func (a *atoms) sort() {
	type atom struct{ loss, p, q float64 }
	all := make([]atom, len(a.loss))
	for i := range all {
		all[i] = atom{a.loss[i], a.p[i], a.q[i]}
	}
	slices.SortFunc(all, func(x, y atom) int { return cmp.Compare(x.loss, y.loss) })
	for i, x := range all {
		a.loss[i], a.p[i], a.q[i] = x.loss, x.p, x.q
	}
}

func (a *atoms) masses(_, p, q []float64) {
	clear(p)
	clear(q)
}

func (a *atoms) points(f func(loss, p, q float64)) {
	for i, l := range a.loss {
		f(l, a.p[i], a.q[i])
	}
}

func (a *atoms) infinite() (p, q float64) { return a.pInf, a.qInf }

func (a *atoms) reach(tail float64) (lo, hi float64) {
	i, j := 0, len(a.loss)-1
	for s, t := 0.0, 0.0; i < j; i++ {
		if s, t = s+a.p[i], t+a.q[i]; s > tail || t > tail {
			break
		}
	}
	for s, t := 0.0, 0.0; i < j; j-- {
		if s, t = s+a.p[j], t+a.q[j]; s > tail || t > tail {
			break
		}
	}
	return a.loss[i], a.loss[j]
}

// responsePair is k-ary randomized response at e0: the loss is e0, -e0, or 0 for the
// answers that are neither.
func responsePair(e0 float64, k float64) *atoms {
	z := 1 + (k-1)*math.Exp(-e0)
	hi, lo := 1/z, math.Exp(-e0)/z
	a := &atoms{loss: []float64{-e0, e0}, p: []float64{lo, hi}, q: []float64{hi, lo}, a: -e0, b: e0}
	if k > 2 {
		rest := (k - 2) * lo
		a = &atoms{loss: []float64{-e0, 0, e0}, p: []float64{lo, rest, hi}, q: []float64{hi, rest, lo}, a: -e0, b: 0}
	}
	return a
}

// approxPair dominates every (epsilon, delta)-DP mechanism.
func approxPair(epsilon, delta float64) *atoms {
	a := responsePair(epsilon, 2)
	for i := range a.p {
		a.p[i] *= 1 - delta
		a.q[i] *= 1 - delta
	}
	a.pInf, a.qInf = delta, delta
	return a
}

// discreteLaplacePair shifts noise of rate 1/scale by d.
func discreteLaplacePair(rate, d float64) *atoms {
	a := &atoms{a: -rate * d, b: -rate*d + 2*rate} // losses are 2 rate apart, the least one included
	if d == 1 {
		a.b = rate
	}
	z := 1 + math.Exp(-rate) // times 1/(1-e^-rate), the total weight
	add := func(loss, p, q float64) {
		a.loss, a.p, a.q = append(a.loss, loss), append(a.p, p), append(a.q, q)
	}
	// y >= d, then d-1 down to 1, then y <= 0.
	add(-rate*d, math.Exp(-rate*d)/z, 1/z)
	w := -math.Expm1(-rate) / z
	for y := d - 1; y >= 1; y-- {
		add(rate*(d-2*y), w*math.Exp(-rate*y), w*math.Exp(-rate*(d-y)))
	}
	add(rate*d, 1/z, math.Exp(-rate*d)/z)
	return a
}

// pair turns the term-by-term lattice into a pair.
func (l *lattice) pair() *atoms {
	n := len(l.pmf)
	a := &atoms{loss: make([]float64, 0, n), p: make([]float64, 0, n), q: make([]float64, 0, n)}
	shift := int(l.k * l.d)
	a.a = l.k * l.d * l.d / (2 * l.s2)
	a.b = a.a + l.d/l.s2 // the distance of neighbouring losses
	for i, p := range l.pmf {
		z := float64(i - n/2)
		loss := l.d * (l.k*l.d + 2*z) / (2 * l.s2)
		q := 0.0
		if i+shift < n { // P(z) e^-loss is the mass at z + kd
			q = l.pmf[i+shift]
		}
		a.loss, a.p, a.q = append(a.loss, loss), append(a.p, p), append(a.q, q)
	}
	return a
}
