package local

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/projection"
	"github.com/starling-agg/starling/internal/outward"
)

// GaussianOptions describe a Gaussian.
type GaussianOptions struct {
	// Length of the vector of a device, 1 to 2^24.
	Length int
	// Projected, if not 0, is the length it is projected to, at most Length, by package
	// projection.
	Projected int
	// Projection seeds the projection. It is public, and new for each collection.
	Projection [32]byte
	// ClipNorm bounds the Euclidean norm of what is sent, before noise.
	ClipNorm float64
	// Units is how many integer steps make 1. ClipNorm times Units is 1 to 2^30.
	Units float64
	// Sigma2Num/Sigma2Den is sigma^2 of the discrete Gaussian noise of each element, in
	// squared steps.
	Sigma2Num, Sigma2Den uint64
}

// Validate returns an error that matches ErrParameter, or one of package noise for
// sigma^2, if an option is out of range.
func (o GaussianOptions) Validate() error {
	if o.Length < 1 || o.Length > MaxValues {
		return parameter("length", float64(o.Length), "1 to 2^24")
	}
	if o.Projected < 0 || o.Projected > o.Length {
		return parameter("projected length", float64(o.Projected), "0 to the length")
	}
	if !(o.ClipNorm > 0) || math.IsInf(o.ClipNorm, 0) {
		return parameter("clipping norm", o.ClipNorm, "a positive number")
	}
	if !(o.Units > 0) || math.IsInf(o.Units, 0) {
		return parameter("units", o.Units, "a positive number")
	}
	if s := o.ClipNorm * o.Units; !(s >= 1 && s <= 1<<30) {
		return parameter("clipping norm times units", s, "1 to 2^30")
	}
	_, err := noise.NewDiscreteGaussian(o.Sigma2Num, o.Sigma2Den)
	return err
}

// Gaussian clips a vector, projects it if asked to, rounds it towards zero to integers
// and adds discrete Gaussian noise. Where floating point decides what is sent, only the
// data is concerned; the norm is checked in integers. It is safe for concurrent use.
type Gaussian struct {
	o       GaussianOptions
	out     int
	project *projection.Projection // nil without one
	radius2 uint64                 // bounds the square of the norm of what is sent, in squared steps; at most 2^60
	noise   *noise.DiscreteGaussian
}

// NewGaussian returns a randomizer with these options.
func NewGaussian(o GaussianOptions) (*Gaussian, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	n, err := noise.NewDiscreteGaussian(o.Sigma2Num, o.Sigma2Den)
	if err != nil {
		return nil, err
	}
	radius := o.ClipNorm * o.Units
	g := &Gaussian{o: o, out: o.Length, radius2: uint64(radius * radius), noise: n}
	if o.Projected > 0 {
		g.out = o.Projected
		if g.project, err = projection.New(o.Length, o.Projected, o.Projection); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Length returns the length of what is sent.
func (g *Gaussian) Length() int { return g.out }

// Law returns what an accountant must know of such reports: the variance of the noise in
// each entry, and the norm that no vector exceeds, both in steps of 1/Units. Neighbours are
// any two vectors of that norm for replacement, and any one and none for deletion.
func (g *Gaussian) Law() (num, den uint64, radius float64) {
	num, den = g.noise.Sigma2()
	radius = math.Sqrt(float64(g.radius2))
	if g.out == 1 {
		radius = math.Floor(radius)
	} else if whole := uint64(radius); whole*whole != g.radius2 {
		radius = outward.Above(radius)
	}
	return num, den, radius
}

// Randomize returns the answer for x, of the option's length, in steps of 1/Units.
func (g *Gaussian) Randomize(x []float64) ([]int64, error) {
	if len(x) != g.o.Length {
		return nil, parameter("length", float64(len(x)), fmt.Sprint(g.o.Length))
	}
	for _, v := range x {
		if math.IsNaN(v) || math.Abs(v) > 1e100 {
			return nil, parameter("element", v, "a number of at most 10^100")
		}
	}
	v := x
	if g.project != nil {
		v = g.project.Apply(x)
	}
	norm := 0.0
	for _, e := range v {
		norm = math.Hypot(norm, e)
	}
	scale := g.o.Units
	if norm > g.o.ClipNorm {
		scale *= g.o.ClipNorm / norm
	}
	out := make([]int64, g.out)
	for step := 1e-15; !g.fill(out, v, scale); step *= 2 {
		scale *= max(0, 1-step) // floating point let the norm slip over
	}
	draws := make([]int64, g.out)
	g.noise.Sample(draws)
	for i, d := range draws {
		out[i] += d
	}
	clear(draws)
	return out, nil
}

// fill writes v times scale, whose norm is below 2^31, rounded towards zero, and reports
// whether it is within the radius.
func (g *Gaussian) fill(out []int64, v []float64, scale float64) bool {
	left := g.radius2
	fits := true
	for i, e := range v {
		out[i] = int64(e * scale)
		square := uint64(out[i] * out[i])
		fits = fits && square <= left
		left -= square
	}
	return fits
}

// Variance returns the variance of an element of the estimated sum of n devices' vectors.
// For a projection norm2 is the square of the norm of the true sum and square that of the
// true element, in squared units; else they do not matter.
func (g *Gaussian) Variance(n uint64, norm2, square float64) float64 {
	added := float64(n) * g.noise.Variance() / (g.o.Units * g.o.Units)
	if g.o.Projected == 0 {
		return added
	}
	return added + max(0, norm2-square)*projection.Loss(g.o.Length, g.out)
}

// Estimate returns the sum of n devices' clipped vectors, from the sum of their answers.
// It is unbiased for what they sent before noise: after clipping and rounding towards
// zero, less than a step a device and element. With a projection the estimate is unbiased
// over the projection too, if nothing was clipped after it; the variance then includes
// what the projection loses, taking the element itself for zero.
func (g *Gaussian) Estimate(sum []int64, n uint64) ([]Estimate, error) {
	if len(sum) != g.out {
		return nil, parameter("length", float64(len(sum)), fmt.Sprint(g.out))
	}
	added := g.Variance(n, 0, 0)
	y := make([]float64, g.out)
	norm2 := 0.0
	for i, e := range sum {
		y[i] = float64(e) / g.o.Units
		norm2 += y[i]*y[i] - added
	}
	if g.o.Projected == 0 {
		out := make([]Estimate, g.out)
		for i := range out {
			out[i] = Estimate{y[i], added}
		}
		return out, nil
	}
	out := make([]Estimate, g.o.Length)
	variance := g.Variance(n, norm2, 0)
	for j, v := range g.project.Transpose(y) {
		out[j] = Estimate{v, variance}
	}
	return out, nil
}
