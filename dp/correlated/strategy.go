package correlated

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/noise"
)

// Bounds on a strategy and a series.
const (
	// MaxBands bounds b: a server keeps b-1 vectors.
	MaxBands = 64
	// MaxBits bounds k. Eight bits lose less than one per cent of accuracy.
	MaxBits = 16
	// MaxRounds bounds the releases of a series.
	MaxRounds = 1 << 16
	// maxGain bounds what the recurrence can make of a draw. With draws below 2^47
	// (package noise) and roundings of at most one half, |w| < 2^62.
	maxGain = 1 << 14
)

// ErrStrategy is what every error about a strategy or a series that cannot be used matches.
var ErrStrategy = errors.New("correlated: unusable")

// A Strategy is the first column of C, a lower-triangular Toeplitz matrix with ones on
// its diagonal. It is a value and can be compared; the zero Strategy is none. Make one
// with [New], [SquareRoot] or [Optimize].
type Strategy struct {
	bits, bands uint8
	c           [MaxBands]int32 // c_j 2^bits; c[0] = 2^bits
}

// New returns the strategy with c_j = coefficients[j-1] * 2^-bits, each of absolute value
// at most 1. The last may not be zero. Without coefficients the noise of each round is
// its own.
func New(bits uint8, coefficients []int32) (Strategy, error) {
	if bits > MaxBits {
		return Strategy{}, fmt.Errorf("%w: %d fractional bits, want at most %d", ErrStrategy, bits, MaxBits)
	}
	n := len(coefficients)
	if n >= MaxBands {
		return Strategy{}, fmt.Errorf("%w: %d bands, want at most %d", ErrStrategy, n+1, MaxBands)
	}
	if n > 0 && coefficients[n-1] == 0 {
		return Strategy{}, fmt.Errorf("%w: the last coefficient is zero, so that there are fewer bands", ErrStrategy)
	}
	s := Strategy{bits: bits, bands: uint8(n + 1)}
	s.c[0] = 1 << bits
	for j, c := range coefficients {
		if c > s.c[0] || c < -s.c[0] {
			return Strategy{}, fmt.Errorf("%w: coefficient %d is %d units of 2^-%d, want -1 to 1", ErrStrategy, j+1, c, bits)
		}
		s.c[j+1] = c
	}
	return s, nil
}

// SquareRoot returns the first bands coefficients of (1-x)^(-1/2), binomial(2j, j)/4^j,
// rounded to bits binary places: nearly the best for prefix sums over about as many
// rounds as there are bands (Kalinin and Lampert 2024).
func SquareRoot(bands int, bits uint8) (Strategy, error) {
	if bands < 1 || bands > MaxBands {
		return Strategy{}, fmt.Errorf("%w: %d bands, want 1 to %d", ErrStrategy, bands, MaxBands)
	}
	return fromReal(squareRoot(bands), bits)
}

func squareRoot(bands int) []float64 {
	c := make([]float64, bands)
	c[0] = 1
	for j := 1; j < bands; j++ {
		c[j] = c[j-1] * (1 - 1/(2*float64(j)))
	}
	return c
}

// fromReal rounds c_1 ... to bits binary places, and leaves zeros at the end out.
func fromReal(c []float64, bits uint8) (Strategy, error) {
	units := make([]int32, 0, len(c))
	for _, x := range c[1:] {
		units = append(units, int32(math.RoundToEven(math.Ldexp(min(max(x, -1), 1), int(min(bits, MaxBits))))))
	}
	for len(units) > 0 && units[len(units)-1] == 0 {
		units = units[:len(units)-1]
	}
	return New(bits, units)
}

// Bands is b: how many rounds a draw reaches, its own included. 0 for the zero Strategy.
func (s Strategy) Bands() int { return int(s.bands) }

// Bits is k: coefficients and noise are multiples of 2^-k.
func (s Strategy) Bits() uint8 { return s.bits }

// Coefficients are c_1 to c_(b-1), in units of 2^-k.
func (s Strategy) Coefficients() []int32 {
	if s.bands == 0 {
		return nil
	}
	return append([]int32(nil), s.c[1:s.bands]...)
}

// Norm2 is |c|^2 = num/den, exactly: what one participation costs of squared sensitivity,
// in units of that of one sum. It is num = sum of the squared units, and den = 4^k.
func (s Strategy) Norm2() (num, den uint64) {
	for _, c := range s.c[:s.bands] {
		num += uint64(int64(c) * int64(c))
	}
	return num, 1 << (2 * s.bits)
}

// norm2 is Norm2 as the nearest float64.
func (s Strategy) norm2() float64 {
	num, den := s.Norm2()
	return float64(num) / float64(den)
}

// real are c_0 to c_(b-1).
func (s Strategy) real() []float64 {
	c := make([]float64, s.bands)
	for j := range c {
		c[j] = math.Ldexp(float64(s.c[j]), -int(s.bits))
	}
	return c
}

// Sampler draws z, in units of 2^-k, for the variance num/den in squared units of the
// sum. It fails where the variance in units of 2^-2k is not one that package noise draws.
func (s Strategy) Sampler(num, den uint64) (*noise.DiscreteGaussian, error) {
	if s.bands == 0 {
		return nil, fmt.Errorf("%w: no strategy", ErrStrategy)
	}
	shift := 2 * s.bits
	for ; shift > 0 && den%2 == 0 && den > 0; shift-- {
		den /= 2
	}
	if num >= 1<<(63-shift) {
		return nil, fmt.Errorf("%w: a variance of %d/%d at %d fractional bits is too large to draw", ErrStrategy, num, den, s.bits)
	}
	return noise.NewDiscreteGaussian(num<<shift, den)
}

// Next computes the noise w of one round from its draws z: entry by entry
// w = z - R(c_1 past[0] + c_2 past[1] + ...), all in units of 2^-k. past holds the w of the
// rounds before, the latest first; at most b-1 of them, each as long as z. It fails if
// there are too many or an entry is beyond 2^62, which what [Series.Validate] accepts
// cannot reach.
func (s Strategy) Next(past [][]int64, z []int64) ([]int64, error) {
	if len(past) >= s.Bands() {
		return nil, fmt.Errorf("%w: %d earlier rounds for %d bands", ErrStrategy, len(past), s.bands)
	}
	for _, p := range past {
		if len(p) != len(z) {
			return nil, fmt.Errorf("%w: an earlier round of %d entries for one of %d", ErrStrategy, len(p), len(z))
		}
	}
	const mask = 1<<32 - 1
	half := int64(1) << s.bits >> 1
	w := make([]int64, len(z))
	for i := range z {
		// The sum is high 2^32 + low. |c| <= 2^16 and |w| < 2^62, so that |high| < 2^52
		// and |low| < 2^54.
		high, low := int64(0), half
		for j, p := range past {
			c := int64(s.c[j+1])
			high += c * (p[i] >> 32)
			low += c * (p[i] & mask)
		}
		high += low >> 32
		limit := int64(3) << (29 + s.bits) // the sum itself must not wrap around
		w[i] = z[i] - (high<<(32-s.bits) + low&mask>>s.bits)
		if high >= limit || high < -limit || w[i] >= 1<<62 || w[i] <= -1<<62 {
			clear(w)
			return nil, fmt.Errorf("%w: noise beyond 62 bits", ErrStrategy)
		}
	}
	return w, nil
}

// Round writes into dst what is added to the sum: w rounded half up to whole numbers. dst
// and w may be one slice.
func (s Strategy) Round(dst, w []int64) {
	half := int64(1) << s.bits >> 1
	for i, x := range w {
		dst[i] = (x + half) >> s.bits
	}
}
