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
	// Parameter is that parameter; 0/0 for none.
	Parameter() Rational
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
	// Scale is that of discrete Laplace noise, 0 for other noise, and Draws how many draws
	// of it are added up: of devices that add a share of 1/h each, n/h.
	Scale, Draws float64
}

// laplaceSpread is that of draws of discrete Laplace noise, of which the standard deviation
// is known, each of a scale. With every draw more it reaches fewer deviations far, so that
// parts of a draw are left out.
func laplaceSpread(deviation, scale, draws float64) Spread {
	const most = 32 // beyond, the reach is that of as many
	n := min(max(1, int(draws)), most)
	low, high := 0.0, 64.0 // in units of the scale
	for range 60 {
		if mid := (low + high) / 2; laplaceTail(n, mid) > 0.05 {
			low = mid
		} else {
			high = mid
		}
	}
	return Spread{deviation, max(Normal95*deviation, high*scale*math.Sqrt(draws/float64(n))), scale, draws}
}

// laplaceTail is the probability that n continuous Laplace variables of scale 1 add up to
// more than x, or less than -x: of the difference of two gamma variables of shape n.
func laplaceTail(n int, x float64) float64 {
	sum, each := 0.0, 1.0 // x^k/k!
	for k := range n {
		if k > 0 {
			each *= x / float64(k)
		}
		inner, c := 0.0, math.Exp2(-float64(n)) // C(n+l-1, l) 2^-(n+l)
		for l := range n - k {
			if l > 0 {
				c *= float64(n+l-1) / float64(2*l)
			}
			inner += c
		}
		sum += each * inner
	}
	return 2 * math.Exp(-x) * sum
}

// within is a distance that the noise stays within but for a probability of miss: by
// Chernoff's inequality, of the moment generating function (1 - s^2)^-Draws in units of the
// scale, which of discrete noise is no larger; or by that of normal noise.
func (s Spread) within(miss float64) float64 {
	if s.Deviation == 0 {
		return 0
	}
	l := -math.Log(miss / 2)
	if s.Scale == 0 {
		return s.Deviation * math.Sqrt(2*l)
	}
	x := math.Inf(1)
	for i := 1; i < 1000; i++ {
		u := float64(i) / 1000
		x = math.Min(x, (l-s.Draws*math.Log1p(-u*u))/u)
	}
	return x * s.Scale
}

// Blurred is the spread of the noise in each sum of a batch of reports, whoever added it.
func (r *Recipe) Blurred(reports uint64) Spread {
	if z, ok := r.Randomizer.(interface {
		spread(q Query, reports uint64) Spread
	}); ok {
		return z.spread(r.Query, reports)
	}
	return r.Noise.Spread()
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

func normalSpread(deviation float64) Spread {
	return Spread{Deviation: deviation, Reach95: Normal95 * deviation}
}

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
func (NoNoise) Parameter() Rational             { return Rational{} }
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
