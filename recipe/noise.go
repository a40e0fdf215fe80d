package recipe

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/release"
)

// Noise is what the servers add before they release. Each has a file of its own, with all
// that there is to say of it: [NoNoise], [DiscreteGaussian], [DiscreteLaplace] and
// [CorrelatedGaussian].
type Noise interface {
	fmt.Stringer
	// Sampler draws what one server adds to each coordinate of its aggregate share.
	Sampler() (noise.Sampler, error)
	// Mechanism is the noise of the given number of honest servers on sums to which each
	// person adds c.
	Mechanism(c release.Contribution, honest int) (release.Mechanism, error)
	// Spread is how far what both servers add to one released number strays.
	Spread() Spread
	// Pure says whether the noise bounds every loss, so that a delta of 0 may be claimed.
	Pure() bool
	// AddsUp says whether as much is known of the sum of two servers' draws as of one.
	AddsUp() bool
	// Stated is the variance that is stated of the noise of one round, about; 0 where
	// none is.
	Stated() float64
	// Stronger is the same kind of noise with a parameter that is larger by a small share.
	Stronger(share float64) (Noise, error)
	// Sized is the same kind of noise with another parameter: its variance, or its scale.
	Sized(parameter Rational) Noise
	noise() uint8
	append(b *cryptobyte.Builder)
	// params are those of the JSON form, nil for none.
	params() any
	validate(v *validator, r *Recipe)
	// variance is that of what both servers add to one released number.
	variance() float64
	// gaussian is the variance stated of Gaussian noise for each round alone, 0/0 for
	// other.
	gaussian() Rational
	// divided says whether each server draws a part of the stated noise only.
	divided() bool
	// norm is that of a difference between results which the noise hides, 1 or 2; 0 for no
	// noise.
	norm() int
}

// A Spread is how far noise strays.
type Spread struct {
	Deviation float64 // the standard deviation
	// Reach95 is a distance that it stays within with probability 95 % or more, once it is
	// rounded up to a whole number, as the noise is whole.
	Reach95 float64
}

// Deviations95 is how many standard deviations noise stays within with probability 95 %,
// no fewer than a normal variable does: a sum of several draws is between the two.
func (s Spread) Deviations95() float64 {
	if s.Deviation == 0 {
		return Normal95
	}
	return max(Normal95, s.Reach95/s.Deviation)
}

// Normal95 is how many standard deviations a normal variable stays within with probability
// 95 %.
const Normal95 = 1.959964

// larger is x with a numerator that is larger by the share, by 1 at least.
func larger(x Rational, share float64) (Rational, error) {
	more := math.Ceil(float64(x.Num) * share)
	if !(more < 1<<63) || x.Num > math.MaxUint64-uint64(more) {
		return x, fmt.Errorf("recipe: no noise is stronger by %v", share)
	}
	return NewRational(x.Num+uint64(more), x.Den)
}

func normalSpread(deviation float64) Spread { return Spread{deviation, Normal95 * deviation} }

// noises are those that this version knows, with how each is read from its bytes; in the
// order of their numbers.
var noises = []struct {
	tag  uint8
	read func(d *decoder) Noise
	none Noise // without a parameter; nil where a parameter is not all that is missing
}{
	{tagNoiseNone, func(*decoder) Noise { return NoNoise{} }, nil},
	{tagDiscreteGaussian, readDiscreteGaussian, unsizedGaussian},
	{tagDiscreteLaplace, readDiscreteLaplace, unsizedLaplace},
	{tagCorrelatedGaussian, readCorrelated, nil},
}

// NoiseNamed returns noise of a kind, for [Noise.Sized]: discrete-gaussian, of which each
// server draws all, or discrete-laplace.
func NoiseNamed(name string) (Noise, error) {
	var names []string
	for _, n := range noises {
		known := nameOf("noise", uint16(n.tag))
		if n.none == nil {
			continue
		}
		if known == name {
			return n.none, nil
		}
		names = append(names, strconv.Quote(known))
	}
	return nil, &InvalidError{"noise", fmt.Sprintf("kind %q is not %s", name, strings.Join(names, " or "))}
}

func readNoise(tag uint8, d *decoder) (Noise, bool) {
	for _, n := range noises {
		if n.tag == tag {
			return n.read(d), true
		}
	}
	return nil, false
}

func (v *validator) noise(r *Recipe) {
	if r.Noise == nil {
		v.add("noise", "is missing")
		return
	}
	r.Noise.validate(v, r)
}

// Noisy says whether the servers add noise.
func (r *Recipe) Noisy() bool { return r.Noise != NoNoise{} }

// NoNoise releases exact results: there is no differential privacy.
type NoNoise struct{}

func (NoNoise) String() string                  { return "none: results are exact" }
func (NoNoise) Sampler() (noise.Sampler, error) { return noise.Zero{}, nil }
func (NoNoise) Spread() Spread                  { return Spread{} }
func (NoNoise) Stronger(float64) (Noise, error) { return NoNoise{}, nil }
func (NoNoise) Sized(Rational) Noise            { return NoNoise{} }
func (NoNoise) noise() uint8                    { return tagNoiseNone }
func (NoNoise) append(*cryptobyte.Builder)      {}
func (NoNoise) params() any                     { return nil }
func (NoNoise) validate(*validator, *Recipe)    {}
func (NoNoise) variance() float64               { return 0 }
func (NoNoise) gaussian() Rational              { return Rational{} }
func (NoNoise) divided() bool                   { return false }
func (NoNoise) norm() int                       { return 0 }

// Mechanism fails: there is none.
func (NoNoise) Mechanism(release.Contribution, int) (release.Mechanism, error) {
	return nil, errors.New("recipe: no noise to account for")
}

func (NoNoise) Pure() bool      { return false }
func (NoNoise) AddsUp() bool    { return true }
func (NoNoise) Stated() float64 { return 0 }

// GaussianVariance returns the variance of Gaussian noise as the recipe states it: that of
// the servers, or that of one device.
func (r *Recipe) GaussianVariance() (Rational, bool) {
	if v := r.Randomizer.gaussian(); v.Valid() {
		return v, true
	}
	v := r.Noise.gaussian()
	return v, v.Valid()
}

// drawn is the spread of two draws of one server's noise each.
func drawn(n Noise, spread func(deviation float64) Spread) Spread {
	s, err := n.Sampler()
	if err != nil {
		return spread(math.Inf(1))
	}
	return spread(math.Sqrt(2 * s.Variance()))
}
