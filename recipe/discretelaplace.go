package recipe

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/release"
)

// DiscreteLaplace: each server adds independent discrete Laplace noise to each coordinate
// of its aggregate share; P(y) is proportional to exp(-|y|/Scale).
type DiscreteLaplace struct{ Scale Rational }

func (n DiscreteLaplace) String() string {
	scale := fmt.Sprintf("%.4g", n.Scale.Float())
	if exact := n.Scale.String(); exact != scale {
		scale += " (" + exact + ")"
	}
	return fmt.Sprintf("each server adds whole-number Laplace noise of scale %s to every number released", scale)
}

func (DiscreteLaplace) noise() uint8 { return tagDiscreteLaplace }

func (n DiscreteLaplace) append(b *cryptobyte.Builder) { addRational(b, n.Scale) }

func readDiscreteLaplace(d *decoder) Noise { return DiscreteLaplace{Scale: d.rational("scale")} }

// unsizedLaplace is without a scale.
var unsizedLaplace Noise = DiscreteLaplace{}

func (n DiscreteLaplace) params() any { return map[string]string{"scale": n.Scale.String()} }

func (n DiscreteLaplace) validate(v *validator, _ *Recipe) {
	if _, err := n.Sampler(); err != nil {
		v.add("noise", "cannot be drawn: %v", err)
	}
}

// Sampler draws what one server adds to each coordinate.
func (n DiscreteLaplace) Sampler() (noise.Sampler, error) {
	if !n.Scale.Valid() {
		return nil, errors.New("recipe: the scale is not a positive fraction in lowest terms")
	}
	return noise.NewDiscreteLaplace(n.Scale.Num, n.Scale.Den)
}

// Spread solves P(|X+Y| > x) = (1 + x/(2b)) exp(-x/b) = 5 % for the reach: the distribution
// of the sum of two continuous Laplace variables of scale b.
func (n DiscreteLaplace) Spread() Spread {
	return drawn(n, func(deviation float64) Spread {
		return laplaceSpread(deviation, n.Scale.Float(), 2)
	})
}

// Mechanism adds the servers' draws up, of Scale each.
func (n DiscreteLaplace) Mechanism(c release.Contribution, honest int) (release.Mechanism, error) {
	return release.DiscreteLaplace{Scale: n.Scale, Contribution: c, Honest: honest}, nil
}

func (n DiscreteLaplace) variance() float64 {
	q := math.Exp(-1 / n.Scale.Float())
	return 2 * 2 * q / ((1 - q) * (1 - q))
}

func (DiscreteLaplace) gaussian() Rational { return Rational{} }
func (DiscreteLaplace) divided() bool      { return false }
func (DiscreteLaplace) norm() int          { return 1 }

// Pure is true: an outcome is at most e^(distance/Scale) times as likely.
func (DiscreteLaplace) Pure() bool { return true }

// AddsUp is false: of the sum of two such draws less may be known than of one.
func (DiscreteLaplace) AddsUp() bool { return false }

// Stated is that of continuous noise.
func (n DiscreteLaplace) Stated() float64 { return 2 * n.Scale.Float() * n.Scale.Float() }

// Parameter is the scale.
func (n DiscreteLaplace) Parameter() Rational { return n.Scale }

// Sized is the noise with another scale.
func (n DiscreteLaplace) Sized(scale Rational) Noise {
	n.Scale = scale
	return n
}

// Stronger is the noise with a scale that is larger by the share, rounded up.
func (n DiscreteLaplace) Stronger(share float64) (Noise, error) {
	var err error
	n.Scale, err = larger(n.Scale, share)
	return n, err
}
