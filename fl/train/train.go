package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/starling-agg/starling/fl/images"
	"github.com/starling-agg/starling/fl/internal/stream"
	"github.com/starling-agg/starling/fl/model"
	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// A trainer is one training under way.
type trainer struct {
	o         Options
	model     model.Model
	recipe    *recipe.Recipe
	norm      float64 // the recipe's bound, in units of the entries
	unit      float64 // what the integers of a sum count, in the same
	world     World
	images    []images.Image // of all devices
	clip      float64        // the clipping norm now
	optimizer *optimizer.Optimizer
	now       []float64 // parameters
	mean      []float64 // of the last rounds' parameters
	averaged  int       // how many are in mean
	snr       float64   // of the last round that was released
	buffers   sync.Pool // of workers
	report    *Report
}

// A World plays the rounds of one recipe, one after another: the simulator, or servers.
type World interface {
	// Round plays one round of a number of devices, as [simulator.Simulator.Round] does:
	// answer is asked for their reports, from several goroutines. A *simulator.TooFewError
	// and a *simulator.BudgetError say that nothing was released; other errors end the
	// training.
	Round(ctx context.Context, devices int, answer simulator.Answer) (*simulator.Sum, error)
	// Rounds that were begun.
	Rounds() uint32
}

// Run trains in the simulator. It ends early with ctx, and with a [*simulator.BudgetError]
// when the guarantee covers no more rounds: then the report is of those that it covered.
func Run(ctx context.Context, o Options) (*Report, error) {
	begun := time.Now()
	r, err := o.Recipe()
	if err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	sim, err := o.simulator(r)
	if err != nil {
		return nil, err
	}
	report, err := RunIn(ctx, o, r, sim)
	if report != nil {
		report.Seconds = time.Since(begun).Seconds()
	}
	return report, err
}

// RunIn is [Run] in a world that plays rounds of r, which was made of o.Asked. The report's
// Seconds are those of the rounds.
func RunIn(ctx context.Context, o Options, r *recipe.Recipe, world World) (*Report, error) {
	begun := time.Now()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.WithDefaults()
	t := &trainer{o: o, model: o.newModel(), recipe: r, world: world, images: o.partition(), clip: o.Clip}
	q, _ := r.Vector()
	t.norm, t.unit = q.Norm(), q.Unit()
	t.now = t.model.Start(stream.New(o.Seed, "model", 0).Normal)
	t.mean = append([]float64(nil), t.now...)
	t.optimizer = optimizer.New(optimizer.Config{Kind: o.Optimizer, Rate: o.Rate, Momentum: o.Momentum}, len(t.now))
	var err error
	if t.report, err = t.newReport(); err != nil {
		return nil, err
	}
	err = t.rounds(ctx)
	if over := new(simulator.BudgetError); err != nil && !errors.As(err, &over) {
		return nil, err
	}
	t.report.Parameters = t.published()
	t.report.Seconds = time.Since(begun).Seconds()
	return t.report, err
}

// points is at most how many points the curve has, beside the first.
const points = 20

// rounds plays them all.
func (t *trainer) rounds(ctx context.Context) error {
	step := (t.o.Rounds + points - 1) / points
	for n := 1; n <= t.o.Rounds; n++ {
		if err := t.round(ctx); err != nil {
			return err
		}
		if n%step == 0 || n == t.o.Rounds || n == t.o.Covered {
			if err := t.point(); err != nil {
				return err
			}
		}
	}
	return nil
}

// round plays one round and steps the model, if it is released.
func (t *trainer) round(ctx context.Context) error {
	sum, err := t.world.Round(ctx, t.o.Devices, t.answer)
	if sum != nil {
		t.report.Unsent.Add(sum.Unsent)
	}
	t.report.Rounds = int(t.world.Rounds())
	if few := new(simulator.TooFewError); errors.As(err, &few) {
		t.report.Skipped++
		return nil
	}
	if err != nil {
		return err
	}
	t.snr = sum.SNR
	t.optimizer.Step(t.now, t.unscale(sum.Estimate))
	if float64(t.report.Rounds) > float64(t.o.Rounds)*(1-t.o.Average) {
		t.averaged++
		for i, x := range t.now {
			t.mean[i] += (x - t.mean[i]) / float64(t.averaged)
		}
	}
	return nil
}

// published is the model as it would be published now.
func (t *trainer) published() []float64 {
	if t.averaged > 0 {
		return t.mean
	}
	return t.now
}

// scratch is the memory of one device at work.
type scratch struct{ gradient, local []float64 }

// answer is what a device does: it computes how the model should change for its images, so
// that the clipping norm has the length of the recipe's bound, and reports it.
func (t *trainer) answer(device int, buf []float64) (simulator.Report, error) {
	mine := t.images[device*t.o.Images : (device+1)*t.o.Images]
	s, _ := t.buffers.Get().(*scratch)
	if s == nil {
		s = &scratch{make([]float64, len(t.now)), make([]float64, len(t.now))}
	}
	defer t.buffers.Put(s)
	t.update(s, buf[:len(t.now)], mine)
	t.scale(buf)
	if device < t.o.Attackers {
		return simulator.Report{Units: t.push(buf)}, nil
	}
	return simulator.Report{Vector: buf}, nil
}

// update overwrites dst with the mean gradient of images, or with how far local steps take
// the model, over their rate.
func (t *trainer) update(s *scratch, dst []float64, mine []images.Image) {
	if t.o.LocalSteps == 1 {
		t.gradient(s, dst, t.now, mine)
		return
	}
	copy(s.local, t.now)
	for range t.o.LocalSteps {
		t.gradient(s, dst, s.local, mine)
		for i, g := range dst {
			s.local[i] -= t.o.LocalRate * g
		}
	}
	for i := range dst {
		dst[i] = (t.now[i] - s.local[i]) / t.o.LocalRate
	}
}

// gradient overwrites dst with the mean gradient of images at parameters.
func (t *trainer) gradient(s *scratch, dst, parameters []float64, mine []images.Image) {
	if len(mine) == 1 {
		t.model.Gradient(dst, parameters, mine[0].Pixels, mine[0].Label)
		return
	}
	clear(dst)
	for _, image := range mine {
		t.model.Gradient(s.gradient, parameters, image.Pixels, image.Label)
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

// accuracy is the share of the test images that parameters tell right.
func (t *trainer) accuracy(parameters []float64) float64 {
	right := 0
	for _, image := range t.o.Set.Test {
		if t.model.Classify(parameters, image.Pixels) == image.Label {
			right++
		}
	}
	return float64(right) / float64(len(t.o.Set.Test))
}

// point adds one to the curve.
func (t *trainer) point() error {
	spent, err := account.LossAfter(t.recipe, t.o.turns(t.report.Rounds))
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	p := Point{Round: t.report.Rounds, Accuracy: t.accuracy(t.published()), Epsilon: spent.Epsilon, SNR: t.snr, Clip: t.clip}
	t.report.add(p)
	if t.o.Progress != nil {
		t.o.Progress(p)
	}
	return nil
}
