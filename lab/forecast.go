package lab

import (
	"math"

	"github.com/starling-agg/starling/recipe"
)

// A forecast is the law of the squared error of one collection, of the estimated shares of a population: the sum over all
// places of (estimate - truth)^2 / devices^2.
type forecast struct {
	each     []float64 // the expected squared error of each place
	mean     float64   // their sum
	variance float64   // of the sum
}

// newForecast is what the recipe says of such errors for a population of which truth gives the counts. Devices beyond their
// sum have the default answer. The population is fixed, and only its sampling and the noise are random.
func newForecast(r *recipe.Recipe, truth []int64, devices uint64, reporting float64) *forecast {
	f := &forecast{}
	n := float64(devices)
	for _, t := range truth {
		share := float64(t) / n
		v := r.ForecastError([]float64{share}, devices, true)
		f.each = append(f.each, v)
		f.mean += v
		// The square of an error of variance v and fourth cumulant k has variance 2 v^2 + k. Each of t answers is reported
		// by a coin of its own, whose fourth cumulant is p(1-p)(1-6p(1-p)); that of the noise is next to nothing.
		coin := reporting * (1 - reporting)
		f.variance += 2*v*v + float64(t)*coin*(1-6*coin)/math.Pow(reporting*n, 4)
	}
	return f
}

// newKnownForecast is the same for a sample without replacement of m of the devices.
func newKnownForecast(r *recipe.Recipe, truth []int64, devices, m uint64) *forecast {
	f := &forecast{}
	noise := r.ForecastError([]float64{0}, m, true)
	left := float64(devices-m) / float64(devices-1) / float64(m)
	for i, t := range truth {
		p := float64(t) / float64(devices)
		v := noise + p*(1-p)*left
		f.each = append(f.each, v)
		f.mean += v
		f.variance += 2 * v * v
		for j, u := range truth { // those in one place are not in another
			if i != j {
				c := p * float64(u) / float64(devices) * left
				f.variance += 2 * c * c
			}
		}
	}
	return f
}

// Standard normal quantiles: outside of which 0.1 % and 10^-6 lie, on both sides together.
const (
	z999   = 3.290527
	zNever = 4.891638
)

// interval holds the mean squared error of so many collections but for the part of cases that z stands for. The mean is taken
// for a gamma variable of the forecast's mean and variance; its quantiles are Wilson and Hilferty's (1931).
func (f *forecast) interval(collections int, z float64) (low, high float64) {
	freedom := 2 * f.mean * f.mean / f.variance * float64(collections)
	quantile := func(z float64) float64 {
		c := 2 / (9 * freedom)
		return f.mean * math.Pow(max(0, 1-c+z*math.Sqrt(c)), 3)
	}
	return quantile(-z), quantile(z)
}
