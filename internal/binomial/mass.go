package binomial

import "math"

// stirlingSeries is stirlingError in the order of operations that Mass was tested in to
// its last digit.
func stirlingSeries(n float64) float64 {
	if n < 16 {
		l, _ := math.Lgamma(n + 1)
		return l - (0.5*math.Log(2*math.Pi*n) + n*math.Log(n) - n)
	}
	x := 1 / (n * n)
	return (1./12 - x*(1./360-x*(1./1260-x*(1./1680-x/1188)))) / n
}

// offset is deviance(x, m) where the difference d = x - m is known better than m.
func offset(x, m, d float64) float64 {
	if math.Abs(d) < 0.5*(x+m) {
		// With v = (x-m)/(x+m): x ln((1+v)/(1-v)) - (x-m) = (x-m) v + 2 x (v^3/3 + v^5/5 + ...).
		v := d / (x + m)
		s, term := d*v, 2*x*v
		for j := 3.0; ; j += 2 {
			term *= v * v
			if next := s + term/j; next == s {
				return s
			} else {
				s = next
			}
		}
	}
	return x*math.Log1p(d/m) - d
}

// Mass returns P(Bin(n, p) = k), n up to 2^52, to a relative error below 1e-13 where it
// is above 1e-40 (Loader 2000, "Fast and Accurate Computation of Binomial
// Probabilities").
func Mass(n, k, p float64) float64 {
	switch {
	case k < 0 || k > n:
		return 0
	case p == 0 || p == 1:
		if k == n*p {
			return 1
		}
		return 0
	case k == 0:
		return math.Exp(n * math.Log1p(-p))
	case k == n:
		return math.Exp(n * math.Log(p))
	}
	// A rounding of n p is nothing to n p, but may be to k - n p.
	m := n * p
	d := k - m - math.FMA(n, p, -m)
	l := stirlingSeries(n) - stirlingSeries(k) - stirlingSeries(n-k) - offset(k, m, d) - offset(n-k, n*(1-p), -d)
	return math.Exp(l) * math.Sqrt(n/(2*math.Pi*k*(n-k)))
}

// Window returns an interval outside of which Bin(n, p) has probability at most tail on
// each side (Chernoff, by Bernstein's inequality).
func Window(n, p, tail float64) (from, to float64) {
	x := -math.Log(tail)
	w := math.Sqrt(2*n*p*(1-p)*x) + 2*x/3 + 1
	return max(0, math.Floor(n*p-w)), min(n, math.Ceil(n*p+w))
}
