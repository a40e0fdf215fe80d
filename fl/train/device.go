package train

import (
	"errors"
	"math"

	"github.com/starling-agg/starling/fl/images"
	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/fl/simulator"
)

// Of adaptive clipping: the rate by which the norm moves, and the bit's share of the
// recipe's bound.
const (
	clipRate = 0.2
	bitShare = 0.1
)

// Terms are what devices must know of the training beside the recipe.
func (o Options) Terms() *session.Terms {
	o = o.WithDefaults()
	t := &session.Terms{
		Layout:    []session.Tensor{{Name: "parameters", Shape: []uint32{uint32(o.newModel().Parameters())}}},
		Algorithm: session.FedSGD, LocalSteps: 1,
		Clipping: session.Clipping{Norm: o.Clip * o.stretch()}, Rounds: uint32(o.Covered),
	}
	if o.LocalSteps > 1 {
		t.Algorithm, t.LocalSteps, t.LocalRate = session.FedAvg, uint32(o.LocalSteps), o.LocalRate
	}
	if o.AdaptiveClip > 0 {
		t.Clipping.Adaptive = &session.Adaptive{Quantile: o.AdaptiveClip, Rate: clipRate, Weight: bitShare}
	}
	return t
}

// stretch is how long a session's update is for one in the units of Clip: gradients are what
// they are, and the way of local steps is in units of their rate.
func (o *Options) stretch() float64 {
	if o.LocalSteps > 1 {
		return o.LocalRate
	}
	return 1
}

// Steps is how the server steps the model along mean updates. Rate is for updates in units
// of Clip, and Adam's for any.
func (o Options) Steps() optimizer.Config {
	o = o.WithDefaults()
	c := optimizer.Config{Kind: o.Optimizer, Rate: o.Rate, Momentum: o.Momentum}
	if o.Optimizer == SGD {
		c.Rate /= o.Clip * o.stretch()
	}
	return c
}

// scratch is the memory of one device at work.
type scratch struct {
	update, gradient, local []float64
	told                    []float32
}

func newScratch(parameters int) *scratch {
	zeros := func() []float64 { return make([]float64, parameters) }
	return &scratch{zeros(), zeros(), zeros(), make([]float32, parameters)}
}

// answer is what a device does: it computes how the model should change for its images, so
// that the clipping norm has the length of the recipe's bound, and reports it.
func (t *trainer) answer(device int, buf []float64) (simulator.Report, error) {
	s, _ := t.buffers.Get().(*scratch)
	if s == nil {
		s = newScratch(len(t.now))
	}
	defer t.buffers.Put(s)
	t.update(s, s.update, t.images[device*t.o.Images:(device+1)*t.o.Images])
	for i, x := range s.update {
		s.told[i] = float32(x)
	}
	err := t.terms.Vector(buf, s.told, t.model.Clip, t.norm)
	if infinite := new(session.NotFiniteError); errors.As(err, &infinite) {
		buf[0] = math.NaN() // the device's software sends nothing
	} else if err != nil {
		return simulator.Report{}, err
	}
	if device < t.o.Attackers {
		return simulator.Report{Units: t.push(buf)}, nil
	}
	return simulator.Report{Vector: buf}, nil
}

// update overwrites dst with the mean gradient of images, or with the way back from where
// local steps take the model.
func (t *trainer) update(s *scratch, dst []float64, mine []images.Image) {
	if t.o.LocalSteps == 1 {
		t.gradient(s, dst, t.seen, mine)
		return
	}
	copy(s.local, t.seen)
	for range t.o.LocalSteps {
		t.gradient(s, dst, s.local, mine)
		for i, g := range dst {
			s.local[i] -= t.o.LocalRate * g
		}
	}
	for i := range dst {
		dst[i] = t.seen[i] - s.local[i]
	}
}

// gradient overwrites dst with the mean gradient of images at parameters.
func (t *trainer) gradient(s *scratch, dst, parameters []float64, mine []images.Image) {
	if len(mine) == 1 {
		t.kind.Gradient(dst, parameters, mine[0].Pixels, mine[0].Label)
		return
	}
	clear(dst)
	for _, image := range mine {
		t.kind.Gradient(s.gradient, parameters, image.Pixels, image.Label)
		for i, g := range s.gradient {
			dst[i] += g / float64(len(mine))
		}
	}
}

// push is what an attacker sends in place of a vector: its opposite, so many times as long
// as the recipe allows.
func (t *trainer) push(vector []float64) []int64 {
	norm := 0.0
	for _, x := range vector {
		norm += x * x
	}
	if norm == 0 {
		norm = 1
	}
	scale := -t.o.Push * t.norm / t.unit / math.Sqrt(norm)
	units := make([]int64, len(vector))
	for i, x := range vector {
		units[i] = int64(x * scale) // towards 0, so that what is allowed is not exceeded by rounding
	}
	return units
}
