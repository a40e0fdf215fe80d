package train

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/fl/images"
	"github.com/starling-agg/starling/fl/model"
	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// A trainer is one training under way.
type trainer struct {
	o         Options
	kind      model.Model
	recipe    *recipe.Recipe
	norm      float64 // the recipe's bound, in units of the entries
	unit      float64 // what the integers of a sum count, in the same
	world     World
	images    []images.Image // of all devices
	terms     *session.Terms
	model     Model     // as devices have it now
	seen      []float64 // its parameters
	optimizer *optimizer.Optimizer
	now       []float64 // the server's parameters
	sum, step []float64 // of a round: what was released, and the mean update
	mean      []float64 // of the last rounds' parameters
	averaged  int       // how many are in mean
	snr       float64   // of the last round that was released
	buffers   sync.Pool // of workers
	report    *Report
}

// A World plays the rounds of one recipe, one after another: the simulator, or servers.
type World interface {
	// Round plays one round of a number of devices, as [simulator.Simulator.Round] does:
	// answer is asked for their reports on the model, from several goroutines. next is the
	// model after it where somebody else steps it, whom devices have it from; nil has the
	// training step it. A *simulator.TooFewError and a *simulator.BudgetError say that
	// nothing was released; other errors end the training.
	Round(ctx context.Context, m *Model, devices int, answer simulator.Answer) (sum *simulator.Sum, next *Model, err error)
	// Rounds that were begun.
	Rounds() uint32
}

// A Model is what the devices of a round compute with, as it is published.
type Model struct {
	Parameters []float32
	Clip       float64 // the norm that updates are scaled down to
}

// Simulated is the world of a simulator.
type Simulated struct{ *simulator.Simulator }

// Round implements [World].
func (s Simulated) Round(ctx context.Context, _ *Model, devices int, answer simulator.Answer) (*simulator.Sum, *Model, error) {
	sum, err := s.Simulator.Round(ctx, devices, answer)
	return sum, nil, err
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
	report, err := RunIn(ctx, o, r, Simulated{sim})
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
	t := &trainer{o: o, kind: o.newModel(), recipe: r, world: world, images: o.partition(), terms: o.Terms()}
	q, _ := r.Vector()
	t.norm, t.unit = q.Norm(), q.Unit()
	first := o.Start()
	t.seen, t.sum, t.step = make([]float64, len(first)), make([]float64, t.terms.Entries()), make([]float64, len(first))
	t.publish(&Model{first, t.terms.Clipping.Norm})
	t.now, t.mean = slices.Clone(t.seen), slices.Clone(t.seen)
	t.optimizer = optimizer.New(o.Steps(), len(t.now))
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
	sum, next, err := t.world.Round(ctx, &t.model, t.o.Devices, t.answer)
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
	if t.snr = sum.SNR; next == nil {
		if next, err = t.stepped(sum); err != nil {
			return err
		}
	}
	if len(next.Parameters) != len(t.seen) {
		return fmt.Errorf("train: a model of %d parameters, want %d", len(next.Parameters), len(t.seen))
	}
	t.publish(next)
	if float64(t.report.Rounds) > float64(t.o.Rounds)*(1-t.o.Average) {
		t.averaged++
		for i, x := range t.seen {
			t.mean[i] += (x - t.mean[i]) / float64(t.averaged)
		}
	}
	return nil
}

// stepped is the model after a round was released.
func (t *trainer) stepped(sum *simulator.Sum) (*Model, error) {
	for i, x := range sum.Raw {
		t.sum[i] = float64(x) * t.unit
	}
	below, err := t.terms.Mean(t.step, t.sum, t.model.Clip, t.norm, t.o.expected())
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	t.optimizer.Step(t.now, t.step)
	next := &Model{make([]float32, len(t.now)), t.terms.Clipping.NextClip(t.model.Clip, below)}
	for i, x := range t.now {
		next.Parameters[i] = float32(x)
	}
	return next, nil
}

// publish has devices compute with a model.
func (t *trainer) publish(m *Model) {
	t.model = *m
	for i, x := range m.Parameters {
		t.seen[i] = float64(x)
	}
}

// published is the model as it would be published now.
func (t *trainer) published() []float64 {
	if t.averaged > 0 {
		return t.mean
	}
	return t.seen
}

// accuracy is the share of the test images that parameters tell right.
func (t *trainer) accuracy(parameters []float64) float64 {
	right := 0
	for _, image := range t.o.Set.Test {
		if t.kind.Classify(parameters, image.Pixels) == image.Label {
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
	p := Point{Round: t.report.Rounds, Accuracy: t.accuracy(t.published()), Epsilon: spent.Epsilon, SNR: t.snr, Clip: t.model.Clip / t.o.stretch()}
	t.report.add(p)
	if t.o.Progress != nil {
		t.o.Progress(p)
	}
	return nil
}
