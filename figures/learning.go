package figures

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/fl/baseline"
	"github.com/starling-agg/starling/fl/images"
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/fl/train"
	"github.com/starling-agg/starling/internal/draw"
	"github.com/starling-agg/starling/recipe"
)

// This file measures accuracy against epsilon of models that learn the digits in package
// train, in this system's rounds and in others'.

// learnedAt are the epsilons that are measured, and learnedSeeds the runs of each.
var learnedAt = []float64{1, 2, 4, 8}

const (
	learnedSeeds = 5
	learnedDelta = 1e-5
	passRounds   = 40 // of local noise, of which each device is in one
)

// A learner is a system in which a model learns.
type learner struct {
	name   string
	stroke draw.Stroke
	// options are those of a run at an epsilon.
	options func(o train.Options, epsilon float64) train.Options
	// world plays its rounds, of the recipe that would be used here.
	world func(o train.Options, r *recipe.Recipe, epsilon float64) (train.World, error)
	// flat: epsilon says nothing, so that one is measured.
	flat bool
	// unsaid: no recipe of its own says what it does; only the bound of one is used.
	unsaid bool
}

func sampledBy(o train.Options) float64 { return o.Sample.Float() }

// one is the deviation of one server's noise on the sum of reports of norm 1: that of a
// trusted server's at the same epsilon, for neighbours who come or go.
func one(r *recipe.Recipe) float64 {
	q, _ := r.Vector()
	return r.Noise.Spread().Deviation / math.Sqrt2 * q.Unit() / q.Norm()
}

func learners() []learner {
	as := func(o train.Options, _ float64) train.Options { return o }
	noised := func(times float64) func(o train.Options, r *recipe.Recipe, _ float64) (train.World, error) {
		return func(o train.Options, r *recipe.Recipe, _ float64) (train.World, error) {
			return baseline.New(r, baseline.Options{Sample: sampledBy(o), Sum: times * one(r), Seed: o.Seed}), nil
		}
	}
	ours := func(o train.Options, r *recipe.Recipe, _ float64) (train.World, error) {
		s, err := simulator.New(r, simulator.Options{Seed: o.Seed})
		return train.Simulated{Simulator: s}, err
	}
	line := func(c draw.Color, width float64, dashes ...float64) draw.Stroke {
		return draw.Stroke{Color: c, Width: width, Dashes: dashes}
	}
	return []learner{
		{name: "no privacy", stroke: line(draw.Ink, 1.5, 5, 3), flat: true, world: noised(0), options: func(o train.Options, _ float64) train.Options {
			o.Clip, o.Rate = 1.5, 18 // no gradient is longer
			return o
		}},
		{name: "clipping alone", stroke: line(draw.Grey, 1.5, 1.5, 2.5), flat: true, world: noised(0), options: func(o train.Options, _ float64) train.Options {
			o.Rate = 8
			return o
		}},
		{name: "one trusted server", stroke: line(draw.Green, 1.7), world: noised(1), options: as},
		{name: "ours, one of two honest", stroke: line(draw.Blue, 2.2), world: ours, options: as},
		{name: "ours, all in each round", stroke: line(draw.Blue, 1.6, 5, 3), world: ours, options: func(o train.Options, _ float64) train.Options {
			o.Sample = recipe.Rational{Num: 1, Den: 1}
			return o
		}},
		{name: "ours, correlated noise", stroke: line(draw.Blue, 1.6, 1.5, 2.5), world: ours, options: func(o train.Options, _ float64) train.Options {
			o.Sample, o.Correlated, o.Rounds, o.Covered, o.MinBatch = recipe.Rational{}, 8, 80, 80, 0
			return o
		}},
		{name: "calibrated as in paper 003", stroke: line(draw.Orange, 1.7), world: noised(2 * math.Sqrt2), options: as},
		{name: "noise on each device, one pass", unsaid: true, stroke: line(draw.Vermilion, 1.7), options: func(o train.Options, _ float64) train.Options {
			o.Rounds, o.Covered, o.Sample, o.MinBatch, o.Rate = passRounds, passRounds, recipe.Rational{Num: 1, Den: passRounds}, 20, 1
			return o
		}, world: func(o train.Options, r *recipe.Recipe, epsilon float64) (train.World, error) {
			q, _ := r.Vector()
			sigma, _, err := accountant.CalibrateGaussian(epsilon, learnedDelta, release.Ball(uint64(q.Dimension), 1), release.ReplaceOne, 1)
			return baseline.New(r, baseline.Options{Turns: passRounds, Each: sigma, Seed: o.Seed}), err
		}},
	}
}

