package pine

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/internal/outward"
)

// NoisyBound returns an integer bound that a vector with noise of the device's own
// exceeds with odds of at most 2^-bits: for every integer vector of dim entries and norm
// at most bound, plus an independent discrete Gaussian of parameter sigma (in units, like
// bound) in each entry. It is what a recipe with device noise proves (Norm = NoisyBound *
// 2^-FracBits). A client redraws noise that exceeds it, which costs the guarantee of a
// batch of n clients at most n*2^-bits in delta; 40 bits are usual. It is the least bound
// that Chernoff's method gives. Errors are [ErrParameter].
//
// Proof. Let 0 < s < 1/(2*sigma^2), g = 1 - 2*s*sigma^2, and theta(x) be the sum over the
// integers of exp(-m^2/(2*x^2)). For one entry e with noise, completing the square,
//
//	E exp(s*(e+N)^2) = exp(s*e^2/g) * sum_m exp(-(m-e/g)^2*g/(2*sigma^2)) / theta(sigma)
//
// and the sum is largest where its centre is an integer, theta(sigma/sqrt(g)). By Poisson
// summation theta(x) is x*sqrt(2*pi) times a factor that falls with x, so the quotient of
// thetas is at most 1/sqrt(g). Over all entries, by Markov's inequality, P(norm^2 >= x)
// <= exp(-s*x + s*bound^2/g) * g^(-dim/2), which is 2^-bits for
//
//	x = bits*ln(2)/s - dim*ln(g)/(2*s) + bound^2/g.
//
// Any s gives a valid x; the search takes about the least.
func NoisyBound(bound uint64, dim int, sigma float64, bits int) (uint64, error) {
	if bound > MaxBound || dim < 1 || dim > MaxDimension || !(sigma >= 0) || sigma > MaxBound || bits < 1 || bits > 1000 {
		return 0, fmt.Errorf("%w: noisy bound of %d, dimension %d, sigma %v, %d bits", ErrParameter, bound, dim, sigma, bits)
	}
	b, d, t := float64(bound), float64(dim), float64(bits)*math.Ln2
	if sigma == 0 {
		return bound, nil
	}
	squared := leastOf(func(v float64) float64 { // of s = v/(2*sigma^2), 0 < v < 1
		return 2*sigma*sigma*t/v - d*sigma*sigma*math.Log1p(-v)/v + b*b/(1-v)
	})
	least := math.Ceil(outward.Up(math.Sqrt(squared)))
	if !(least <= MaxBound) {
		return 0, fmt.Errorf("%w: the noisy bound is %v units", ErrParameter, least)
	}
	return uint64(least), nil
}

// NoisyOdds bounds the odds that the norm of such a vector is above limit, by the same
// method: where limit is NoisyBound(bound, dim, sigma, bits) they are at most 2^-bits.
// They are never stated to be below 2^-1000.
func NoisyOdds(bound uint64, dim int, sigma float64, limit uint64) (float64, error) {
	if bound > MaxBound || limit > MaxBound || dim < 1 || dim > MaxDimension || !(sigma > 0) || sigma > MaxBound {
		return 0, fmt.Errorf("%w: noisy odds of %d, dimension %d, sigma %v, limit %d", ErrParameter, bound, dim, sigma, limit)
	}
	// ln of the bound at s = v/(2*sigma^2), with bound and limit in deviations.
	b, x := float64(bound)/sigma, float64(limit)/sigma
	ln := leastOf(func(v float64) float64 {
		squares := v / 2 * (b*b/(1-v) - x*x)
		entries := -float64(dim) / 2 * math.Log1p(-v)
		// up, past every rounding, also where the two all but cancel
		return squares + entries + 1e-14*(v/2*(b*b/(1-v)+x*x)+entries)
	})
	return math.Exp(max(min(ln, 0), -1000*math.Ln2)), nil
}

// leastOf searches about the least f(v) over 0 < v < 1, for an f that falls and then
// rises: by golden section over the logit of v, which spreads both ends.
func leastOf(f func(v float64) float64) float64 {
	at := func(z float64) float64 { return f(1 / (1 + math.Exp(-z))) }
	lo, hi := -40.0, 30.0
	const golden = 0.6180339887498949
	x, y := hi-golden*(hi-lo), lo+golden*(hi-lo)
	fx, fy := at(x), at(y)
	for range 100 {
		if fx <= fy {
			hi, y, fy = y, x, fx
			x = hi - golden*(hi-lo)
			fx = at(x)
		} else {
			lo, x, fx = x, y, fy
			y = lo + golden*(hi-lo)
			fy = at(y)
		}
	}
	return min(fx, fy)
}
