// Package binomial has binomial probabilities to nearly full precision.
package binomial

import "math"

// stirlingError returns ln(n!) - [ln sqrt(2 pi n) + n ln n - n].
func stirlingError(n float64) float64 {
	if n < 16 {
		l, _ := math.Lgamma(n + 1)
		if n == 0 {
			return 0 // never used: the formula below is not taken at 0
		}
		return l - (0.5*math.Log(2*math.Pi*n) + n*math.Log(n) - n)
	}
	x := 1 / (n * n)
	return (1./12 - x*(1./360-x*(1./1260-x*(1./1680-x/1188)))) / n
}

// deviance returns x ln(x/m) + m - x without cancellation.
func deviance(x, m float64) float64 {
	if d := x - m; math.Abs(d) < 0.1*(x+m) {
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
	return x*math.Log(x/m) + m - x
}

// PMF returns P(Bin(n, p) = k) to a relative error of about 1e-13 (Loader 2000, "Fast and Accurate Computation
// of Binomial Probabilities").
func PMF(n, k, p float64) float64 {
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
	l := stirlingError(n) - stirlingError(k) - stirlingError(n-k) - deviance(k, n*p) - deviance(n-k, n*(1-p))
	return math.Exp(l) * math.Sqrt(n/(2*math.Pi*k*(n-k)))
}

// Window returns an interval outside of which Bin(n, p) has probability at most tail on each side (Chernoff, by
// Bernstein's inequality).
func Window(n, p, tail float64) (from, to float64) {
	x := -math.Log(tail)
	w := math.Sqrt(2*n*p*(1-p)*x) + 2*x/3 + 1
	return max(0, math.Floor(n*p-w)), min(n, math.Ceil(n*p+w))
}
