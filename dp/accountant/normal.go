package accountant

import (
	"math"

	"github.com/starling-agg/starling/internal/outward"
)

// millsError bounds the relative errors of mills and of normalTail.
const millsError = 2e-14

// mills returns (1-Phi(x))/phi(x), the Mills ratio, to a relative error below millsError
// for x >= -8 (a relative 1e-15 x^2 more for smaller x; it overflows below -38).
func mills(x float64) float64 {
	if x < 3 {
		return math.Sqrt(math.Pi/2) * math.Exp(x*x/2) * math.Erfc(x/math.Sqrt2)
	}
	// Laplace's continued fraction 1/(x + 1/(x + 2/(x + ...))), from the inside out.
	n := 20 + int(900/(x*x))
	t := x
	for k := float64(n); k >= 1; k-- {
		t = x + k/t
	}
	return 1 / t
}

// normalTail returns P(N(0,1) > x).
func normalTail(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }

// gaussianDelta bounds delta(epsilon) of N(0,1) against N(mu,1) (Balle and Wang 2018,
// theorem 8):
//
//	delta = Phi(-t) - e^epsilon Phi(-t-mu),  t = epsilon/mu - mu/2.
//
// Since e^epsilon phi(t+mu) = phi(t), that is phi(t) (M(t) - M(t+mu)) with the Mills
// ratio M, where nothing large cancels.
func gaussianDelta(mu, epsilon float64) (lower, upper float64) {
	if mu == 0 {
		return 0, 0
	}
	t := epsilon/mu - mu/2
	density := math.Exp(-t*t/2) / math.Sqrt(2*math.Pi)
	tail := normalTail(t)
	var d float64
	if t < 2 {
		d = tail - density*mills(t+mu)
	} else {
		d = density * (mills(t) - mills(t+mu))
	}
	// An error of t moves delta by at most density times as much, and the density itself
	// by t times as much. Of the two numbers whose difference delta is, none is above the
	// tail.
	moved := outward.Off(epsilon/mu, mu)
	return outward.Padded(d, outward.Formula+math.Abs(t)*moved, tail*3*millsError+density*moved+outward.Underflow)
}
