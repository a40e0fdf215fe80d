package correlated

import (
	"fmt"
	"math"
)

// Optimize returns a strategy of at most the given number of bands under which prefix sums
// over the given number of rounds have the least mean squared error at a given guarantee,
// as far as a search from [SquareRoot] finds it (the mean of the squared norms of the rows
// of A C^-1, times |c|^2, with A the lower-triangular matrix of ones). Any strategy is
// equally private; nothing rests on the search.
func Optimize(bands, rounds int, bits uint8) (Strategy, error) {
	if bands < 1 || bands > MaxBands || rounds < 1 || rounds > MaxRounds {
		return Strategy{}, fmt.Errorf("%w: %d bands over %d rounds, want 1 to %d and 1 to %d", ErrStrategy, bands, rounds, MaxBands, MaxRounds)
	}
	bands = min(bands, rounds)
	start := squareRoot(bands)
	best, err := fromReal(start, bits)
	if err != nil || bands == 1 {
		return best, err
	}
	found, err := fromReal(descend(start, rounds), bits)
	if err != nil {
		return best, nil
	}
	if objective(found.real(), rounds, nil) < objective(best.real(), rounds, nil) && found.gain(rounds) <= maxGain {
		best = found
	}
	return best, nil
}

// objective is the mean variance of prefix sums times |c|^2. Where gradient is not nil it
// is set to the derivative of the objective's logarithm by each c_j (gradient[0] is left
// 0: c_0 is fixed).
func objective(c []float64, rounds int, gradient []float64) float64 {
	norm := 0.0
	for _, x := range c {
		norm += x * x
	}
	s := prefixes(inverse(c, rounds))
	sum := 0.0
	weight := func(i int) float64 { return float64(rounds-i) / float64(rounds) }
	for i, x := range s {
		sum += weight(i) * x * x
	}
	if gradient == nil {
		return sum * norm
	}
	// s(x) = 1/((1-x) c(x)), so that its derivative by c_j is -x^j q(x), q = s/c.
	q := make([]float64, rounds)
	for t := range q {
		v := s[t]
		for j := 1; j < len(c) && j <= t; j++ {
			v -= c[j] * q[t-j]
		}
		q[t] = v
	}
	for j := 1; j < len(c); j++ {
		d := 0.0
		for i := j; i < rounds; i++ {
			d -= 2 * weight(i) * s[i] * q[i-j]
		}
		gradient[j] = d/sum + 2*c[j]/norm
	}
	return sum * norm
}

// descend is a quasi-Newton search (BFGS with backtracking) on the logarithm of the
// objective.
func descend(c []float64, rounds int) []float64 {
	n := len(c)
	x, g := append([]float64(nil), c...), make([]float64, n)
	f := math.Log(objective(x, rounds, g))
	inv := make([][]float64, n) // approximates the inverse of the second derivatives
	for i := range inv {
		inv[i] = make([]float64, n)
		inv[i][i] = 0.1
	}
	y, gy := make([]float64, n), make([]float64, n)
	for range 60 {
		d, slope := make([]float64, n), 0.0
		for i := 1; i < n; i++ {
			for j := 1; j < n; j++ {
				d[i] -= inv[i][j] * g[j]
			}
			slope += d[i] * g[i]
		}
		if !(slope < -1e-9) {
			break
		}
		step, fy := 1.0, 0.0
		for ; step > 1e-6; step /= 2 {
			for i := range y {
				y[i] = x[i] + step*d[i]
			}
			if fy = math.Log(objective(y, rounds, gy)); fy <= f+1e-4*step*slope {
				break
			}
		}
		if !(step > 1e-6) {
			break
		}
		update(inv, x, y, g, gy)
		x, y, g, gy, f = y, x, gy, g, fy
	}
	return x
}

// update is the BFGS formula for the inverse, after a step from x to y with gradients g
// and gy.
func update(inv [][]float64, x, y, g, gy []float64) {
	n := len(x)
	curve, bend := 0.0, 0.0
	moved := make([]float64, n) // inv (gy - g)
	for i := 1; i < n; i++ {
		for j := 1; j < n; j++ {
			moved[i] += inv[i][j] * (gy[j] - g[j])
		}
		curve += (y[i] - x[i]) * (gy[i] - g[i])
	}
	if !(curve > 1e-14) {
		return
	}
	for i := 1; i < n; i++ {
		bend += (gy[i] - g[i]) * moved[i]
	}
	for i := 1; i < n; i++ {
		for j := 1; j < n; j++ {
			di, dj := y[i]-x[i], y[j]-x[j]
			inv[i][j] += (1+bend/curve)*di*dj/curve - (moved[i]*dj+di*moved[j])/curve
		}
	}
}
