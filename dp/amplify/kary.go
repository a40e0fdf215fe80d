package amplify

import (
	"math"
	"sync"

	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

// A karySum is the privacy blanket of k-ary randomized response, k >= 3 (Balle, Bell, Gascon and Nissim 2019, lemma
// 5.3): of n messages each is, with probability g = k/(e^e0 + k - 1), uniform. S ~ Bin(n, 2g/k) of these are one of the
// two values to be told apart, A ~ Bin(S, 1/2) the first of them, and R | S ~ Bin(n-S, g(1-2/k)/(1-2g/k)) are others:
//
//	delta(epsilon) = (e^e0-1)(1+e^epsilon)/n E (A - S/2 - tanh(epsilon/2)(S/2 + (S+R)/(e^e0-1)))_+.
//
// The bracket is convex and falls in R, so R is put on a coarse grid with its mean kept,
// which only raises the sum.
type karySum struct {
	e0, n, k   float64
	near, deep func() []karyRow
}

// A karyRow is a block of values of S with, for R on the grid first, first+step, ..., the
// probabilities.
type karyRow struct {
	from, to, first, step float64
	mass                  []float64
}

const (
	maxKaryRows  = 4096
	karyNearMiss = 1e-24
	karyDeepMiss = 1e-80
	// fineStep is the widest step of a grid within which adding up each value costs less than
	// two tails.
	fineStep = 400
)

func newKarySum(e0, n, k float64) *karySum {
	s := &karySum{e0: e0, n: n, k: k}
	s.near = sync.OnceValue(func() []karyRow { return s.build(karyNearMiss) })
	s.deep = sync.OnceValue(func() []karyRow { return s.build(karyDeepMiss) })
	return s
}

// build leaves out at most miss on either side.
func (s *karySum) build(miss float64) []karyRow {
	den := math.Exp(s.e0) + s.k - 1
	p2 := 2 / den
	q2 := (math.Exp(s.e0) + s.k - 3) / den
	other := (s.k - 2) / (math.Exp(s.e0) + s.k - 3) // R | S
	rest := math.Exp(s.e0) / (math.Exp(s.e0) + s.k - 3) * (1 - math.Exp(-s.e0))
	mean := s.n * p2
	r := binomial.Radius(mean*q2, miss) + 2
	lo, hi := max(0, math.Floor(mean-r)), min(s.n, math.Ceil(mean+r))
	size := max(1, math.Ceil((hi-lo+1)/maxKaryRows))
	var rows []karyRow
	for from := lo; from <= hi; from += size {
		to := min(from+size-1, hi)
		g, rel := binomial.PMF(from, s.n, p2, q2)
		mass := g
		for c := from; c < to; c++ {
			g *= (s.n - c) / (c + 1) * (p2 / q2)
			mass += g
		}
		if mass == 0 {
			continue
		}
		// Fewer others (those of the largest S) only raise the sum.
		row := karyRow{from: from, to: to}
		row.grid(s.n-to, other, rest, outward.Widened(mass, rel+outward.Summed(size)), s.n*s.k/den, miss)
		rows = append(rows, row)
	}
	return rows
}

// grid spreads mass over a grid for R ~ Bin(n, p). The step keeps the relative error
// below 4 10^-5: the logarithm of the sum bends by about z^2/total per variance of R, z^2
// = 40 say.
func (row *karyRow) grid(n, p, q, mass, total, miss float64) {
	sigma := math.Sqrt(n * p * q)
	r := binomial.Radius(n*p*q, miss)
	lo, hi := max(0, math.Floor(n*p-r)), min(n, math.Ceil(n*p+r))
	row.first, row.step = lo, max(1, math.Floor(sigma*math.Sqrt(3e-4*total/40)))
	points := int(math.Ceil((hi-lo)/row.step)) + 1
	if points == 1 {
		row.mass = []float64{mass}
		return
	}
	row.mass = make([]float64, points)
	if row.step <= fineStep {
		row.each(n, p, q, mass, hi)
		row.mass[points-1] += mass * miss // R above the grid counts as its last point
		return
	}
	// over brackets E (R - x)_+ = n p P(Bin(n-1, p) >= x) - x P(R >= x+1).
	over := func(x float64) (float64, float64) {
		l1, h1 := binomial.Tail(x, n-1, p, q)
		l2, h2 := binomial.Tail(x+1, n, p, q)
		return max(0, n*p*l1*(1-outward.Step)-x*h2), outward.Widened(n*p*h1, outward.Step) - x*l2
	}
	l0, h0 := over(lo) // at the point before; R below lo counts as lo
	l1, h1 := over(lo + row.step)
	row.mass[0] = mass * min(1, max(0, 1-(l0-h1)/row.step))
	for j := 1; j < points; j++ {
		if j == points-1 {
			// R above the grid counts as its last point.
			row.mass[j] = mass * max(0, (h0-l1)/row.step)
			break
		}
		l2, h2 := over(lo + float64(j+1)*row.step)
		row.mass[j] = mass * max(0, (h0-2*l1+h2)/row.step)
		l0, h0, l1, h1 = l1, h1, l2, h2
	}
}

// each spreads each value of R up to hi over the two points next to it.
func (row *karyRow) each(n, p, q, mass, hi float64) {
	lo, step := row.first, row.step
	top := lo + step*math.Floor((min(max(math.Floor((n+1)*p), lo), hi)-lo)/step) // near where the most is
	most, rel := binomial.PMF(top, n, p, q)
	most *= outward.Widened(mass, rel+outward.Summed(hi-lo))
	j := int((top - lo) / step)
	odds := p / q
	for at, r, g := j, top, most; r <= hi; at++ {
		sum, far := 0.0, 0.0 // of probabilities, and of these times the way from the point
		for way := 0.0; way < step && r <= hi; way++ {
			sum, far = sum+g, far+way*g
			g *= (n - r) / (r + 1) * odds
			r++
		}
		row.put(at, sum, far/step)
	}
	odds = q / p
	for at, r, g := j-1, top, most; at >= 0; at-- {
		sum, far := 0.0, 0.0
		for way := step - 1; way >= 0; way-- {
			g *= r / (n - r + 1) * odds
			sum, far = sum+g, far+way*g
			r--
		}
		row.put(at, sum, far/step)
	}
}

// put gives a point what lies between it and the next, which gets above of it.
func (row *karyRow) put(at int, sum, above float64) {
	row.mass[at] += sum - above
	if above > 0 {
		row.mass[at+1] += above
	}
}

// upper bounds delta(epsilon) from above.
func (s *karySum) upper(epsilon float64) float64 {
	if v := s.over(s.near(), karyNearMiss, epsilon); v > 1e10*karyNearMiss {
		return v
	}
	return s.over(s.deep(), karyDeepMiss, epsilon)
}

func (s *karySum) over(rows []karyRow, miss, epsilon float64) float64 {
	th := math.Tanh(epsilon / 2)
	unit := th / math.Expm1(s.e0)
	var total binomial.Sum
	for _, row := range rows {
		above := excess{c: row.to}
		for j, m := range row.mass {
			if m > 0 {
				r := row.first + float64(j)*row.step
				total.Add(m * above.of(th*row.from/2+unit*(row.from+r)))
			}
		}
	}
	// The mass outside the windows, weighted with the first value, is at most 3 miss.
	return outward.Up(total.Value()*math.Expm1(s.e0)*(1+math.Exp(epsilon))/s.n) + 3*miss
}
