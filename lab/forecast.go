package lab

import (
	"math"

	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/recipe"
)

// A forecast is the distribution of the squared error of one collection, of the estimated
// shares of a population: the sum over all places of (estimate - truth)^2 / devices^2.
// The errors are taken for normal and independent.
type forecast struct {
	each []float64 // the expected squared error of each place
	mean float64   // their sum
}

// newForecast is what the recipe says of such errors for a population of which truth
// gives the counts. The population is fixed, and only its sampling and the noise are
// random.
func newForecast(r *recipe.Recipe, truth []int64, devices uint64) *forecast {
	f := &forecast{}
	for _, t := range truth {
		f.add(r.ForecastError([]float64{float64(t) / float64(devices)}, devices, true))
	}
	return f
}

// newKnownForecast is the same for a sample without replacement of m of the devices. Its
// errors are slightly dependent, which is left out: the noise is the larger part.
func newKnownForecast(r *recipe.Recipe, truth []int64, devices, m uint64) *forecast {
	f := &forecast{}
	noise := r.ForecastError([]float64{0}, m, true)
	left := float64(devices-m) / float64(devices-1) / float64(m)
	for _, t := range truth {
		p := float64(t) / float64(devices)
		f.add(noise + p*(1-p)*left)
	}
	return f
}

func (f *forecast) add(v float64) {
	f.each = append(f.each, v)
	f.mean += v
}

// Parts of cases outside of an interval, on both sides together.
const (
	outside999   = 1e-3
	outsideNever = 1e-7
)

// interval returns the bounds of the mean squared error over the given collections but
// for the part outside of cases.
func (f *forecast) interval(collections int, outside float64) (low, high float64) {
	most := 0.0
	for _, v := range f.each {
		most = max(most, v)
	}
	// s is where the distribution is tilted to have the quantile as its mean: below 0 for
	// the lower one, at most 1/(2 most) for the upper one. The tail falls as s grows.
	quantile := func(low, high, tail float64) float64 {
		for range 200 {
			if mid := (low + high) / 2; f.above(mid, collections) > tail {
				low = mid
			} else {
				high = mid
			}
		}
		return f.tilted(high)
	}
	return quantile(-1e6/most, -1e-9/most, 1-outside/2), quantile(1e-9/most, outward.Down(1/(2*most)), outside/2)
}

// tilted is the mean of one squared error under the distribution tilted by s.
func (f *forecast) tilted(s float64) (mean float64) {
	for _, v := range f.each {
		mean += v / (1 - 2*s*v)
	}
	return mean
}

// above is the probability that the mean squared error over the given collections is
// above tilted(s), by the saddlepoint approximation of Lugannani and Rice (1980), good to
// some per cent far into the tails of such weighted sums of squares. s is not 0.
func (f *forecast) above(s float64, collections int) float64 {
	n := float64(collections)
	k, variance := 0.0, 0.0
	for _, v := range f.each {
		k -= n * math.Log1p(-2*s*v) / 2
		variance += n * 2 * v * v / ((1 - 2*s*v) * (1 - 2*s*v))
	}
	w := math.Copysign(math.Sqrt(2*(s*n*f.tilted(s)-k)), s)
	u := s * math.Sqrt(variance)
	return math.Erfc(w/math.Sqrt2)/2 + math.Exp(-w*w/2)/math.Sqrt(2*math.Pi)*(1/u-1/w)
}
