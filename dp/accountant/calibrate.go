package accountant

import (
	"errors"
	"fmt"

	"github.com/starling-agg/starling/dp/release"
)

// Calibrate returns the least parameter of a mechanism's whole-number noise, its variance
// or its scale, at which count releases are (epsilon, delta)-DP by the noise of one
// honest server, rounded up. That of the mechanism itself is not looked at.
func Calibrate(m release.Mechanism, epsilon, delta float64, n release.Neighbours, count uint64) (release.Rational, error) {
	switch m := m.(type) {
	case release.DiscreteGaussian:
		v, _, err := CalibrateDiscreteGaussian(epsilon, delta, m.Contribution, n, count)
		return v, err
	case release.CorrelatedGaussian:
		v, _, err := CalibrateCorrelated(epsilon, delta, m.Norm2, m.Contribution, n, count)
		return v, err
	case release.DiscreteLaplace:
		return leastScale(epsilon, delta, m.Contribution, n, count)
	}
	return release.Rational{}, fmt.Errorf("%w: no calibration of %T", release.ErrUnsupported, m)
}

// leastScale searches the scale of discrete Laplace noise in units of 2^-16, between one
// that surely fails or is below all that are accounted for, and one that surely holds.
func leastScale(epsilon, delta float64, c release.Contribution, n release.Neighbours, count uint64) (release.Rational, error) {
	const unit = 1 << 16
	s, err := c.Sensitivity(n)
	if err != nil {
		return release.Rational{}, err
	}
	holds := func(units uint64) bool {
		if err != nil {
			return false
		}
		m := release.DiscreteLaplace{Contribution: c}
		if m.Scale, err = release.NewRational(units, unit); err != nil {
			return false
		}
		var g release.Guarantee
		switch g, err = Epsilon([]release.Release{release.Times(count, m)}, delta, n); {
		case errors.Is(err, release.ErrNoGuarantee):
			err = nil
			return false
		case err != nil:
			return false
		}
		return g.Epsilon <= epsilon
	}
	// From the largest loss that anybody accounts for.
	low, high := uint64(s.Max/release.MaxLoss*unit), max(unit, uint64(s.Max/256*unit))
	for !holds(high) {
		if err != nil {
			return release.Rational{}, err
		}
		if low, high = high, 2*high; high > 1<<56 {
			return release.Rational{}, release.ErrNoGuarantee
		}
	}
	for high-low > 1 {
		mid := low + (high-low)/2
		if holds(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	if err != nil {
		return release.Rational{}, err
	}
	return release.NewRational(high, unit)
}
