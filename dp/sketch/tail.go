package sketch

import "math"

// Noise is what is known of the noise in each sum: its standard deviation, and the scale of
// the Laplace draws that it is the sum of, 0 for noise whose tails are no heavier than a
// normal variable's. Draws is how many: 2 of two servers, and of shares of users any number.
type Noise struct {
	Deviation float64
	Laplace   float64
	Draws     float64
}

// reach is how many standard deviations above 0 the mean of the noise of k sums is with
// probability at most p: by the normal distribution or, of Laplace noise, by Chernoff's bound.
func (n Noise) reach(k int, p float64) float64 {
	z := math.Sqrt2 * math.Erfinv(1-2*p)
	if p < 1e-12 { // where 1-2p has too few digits
		z = math.Sqrt(-2 * math.Log(p))
	}
	if n.Laplace == 0 || n.Deviation == 0 {
		return z
	}
	// The moment generating function of d draws is (1 - s^2)^(-d), s in units of 1/scale:
	// the least over s of exp(-s x) (1 - s^2)^(-d) is at most p from some x on.
	x := math.Inf(1)
	for i := 1; i < 1000; i++ {
		s := float64(i) / 1000
		x = math.Min(x, (-math.Log(p)-n.Draws*float64(k)*math.Log1p(-s*s))/s)
	}
	// x is of the sum of k, of deviation sqrt(k) Deviation.
	return math.Max(z, x*n.Laplace/(math.Sqrt(float64(k))*n.Deviation))
}
