// Package baseline plays rounds of other systems than this one, for comparison: without
// noise, with the noise of one trusted server, with noise on each device, or calibrated as
// paper 003 does it. Devices, models and optimisers are those of package train; sums are of
// floating-point numbers, and coins and noise follow from a seed.
package baseline

import (
	"context"
	"math"

	"github.com/starling-agg/starling/fl/internal/stream"
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/fl/train"
	"github.com/starling-agg/starling/recipe"
)

// A World is a [train.World] of another system.
type World struct {
	norm, unit float64 // the recipe's bound, and what the integers of a sum count
	o          Options
	round      uint32
	buf        []float64
}

// Options are how a system plays its rounds.
type Options struct {
	// Sample is the probability with which a device reports in a round; with Turns it is in
	// one of as many rounds, and in turn.
	Sample float64
	Turns  int
	// Sum is the deviation of the noise on each entry of the sum, and Each of a device's own on
	// its report, both for reports of norm 1.
	Sum, Each float64
	Seed      uint64
}

// New is a world of the rounds of a vector recipe, whose noise and coins are not used.
func New(r *recipe.Recipe, o Options) *World {
	q, _ := r.Vector()
	return &World{norm: q.Norm(), unit: q.Unit(), o: o, buf: make([]float64, q.Dimension)}
}

// Rounds implements [train.World].
func (w *World) Rounds() uint32 { return w.round }

// Round implements [train.World].
func (w *World) Round(ctx context.Context, _ *train.Model, devices int, answer simulator.Answer) (*simulator.Sum, *train.Model, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	coins, noise := stream.New(w.o.Seed, "baseline coins", uint64(w.round)), stream.New(w.o.Seed, "baseline noise", uint64(w.round))
	sum := make([]float64, len(w.buf))
	out := &simulator.Sum{Raw: make([]int64, len(sum))}
	for device := range devices {
		if w.o.Turns > 0 && device%w.o.Turns != int(w.round)%w.o.Turns {
			continue
		}
		if w.o.Turns == 0 && w.o.Sample < 1 && coins.Uniform() >= w.o.Sample {
			continue
		}
		r, err := answer(device, w.buf)
		if err != nil {
			return nil, nil, err
		}
		out.Reports++
		for i, x := range r.Vector {
			sum[i] += x
			if w.o.Each > 0 {
				sum[i] += w.o.Each * w.norm * noise.Normal()
			}
		}
	}
	w.round++
	signal := 0.0
	for i, x := range sum {
		signal += x * x
		if w.o.Sum > 0 {
			x += w.o.Sum * w.norm * noise.Normal()
		}
		out.Raw[i] = int64(math.Round(x / w.unit))
	}
	if deviation := math.Hypot(w.o.Sum, w.o.Each*math.Sqrt(float64(out.Reports))); deviation > 0 {
		out.SNR = math.Sqrt(signal) / (deviation * w.norm * math.Sqrt(float64(len(sum))))
	}
	return out, nil, nil
}