// A learned is what the runs of a system came to at an epsilon.
type learned struct {
	accuracy []float64 // of each seed, in rising order
	both     float64   // epsilon where both servers are honest; NaN for who has none
}

// median and quartile of what was measured.
func (l learned) at(part float64) float64 {
	at := part * float64(len(l.accuracy)-1)
	low := int(at)
	high := min(low+1, len(l.accuracy)-1)
	return l.accuracy[low] + (at-float64(low))*(l.accuracy[high]-l.accuracy[low])
}

// learn runs a system with several seeds.
func learn(ctx context.Context, x learner, base train.Options, epsilon float64, seeds int) (learned, error) {
	out := learned{both: math.NaN()}
	exact, err := recipe.ParseDecimal(strconv.FormatFloat(epsilon, 'g', -1, 64))
	if err != nil {
		return out, err
	}
	base.Epsilon = exact
	o := x.options(base, epsilon).WithDefaults()
	said := o
	if x.unsaid {
		said.Sample = recipe.Rational{Num: 1, Den: 1}
	}
	r, err := said.Recipe()
	if err != nil {
		return out, fmt.Errorf("%s at %v: %w", x.name, epsilon, err)
	}
	for seed := range seeds {
		o.Seed = uint64(seed + 1)
		world, err := x.world(o, r, epsilon)
		if err != nil {
			return out, fmt.Errorf("%s: %w", x.name, err)
		}
		report, err := train.RunIn(ctx, o, r, world)
		if err != nil {
			return out, fmt.Errorf("%s at %v: %w", x.name, epsilon, err)
		}
		out.accuracy = append(out.accuracy, 100*report.Accuracy)
		if report.BothHonest != nil && strings.HasPrefix(x.name, "ours") {
			out.both = *report.BothHonest
		}
	}
	slices.Sort(out.accuracy)
	return out, nil
}

// together does a number of things on all cores.
func together[T any](n int, do func(i int) (T, error)) ([]T, error) {
	out, errs := make([]T, n), make([]error, n)
	var crew sync.WaitGroup
	places := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range n {
		crew.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			out[i], errs[i] = do(i)
		})
	}
	crew.Wait()
	return out, errors.Join(errs...)
}

// learnAll runs every system at every epsilon; one whose epsilon says nothing at the last.
func (o *Options) learnAll(list []learner, base train.Options) ([][]learned, error) {
	n := len(learnedAt)
	all, err := together(len(list)*n, func(i int) (learned, error) {
		x, j := list[i/n], i%n
		if x.flat && j < n-1 {
			return learned{}, nil
		}
		return learn(context.Background(), x, base, learnedAt[j], o.runs(learnedSeeds))
	})
	if err != nil {
		return nil, err
	}
	return slices.Collect(slices.Chunk(all, n)), nil
}

// learning is accuracy against epsilon.
func learning(o Options, _ *budget) (*output, error) {
	set, err := images.Digits()
	if err != nil {
		return nil, err
	}
	out := &output{title: "What privacy costs a model",
		rows: [][]string{{"system", "epsilon", "epsilon_both_honest", "accuracy_median", "accuracy_lower_quartile", "accuracy_upper_quartile", "seeds"}}}
	list := learners()
	measured, err := o.learnAll(list, train.Options{Set: set})
	if err != nil {
		return nil, err
	}
	var p panel
	var legend []key
	for i, x := range list {
		c := curve{name: x.name, stroke: x.stroke}
		for j, epsilon := range learnedAt {
			l := measured[i][j]
			if x.flat {
				l = measured[i][len(learnedAt)-1]
			}
			c.x, c.y = append(c.x, epsilon), append(c.y, l.at(0.5))
			if x.flat && j > 0 {
				continue
			}
			row := []string{x.name, number(epsilon), number(l.both), number(l.at(0.5)), number(l.at(0.25)), number(l.at(0.75)), strconv.Itoa(len(l.accuracy))}
			if x.flat {
				row[1] = ""
			}
			if math.IsNaN(l.both) {
				row[2] = ""
			}
			out.rows = append(out.rows, row)
		}
		p.curves = append(p.curves, c)
		legend = append(legend, key{name: x.name, stroke: x.stroke})
	}
	m := multiples{
		title:    out.title,
		subtitle: "Logistic regression of 650 parameters on the digits: 1,437 devices of one image, 360 test images. Median of 5 seeds; δ = 10^{−5}",
		caption: "ε is for a device that comes or goes, over all rounds, but for noise on each device: there for another image of a device in its one report, whoever " +
			"reads it. 80 rounds, a device in one of four by a secret coin that dummies hide (accounted for, the dummies too), unless the curve says otherwise; 40 rounds of one " +
			"pass. Ours: each of two servers adds all of the noise that one would; if both are honest ε is smaller than drawn (the table has it). Paper 003 counts replaced images, twice the " +
			"distance, and both servers' noise: √8 times that of a trusted server. Correlated noise: each device in one of eight rounds in turn, and nothing secret. " +
			"The rate of a step falls with ε as docs/bench/learning.md says; choosing it is not counted.",
		panels:      [][]panel{{p}},
		x:           axis{low: 1, high: 8, log: true, ticks: learnedAt, label: "ε", format: func(v float64) string { return strconv.FormatFloat(v, 'g', 2, 64) }},
		y:           axis{low: 0, high: 100, ticks: []float64{0, 20, 40, 60, 80, 100}, label: "accuracy, per cent", format: func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }},
		legend:      legend,
		panelHeight: 320, right: 20,
	}
	m.words = m.subtitle + ". " + m.caption
	out.picture = m.picture()
	return out, nil
}

