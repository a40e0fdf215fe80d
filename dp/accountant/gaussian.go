package accountant

import (
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// gaussian is the release of a sum with normal noise of standard deviation Sigma in each
// coordinate.
type gaussian struct {
	Sigma        float64
	Contribution release.Contribution
}

const gaussianTheorem = "analytic Gaussian mechanism (Balle and Wang 2018, theorem 8)"

// mu is the distance of neighbours in units of Sigma, rounded up, after count releases.
func (g gaussian) mu(n release.Neighbours, count float64) (float64, error) {
	if !finite(g.Sigma) {
		return 0, parameter("sigma", g.Sigma, "a positive number")
	}
	s, err := g.Contribution.Sensitivity(n)
	if err != nil {
		return 0, err
	}
	mu := s.L2 / g.Sigma * math.Sqrt(count)
	if !finite(mu) {
		return 0, parameter("sigma", g.Sigma, "of the order of the contribution")
	}
	return mu, nil
}

func (g gaussian) exact(n release.Neighbours, count float64) (curve, string, error) {
	mu, err := g.mu(n, count)
	if err != nil {
		return nil, "", err
	}
	return func(e float64) (float64, float64) {
		lo, _ := gaussianDelta(mu*(1-3*outward.Formula), e)
		_, hi := gaussianDelta(mu*(1+outward.Formula), e)
		return lo, hi
	}, gaussianTheorem, nil
}

// CalibrateGaussian returns the least Sigma, rounded up, at which count releases are
// (epsilon, delta)-DP.
func CalibrateGaussian(epsilon, delta float64, c release.Contribution, n release.Neighbours, count uint64) (float64, release.Guarantee, error) {
	if err := checkDelta(delta); err != nil {
		return 0, release.Guarantee{}, err
	}
	if err := checkEpsilon(epsilon); err != nil {
		return 0, release.Guarantee{}, err
	}
	if count == 0 || count > maxCount {
		return 0, release.Guarantee{}, parameter("number of releases", float64(count), "1 to 2*10^12")
	}
	if _, err := c.Sensitivity(n); err != nil {
		return 0, release.Guarantee{}, err
	}
	sigma, err := leastSigma(func(s float64) bool {
		f, _, err := gaussian{s, c}.exact(n, float64(count))
		if err != nil {
			return false
		}
		_, hi := f(epsilon)
		return hi <= delta
	})
	if err != nil {
		return 0, release.Guarantee{}, err
	}
	g, err := Options{}.epsilon(selfCompose{gaussian{sigma, c}, count}, delta, n)
	g.Epsilon = min(g.Epsilon, epsilon) // proved just now
	return sigma, g, err
}

// ClassicalGaussianSigma returns sqrt(2 ln(1.25/delta)) sensitivity/epsilon, rounded up:
// the textbook noise (Dwork and Roth 2014, theorem A.1), proved for epsilon < 1 and
// accepted here up to 1. Prefer CalibrateGaussian.
func ClassicalGaussianSigma(epsilon, delta, sensitivity float64) (float64, error) {
	if err := checkDelta(delta); err != nil {
		return 0, err
	}
	if !(epsilon > 0 && epsilon <= 1) {
		return 0, parameter("epsilon", epsilon, "above 0 and at most 1")
	}
	if !finite(sensitivity) {
		return 0, parameter("sensitivity", sensitivity, "a positive number")
	}
	sigma := outward.Up(math.Sqrt(2*(math.Log(1.25)-math.Log(delta))) * sensitivity / epsilon)
	if !finite(sigma) {
		return 0, release.ErrNoGuarantee
	}
	return sigma, nil
}
