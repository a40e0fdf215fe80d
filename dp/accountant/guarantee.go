package accountant

import (
	"math"

	"github.com/starling-agg/starling/dp/release"
)

// maxCount bounds compositions and coordinates, so that sums and products of two fit in a
// float64 exactly.
const maxCount = 2_000_000_000_000

// leastNormal is the least number with all its digits. Go's logarithm of a smaller one
// may be too large by 36 (on amd64).
const leastNormal = 0x1p-1022

func checkDelta(delta float64) error {
	if !(delta >= leastNormal && delta < 1) {
		return parameter("delta", delta, "between 0 and 1, both excluded, and 2^-1022 or more")
	}
	return nil
}

func checkSampling(rate float64) error {
	if !(rate >= leastNormal && rate <= 1) {
		return parameter("sampling rate", rate, "2^-1022 to 1")
	}
	return nil
}

func checkNeighbours(n release.Neighbours) error {
	if n < release.AddRemove || n > release.ZeroOut {
		return parameter("neighbours", float64(n), "AddRemove, ReplaceOne or ZeroOut")
	}
	return nil
}

func checkEpsilon(epsilon float64) error {
	if !(epsilon >= 0 && epsilon <= release.MaxEpsilon) {
		return parameter("epsilon", epsilon, "0 to 10^6")
	}
	return nil
}

// A curve bounds delta(epsilon) from both sides. Both bounds fall as epsilon grows.
type curve func(epsilon float64) (lower, upper float64)

// epsilon returns the least epsilon whose delta is proved to be at most delta, rounded
// up, and a bound below which every epsilon is proved to fail.
func (c curve) epsilon(delta float64) (lower, upper float64, err error) {
	if err := checkDelta(delta); err != nil {
		return 0, 0, err
	}
	_, upper, err = crossing(func(e float64) float64 { _, hi := c(e); return hi }, delta)
	if err != nil {
		return 0, 0, err
	}
	if lo, _ := c(upper); lo == 0 {
		// Perhaps nothing is known from below; a bound that is 0 even where epsilon is
		// smallest is not worth a search.
		if lo, _ := c(upper * 0.999); lo == 0 {
			return 0, upper, nil
		}
	}
	lower, _, err = crossing(func(e float64) float64 { lo, _ := c(e); return lo }, delta)
	if err != nil {
		return 0, 0, err
	}
	return min(lower, upper), upper, nil
}

// crossing returns a < b, close together, between which the falling f gets down to delta:
// f(a) > delta >= f(b). Both are 0 if f(0) <= delta. It bisects, helped by the secant of
// ln f, which is nearly a parabola for most curves.
func crossing(f func(float64) float64, delta float64) (a, b float64, err error) {
	fa := f(0)
	if fa <= delta {
		return 0, 0, nil
	}
	b = 1
	fb := f(b)
	for fb > delta {
		if b == release.MaxEpsilon {
			return 0, 0, release.ErrNoGuarantee
		}
		a, fa, b = b, fb, min(2*b, release.MaxEpsilon)
		fb = f(b)
	}
	for i := range 200 {
		w := b - a
		m := a + w/2
		if m <= a || m >= b || w <= 1e-12*b {
			break
		}
		if i%3 != 2 && fb > 0 {
			t := (math.Log(fa) - math.Log(delta)) / (math.Log(fa) - math.Log(fb))
			// Aim beyond the root, alternating sides, so that the bracket shrinks from
			// both.
			if m = a + t*w; i%3 == 0 {
				m += 1e-4*w + 1e-13*b
			} else {
				m -= 1e-4*w + 1e-13*b
			}
			if !(m > a && m < b) {
				m = a + w/2
			}
		}
		if v := f(m); v <= delta {
			b, fb = m, v
		} else {
			a, fa = m, v
		}
	}
	return a, b, nil
}

// leastSigma returns the least x > 0, to a relative 2^-48 and rounded up, for which holds
// is true; holds is false before and true after.
func leastSigma(holds func(float64) bool) (float64, error) {
	a, b := 1.0, 1.0
	for !holds(b) {
		if a, b = b, 2*b; b > 1e15 {
			return 0, release.ErrNoGuarantee
		}
	}
	for a == b || holds(a) {
		if b, a = a, a/2; a < 1e-9 {
			return b, nil
		}
	}
	for range 200 {
		m := a + (b-a)/2
		if m <= a || m >= b || b-a <= b*0x1p-48 {
			break
		}
		if holds(m) {
			b = m
		} else {
			a = m
		}
	}
	return b, nil
}

// finite reports whether x is a positive finite number.
func finite(x float64) bool { return x > 0 && !math.IsInf(x, 1) }

func parameter(name string, value float64, want string) error {
	return &release.ParameterError{Parameter: name, Value: value, Want: want}
}
