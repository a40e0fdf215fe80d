package accountant

import (
	"math"

	"github.com/starling-agg/starling/internal/outward"
)

// A lattice is the pair of distributions that the exact discrete Gaussian mechanism makes
// of neighbours: k coordinates shifted by d each, every coordinate with noise N_Z(0, s2).
// The likelihood ratio depends only on the sum z of the coordinates' noise (with signs
// turned towards the shift), a sum of k discrete Gaussians:
//
//	loss(z) = (k d^2 + 2 d z)/(2 s2),  delta(epsilon) = sum over z of P(z) max(0, 1 - e^(epsilon - loss(z))).
//
// The distribution of z is N_Z(0, k s2) up to a factor within e^(+-slop), see
// docs/proofs/discrete-gaussian-sums.md.
type lattice struct {
	k, d, s2 float64
	v        float64   // k s2
	slop     float64   // 0 where pmf is exact
	pmf      []float64 // P(z) for z = -len/2 .. len/2; nil when v is large
}

const (
	// Up to this variance the sum over z is taken term by term.
	maxDirectVariance = 128 * 128
	// Below this variance of a coordinate the distribution of z is not close enough to a
	// discrete Gaussian and is convolved.
	minSmoothVariance = 4
	// Up to this variance of z convolution is quick.
	maxConvolved = 1024
)

func newLattice(k, d, s2 float64) *lattice {
	l := &lattice{k: k, d: d, s2: s2, v: k * s2}
	switch {
	case k == 1 && l.v <= maxDirectVariance:
		l.pmf = gaussianPMF(s2)
	case s2 < minSmoothVariance && l.v <= maxConvolved:
		l.pmf = convolvePower(gaussianPMF(s2), int(k), 2*int(40*math.Sqrt(l.v)+3)+1)
	default:
		l.slop = latticeSlop(k, s2)
		if l.v <= maxDirectVariance {
			l.pmf = gaussianPMF(l.v)
		}
	}
	return l
}

