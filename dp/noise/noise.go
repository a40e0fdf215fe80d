package noise

import (
	"crypto/rand"
	"fmt"
	"io"
	"math"

	"github.com/starling-agg/starling/dp/noise/internal/twin"
	"github.com/starling-agg/starling/internal/outward"
)

const (
	// MaxLaplaceScale is the largest scale t/s of a discrete Laplace sampler.
	MaxLaplaceScale = 1 << 40
	// MaxGaussianVariance is the largest sigma^2 of a discrete Gaussian sampler.
	MaxGaussianVariance = 1 << 62
)

// A Sampler draws integer noise of mean zero: a *DiscreteGaussian, a *DiscreteLaplace, a
// *DiscreteLaplaceShare or Zero.
type Sampler interface {
	// Sample fills dst with independent draws.
	Sample(dst []int64)
	// Variance is the variance of one draw.
	Variance() float64
	// Tail returns a k such that a draw beyond k in absolute value has probability at
	// most p, 0 < p < 1. A value of p outside that range gives the largest int64.
	Tail(p float64) int64

	sealed()
}

func (*DiscreteGaussian) sealed() {}
func (*DiscreteLaplace) sealed()  {}

// Zero is no noise.
type Zero struct{}

func (Zero) sealed() {}

// Sample fills dst with zeros.
func (Zero) Sample(dst []int64) { clear(dst) }

// Variance is 0.
func (Zero) Variance() float64 { return 0 }

// Tail is 0.
func (Zero) Tail(float64) int64 { return 0 }

// A RangeError says which parameter of a sampler is outside its range.
type RangeError struct {
	Parameter string
	Value     uint64 // for a fraction, its whole part
	Want      string
}

func (e *RangeError) Error() string {
	return fmt.Sprintf("noise: %s is %d, want %s", e.Parameter, e.Value, e.Want)
}

// tail rounds a bound on |y| up, which is the value of a formula.
func tail(x float64) int64 {
	x = math.Ceil(outward.Up(x))
	if !(x >= 0 && x < 1<<62) {
		return math.MaxInt64
	}
	return int64(x)
}

// gcd returns the greatest common divisor of a, b >= 1.
func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// isqrt returns floor(sqrt(n)).
func isqrt(n uint64) uint64 {
	var r uint64
	for bit := uint64(1) << 31; bit > 0; bit >>= 1 {
		if t := r | bit; t*t <= n {
			r = t
		}
	}
	return r
}

func init() {
	twin.WithSource = func(sampler any, r io.Reader) any {
		if r == nil {
			r = rand.Reader
		}
		switch s := sampler.(type) {
		case *DiscreteGaussian:
			c := *s
			c.src = r
			return &c
		case *DiscreteLaplace:
			c := *s
			c.src = r
			return &c
		case *DiscreteLaplaceShare:
			c := *s
			c.whole.src = r
			return &c
		}
		panic(fmt.Sprintf("noise: internal error: no twin for %T", sampler))
	}
}