// partitions is accuracy against epsilon of federated averaging, with images dealt evenly and
// by shards of labels.
func partitions(o Options, _ *budget) (*output, error) {
	set, err := images.Digits()
	if err != nil {
		return nil, err
	}
	out := &output{title: "Devices that are not alike",
		rows: [][]string{{"partition", "images_each", "local_steps", "epsilon", "accuracy_median", "accuracy_lower_quartile", "accuracy_upper_quartile", "seeds"}}}
	ours := learners()[slices.IndexFunc(learners(), func(l learner) bool { return l.name == "ours, one of two honest" })]
	var p panel
	var legend []key
	for _, c := range []struct {
		partition string
		steps     int
		stroke    draw.Stroke
	}{
		{train.IID, 1, draw.Stroke{Color: draw.Blue, Width: 1.9}}, {train.IID, 5, draw.Stroke{Color: draw.Blue, Width: 1.6, Dashes: []float64{5, 3}}},
		{train.Shards, 1, draw.Stroke{Color: draw.Vermilion, Width: 1.9}}, {train.Shards, 5, draw.Stroke{Color: draw.Vermilion, Width: 1.6, Dashes: []float64{5, 3}}},
	} {
		measured, err := o.learnAll([]learner{ours}, train.Options{Set: set, Images: partitionImages, LocalSteps: c.steps, Partition: c.partition, Rounds: 40, Covered: 40})
		if err != nil {
			return nil, err
		}
		line := curve{stroke: c.stroke}
		for j, epsilon := range learnedAt {
			l := measured[0][j]
			line.x, line.y = append(line.x, epsilon), append(line.y, l.at(0.5))
			out.rows = append(out.rows, []string{c.partition, strconv.Itoa(partitionImages), strconv.Itoa(c.steps), number(epsilon), number(l.at(0.5)), number(l.at(0.25)), number(l.at(0.75)),
				strconv.Itoa(len(l.accuracy))})
		}
		p.curves = append(p.curves, line)
		legend = append(legend, key{name: fmt.Sprintf("%s, %d local steps", c.partition, c.steps), stroke: c.stroke})
	}
	m := multiples{
		title:    out.title,
		subtitle: fmt.Sprintf("Logistic regression on the digits: %d devices of %d images each, all of them in each of 40 rounds. Median of 5 seeds; δ = 10^{−5}", 1437/partitionImages, partitionImages),
		caption: "ε is for another device's images in place of a device's, over all rounds, where one of two servers is honest and each adds all of the noise. Evenly (iid) a device has the next images; " +
			"by shards it has images of two labels at most (McMahan et al. 2017). One local step reports the mean gradient, five how far they take the model.",
		panels:      [][]panel{{p}},
		x:           axis{low: 1, high: 8, log: true, ticks: learnedAt, label: "ε", format: func(v float64) string { return strconv.FormatFloat(v, 'g', 2, 64) }},
		y:           axis{low: 0, high: 100, ticks: []float64{0, 20, 40, 60, 80, 100}, label: "accuracy, per cent", format: func(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }},
		legend:      legend,
		panelHeight: 300, right: 20,
	}
	m.words = m.subtitle + ". " + m.caption
	out.picture = m.picture()
	return out, nil
}

// partitionImages each device has, of which a shard is half.
const partitionImages = 4