// gaussianPMF returns N_Z(0, v) on -r..r with r > 40 sigma, where e^(-z^2/2v) has
// underflowed.
func gaussianPMF(v float64) []float64 {
	r := int(40*math.Sqrt(v)) + 2
	p := make([]float64, 2*r+1)
	sum := 0.0
	for z := -r; z <= r; z++ {
		p[z+r] = math.Exp(-float64(z) * float64(z) / (2 * v))
		sum += p[z+r]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// convolvePower returns the k-fold convolution of the symmetric p, cut to at most size
// entries around 0.
func convolvePower(p []float64, k, size int) []float64 {
	var out []float64
	for ; k > 0; k >>= 1 {
		if k&1 == 1 {
			if out == nil {
				out = p
			} else {
				out = convolve(out, p, size)
			}
		}
		if k > 1 {
			p = convolve(p, p, size)
		}
	}
	return out
}

// convolve returns the convolution of two symmetric sequences of odd length, cut to at
// most size entries around 0.
func convolve(a, b []float64, size int) []float64 {
	n := len(a) + len(b) - 1
	out := make([]float64, n)
	for i, x := range a {
		if x < 1e-320 {
			continue
		}
		o := out[i : i+len(b)]
		for j, y := range b {
			o[j] += x * y
		}
	}
	if cut := (n - size) / 2; cut > 0 {
		out = out[cut : n-cut]
	}
	return out
}

// latticeSlop bounds |ln P(z)/N_Z(z; k s2)| for the sum of k discrete Gaussians of
// variance s2.
func latticeSlop(k, s2 float64) float64 {
	const explicit = 64
	s := 0.0
	for j := 1.0; j < k; j++ {
		c := s2 * j / (j + 1)
		q := math.Exp(-2 * math.Pi * math.Pi * c)
		a := 2 * q / (1 - q*q*q)
		if a >= 1 {
			return math.Inf(1)
		}
		term := 2 * math.Atanh(a) // ln((1+a)/(1-a)), to the last digit where a is tiny
		if j == explicit {
			s += term * (k - j) // c grows with j
			break
		}
		s += term
	}
	return outward.Up(s)
}

// delta bounds delta(epsilon) from both sides.
func (l *lattice) delta(epsilon float64) (lower, upper float64) {
	if l.k*l.d > 1<<50 || math.IsInf(l.slop, 1) {
		return 0, 1
	}
	lo, hi := l.sum(epsilon)
	return outward.Down(lo * math.Exp(-l.slop)), min(1, outward.Up(hi*math.Exp(l.slop)))
}

// sum bounds the sum over z for the distribution pmf or N_Z(0, v).
func (l *lattice) sum(epsilon float64) (lower, upper float64) {
	first := math.Floor(epsilon*l.s2/l.d-l.k*l.d/2) + 1
	if l.pmf == nil {
		return l.smooth(epsilon, first)
	}
	r := float64(len(l.pmf) / 2)
	s, mass := 0.0, 0.0
	for z := max(first, -r); z <= r; z++ {
		p := l.pmf[int(z+r)]
		if p == 0 && z > 0 {
			break
		}
		loss := (l.k*l.d*l.d + 2*l.d*z) / (2 * l.s2)
		s -= p * math.Expm1(min(0, epsilon-loss))
		mass += p
	}
	// An error of a loss moves its term by as much, and each convolution behind pmf has
	// lost a little.
	return outward.Padded(s, 10*outward.Formula, mass*outward.Off(epsilon, l.k*l.d*l.d/l.s2, 1)+outward.Underflow)
}

// smooth evaluates the sum for a large variance v = sigma^2 by the Euler-Maclaurin
// formula. With f(z) = e^(-z^2/2v), A(n) = sum over z >= n of f(z)/f(n), and E =
// e^(epsilon - loss(n)) <= 1,
//
//	delta = f(n)/theta (A(n) - E A(n + kd)),  theta = sum over all z of f = sigma sqrt(2 pi) (1 + below e^-300000).
//
// With x = n/sigma: A(n) = sigma M(x) + 1/2 + x/(12 sigma) - (x^3-3x)/(720 sigma^3) + R,
// where |R| is at most 2 zeta(6)/(2 pi)^6 times the total variation of f^(5) on [n,
// infinity) over f(n): He5(x)/sigma^5 for x >= 4, and at most 67.3 e^(x^2/2)/sigma^5 for
// any x.
func (l *lattice) smooth(epsilon, n float64) (lower, upper float64) {
	sigma := math.Sqrt(l.v)
	x := n / sigma
	if x > 38 {
		return 0, outward.Underflow
	}
	if x < -30 {
		return 1 - 10*outward.Formula, 1
	}
	sums := func(x float64) (a, err float64) {
		a = sigma*mills(x) + 0.5 + x/(12*sigma) - (x*x*x-3*x)/(720*sigma*sigma*sigma)
		s5 := sigma * sigma * sigma * sigma * sigma
		if x >= 4 {
			err = 3.31e-5 * x * (x*x*x*x - 10*x*x + 15) / s5
		} else {
			err = 3.31e-5 * 67.3 * math.Exp(x*x/2) / s5
		}
		return a, err + a*5*millsError
	}
	a, aErr := sums(x)
	b, bErr := sums((n + l.k*l.d) / sigma)
	loss := (l.k*l.d*l.d + 2*l.d*n) / (2 * l.s2)
	e := math.Exp(min(0, epsilon-loss))
	e1 := outward.Off(epsilon, l.k*l.d*l.d/l.s2, l.d*n/l.s2, 1)
	density := math.Exp(-x*x/2) / (sigma * math.Sqrt(2*math.Pi))
	d := density * (a - e*b)
	return outward.Padded(d, outward.Formula+outward.Off(x*x), density*(aErr+e*bErr+e*b*e1)+outward.Underflow)
}
