package recipe

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/release"
)

// DiscreteGaussian: each server adds an independent discrete Gaussian to each coordinate
// of its aggregate share.
type DiscreteGaussian struct {
	// Variance is sigma^2, in squared units of the aggregate.
	Variance Rational
	// Share says whether each server draws this variance or half of it.
	Share NoiseShare
}

// NoiseShare is how the stated noise is divided between the servers.
type NoiseShare uint8

const (
	// DrawsAll: each server draws all of it, so that one honest server is enough.
	DrawsAll NoiseShare = 1
	// DrawsHalf: each server draws half the variance; the stated noise needs both servers
	// honest.
	DrawsHalf NoiseShare = 2
)

// EachDraws returns Gaussian noise of which each server draws all.
func EachDraws(variance Rational) DiscreteGaussian { return DiscreteGaussian{variance, DrawsAll} }

func (n DiscreteGaussian) String() string {
	who := "each server adds"
	if n.Share == DrawsHalf {
		who = "the two servers together add"
	}
	return fmt.Sprintf("%s whole-number Gaussian noise of standard deviation %.4g (variance %s) to every number released",
		who, math.Sqrt(n.Variance.Float()), n.Variance)
}

func (DiscreteGaussian) noise() uint8 { return tagDiscreteGaussian }

func (n DiscreteGaussian) append(b *cryptobyte.Builder) {
	addRational(b, n.Variance)
	b.AddUint8(uint8(n.Share))
}

func readDiscreteGaussian(d *decoder) Noise {
	return DiscreteGaussian{Variance: d.rational("variance"), Share: NoiseShare(d.known("noise-share"))}
}

// unsizedGaussian is without a variance.
var unsizedGaussian Noise = DiscreteGaussian{Share: DrawsAll}

func (n DiscreteGaussian) params() any {
	return map[string]string{"variance": n.Variance.String(), "share": nameOf("noise-share", uint16(n.Share))}
}

func (n DiscreteGaussian) validate(v *validator, _ *Recipe) {
	if n.Share != DrawsAll && n.Share != DrawsHalf {
		v.add("noise.share", "is %d, want %d or %d", n.Share, DrawsAll, DrawsHalf)
	}
	if _, err := n.Sampler(); err != nil {
		v.add("noise", "cannot be drawn: %v", err)
	}
}

// Sampler draws what one server adds to each coordinate: Variance, or half of it under
// [DrawsHalf].
func (n DiscreteGaussian) Sampler() (noise.Sampler, error) {
	if !n.Variance.Valid() {
		return nil, errors.New("recipe: the variance is not a positive fraction in lowest terms")
	}
	per, err := n.PerServer()
	if err != nil {
		return nil, err
	}
	return noise.NewDiscreteGaussian(per.Num, per.Den)
}

// PerServer is the variance of one server's draw.
func (n DiscreteGaussian) PerServer() (Rational, error) {
	if n.Share != DrawsHalf {
		return n.Variance, nil
	}
	if n.Variance.Num%2 == 0 {
		return Rational{Num: n.Variance.Num / 2, Den: n.Variance.Den}, nil
	}
	if n.Variance.Den > math.MaxUint64/2 {
		return Rational{}, errors.New("recipe: half the variance has no 64-bit denominator")
	}
	return Rational{Num: n.Variance.Num, Den: n.Variance.Den * 2}, nil
}

// Mechanism adds the servers' draws up, PerServer each.
func (n DiscreteGaussian) Mechanism(c release.Contribution, honest int) (release.Mechanism, error) {
	v, err := n.PerServer()
	return release.DiscreteGaussian{Variance: v, Contribution: c, Honest: honest}, err
}

// Spread is that of a normal variable, which the sum of two such draws is close to.
func (n DiscreteGaussian) Spread() Spread { return drawn(n, normalSpread) }

func (n DiscreteGaussian) variance() float64 {
	if n.Share == DrawsHalf {
		return n.Variance.Float()
	}
	return 2 * n.Variance.Float()
}

func (n DiscreteGaussian) gaussian() Rational { return n.Variance }
func (n DiscreteGaussian) divided() bool      { return n.Share != DrawsAll }
func (DiscreteGaussian) norm() int            { return 2 }

func (DiscreteGaussian) Pure() bool        { return false }
func (DiscreteGaussian) AddsUp() bool      { return true }
func (n DiscreteGaussian) Stated() float64 { return n.Variance.Float() }

// Parameter is the variance.
func (n DiscreteGaussian) Parameter() Rational { return n.Variance }

// Sized is the noise with another variance.
func (n DiscreteGaussian) Sized(variance Rational) Noise {
	n.Variance = variance
	return n
}

// Stronger is the noise with a variance that is larger by the share, rounded up.
func (n DiscreteGaussian) Stronger(share float64) (Noise, error) {
	var err error
	n.Variance, err = larger(n.Variance, share)
	return n, err
}
