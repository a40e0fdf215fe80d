package train

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/fl/images"
	"github.com/starling-agg/starling/fl/internal/stream"
	"github.com/starling-agg/starling/fl/model"
	"github.com/starling-agg/starling/fl/optimizer"
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// The models and the optimisers by name.
const (
	Logistic    = "logistic"
	Network     = "network"
	Convolution = "convolution"
	SGD         = optimizer.SGD
	Adam        = optimizer.Adam
)

// Options say what is trained, and under which guarantee. Fields that are zero take the
// defaults of [Options.WithDefaults].
type Options struct {
	// Set is required.
	Set *images.Set
	// Model is Logistic, the default, Network or Convolution; the last is for images of
	// pixels.
	Model string
	// Hidden is the size of a network's hidden layer; default 32, or 8 filters.
	Hidden int

	// Epsilon and Delta bound what all rounds tell of one device; 4 and 10^-5 if zero.
	Epsilon, Delta recipe.Decimal
	// Rounds is how many rounds there are; 1 to 10,000.
	Rounds int
	// Covered is how many of them the guarantee covers; all if zero. Training ends with a
	// [*simulator.BudgetError] before the first that is not covered.
	Covered int
	// Sample is the probability with which a device takes part in a round; 1/1 is in all,
	// and the default below 1,000 devices.
	Sample recipe.Rational
	// Correlated, if not 0, is of how many bands the noise is of which later rounds take back a
	// part (package correlated): 2 to 64. Each device takes part in one of as many rounds,
	// all in turn, and there are no coins.
	Correlated int
	// NoiseScale is that of the simulator: a large cohort by a small one. 0/0 is all noise.
	NoiseScale recipe.Rational
	// MinBatch is B, the least reports of a round that is released; half of those expected
	// if zero, and 20 at least.
	MinBatch int

	// Devices is how many there are, each with images of its own; as many as there are
	// images for if zero.
	Devices int
	// Images is how many a device has; default 1. LocalSteps is how often a device steps
	// along the mean gradient of its images before it reports, at LocalRate; default 1: it
	// reports the gradient.
	Images, LocalSteps int
	LocalRate          float64
	// Partition is which images devices have: IID, the default, or Shards, for which Images
	// is even.
	Partition string
	// Clip is the norm to which a device scales its vector down. With AdaptiveClip above 0
	// it begins there, and follows that quantile of the norms of updates, below 1.
	Clip, AdaptiveClip float64
	// Optimizer of the server: SGD, the default, or Adam. Rate is its learning rate, for
	// gradients in units of Clip; Momentum is from 0 to below 1.
	Optimizer      string
	Rate, Momentum float64
	// Average is the share of the rounds over whose models the published one is the mean;
	// from 0, only the last one's, to 1. Negative is 0.
	Average float64

	// Attackers are how many of the devices report, in every round, the opposite of their
	// gradient scaled to Push times the recipe's bound; default 100 times.
	Attackers int
	Push      float64
	// Unvalidated has servers that verify no proofs, to show what attackers then do.
	Unvalidated bool

	// Seed of all that is random.
	Seed uint64
	// Progress is told of each point of the curve; nil is nobody.
	Progress func(Point)
}

// Bounds of options.
const (
	maxRounds = 10_000
	maxHidden = 1024
	minBatch  = recipe.SampledBatchFloor
)

// seriesBits is the precision of the coefficients of correlated noise, in binary places.
const seriesBits = 8

// fracBits is the precision of what devices send, in binary places at norm 1: rounding is
// far below the noise, and field32 has room for tens of thousands of reports.
const fracBits = 14

// learningRate is the default for SGD, of what was best on the tuning part of MNIST's
// training images (docs/bench/learning.md): the less noise, the longer a step may be.
func learningRate(epsilon float64) float64 { return min(max(2*math.Pow(epsilon, 0.75), 0.5), 12) }

// WithDefaults fills in what is zero.
func (o Options) WithDefaults() Options {
	fill := func(x *float64, by float64) {
		if *x == 0 {
			*x = by
		}
	}
	fillInt := func(x *int, by int) {
		if *x == 0 {
			*x = by
		}
	}
	if o.Model == "" {
		o.Model = Logistic
	}
	if o.Optimizer == "" {
		o.Optimizer = SGD
	}
	if o.Epsilon == (recipe.Decimal{}) {
		o.Epsilon = recipe.Decimal{Coefficient: 4}
	}
	if o.Delta == (recipe.Decimal{}) {
		o.Delta = recipe.Decimal{Coefficient: 1, Scale: 5}
	}
	fillInt(&o.Images, 1)
	if o.Set != nil {
		fillInt(&o.Devices, o.most())
	}
	small := o.Set != nil && len(o.Set.Train) < 4000
	switch {
	case small:
		fillInt(&o.Rounds, 80)
	case o.Model == Convolution:
		fillInt(&o.Rounds, 240)
	}
	fillInt(&o.Rounds, 120)
	fillInt(&o.Covered, o.Rounds)
	if o.Sample == (recipe.Rational{}) {
		o.Sample = recipe.Rational{Num: 1, Den: 8}
		switch {
		case o.Correlated > 0, o.Set != nil && o.Devices < 1000: // too few to hide among: see recipe.Dummies
			o.Sample.Den = 1
		case small:
			o.Sample.Den = 4
		}
	}
	fillInt(&o.Hidden, map[string]int{Convolution: 8}[o.Model])
	fillInt(&o.Hidden, 32)
	fillInt(&o.LocalSteps, 1)
	fill(&o.LocalRate, 0.5)
	fill(&o.Clip, map[string]float64{Network: 0.5}[o.Model])
	fill(&o.Clip, 0.3)
	if o.Optimizer == Adam {
		fill(&o.Rate, 0.05)
	}
	rate := learningRate(o.Epsilon.Float())
	if o.Model != Logistic { // two layers move at once
		rate *= 0.5
	}
	if o.Model == Convolution && !small { // and for twice as many rounds
		rate *= 0.6
	}
	fill(&o.Rate, rate)
	fill(&o.Momentum, 0.9)
	fill(&o.Average, 0.5)
	o.Average = max(0, o.Average)
	fill(&o.Push, 100)
	if o.Partition == "" {
		o.Partition = IID
	}
	if o.Set != nil && o.MinBatch == 0 {
		o.MinBatch = max(minBatch, int(o.expected()/2))
	}
	return o
}

// cohort is how many devices decide in a round at most, and expected how many of them
// report.
func (o *Options) cohort() int {
	each := max(1, o.Correlated)
	return (o.Devices + each - 1) / each
}
func (o *Options) expected() float64 { return float64(o.cohort()) * o.Sample.Float() }

// turns is in how many of the first rounds the busiest device takes part.
func (o *Options) turns(rounds int) uint32 {
	each := max(1, o.Correlated)
	return uint32((rounds + each - 1) / each)
}

// most is for how many devices there are images.
func (o *Options) most() int { return len(o.Set.Train) / max(1, o.Images) }

// An OptionError says which option is out of its bounds.
type OptionError struct{ Option, Problem string }

func (e *OptionError) Error() string { return fmt.Sprintf("train: %s %s", e.Option, e.Problem) }

// Validate returns an *OptionError for what is wrong, once defaults are filled in.
func (o Options) Validate() error {
	if o.Set == nil || len(o.Set.Train) == 0 || len(o.Set.Test) == 0 {
		return &OptionError{"data", "is missing"}
	}
	o = o.WithDefaults()
	wrong := func(option, format string, args ...any) error {
		return &OptionError{option, fmt.Sprintf(format, args...)}
	}
	size := o.Set.Pixels()
	for _, part := range [][]images.Image{o.Set.Train, o.Set.Test} {
		for _, image := range part {
			if len(image.Pixels) != size || image.Label < 0 || image.Label >= images.Classes {
				return wrong("data", "has an image of %d numbers and label %d; want %d, and 0 to %d", len(image.Pixels), image.Label, size, images.Classes-1)
			}
		}
	}
	positive := func(x float64) bool { return x > 0 && !math.IsInf(x, 0) }
	switch {
	case o.Model != Logistic && o.Model != Network && o.Model != Convolution:
		return wrong("model", "is %q; want %s, %s or %s", o.Model, Logistic, Network, Convolution)
	case o.Model == Convolution && (size != o.Set.Side*o.Set.Side || o.Set.Side < 4):
		return wrong("model", "is %s, and images are no squares of pixels", Convolution)
	case o.Hidden < 1 || o.Hidden > maxHidden:
		return wrong("hidden", "is %d; want 1 to %d", o.Hidden, maxHidden)
	case o.Rounds < 1 || o.Rounds > maxRounds:
		return wrong("rounds", "are %d; want 1 to %d", o.Rounds, maxRounds)
	case o.Covered < 1 || o.Covered > maxRounds:
		return wrong("covered rounds", "are %d; want 1 to %d", o.Covered, maxRounds)
	case !(o.Sample.Num >= 1 && o.Sample.Num <= o.Sample.Den):
		return wrong("sample", "is %s; want above 0, at most 1", o.Sample)
	case o.Images < 1 || o.most() < minBatch:
		return wrong("images", "are %d each of %d; want 1 or more, and %d devices at least", o.Images, len(o.Set.Train), minBatch)
	case o.Devices < minBatch || o.Devices > o.most():
		return wrong("devices", "are %d; want %d to %d, for which there are images", o.Devices, minBatch, o.most())
	case o.Partition != IID && o.Partition != Shards:
		return wrong("partition", "is %q; want %s or %s", o.Partition, IID, Shards)
	case o.Partition == Shards && o.Images%shardsEach != 0:
		return wrong("images", "are %d each; %s are %d of as many each", o.Images, Shards, shardsEach)
	case o.AdaptiveClip != 0 && !(o.AdaptiveClip > 0 && o.AdaptiveClip < 1):
		return wrong("adaptive clip", "is %g; want a quantile above 0 and below 1", o.AdaptiveClip)
	case o.Correlated != 0 && (o.Correlated < 2 || o.Correlated > min(correlated.MaxBands, o.Covered)):
		return wrong("correlated noise", "has %d bands; want 2 to %d, and no more than rounds", o.Correlated, correlated.MaxBands)
	case o.Correlated != 0 && o.Sample.Num != o.Sample.Den:
		return wrong("sample", "is %s; want 1 with correlated noise, whose devices take turns without coins", o.Sample)
	case o.NoiseScale != (recipe.Rational{}) && !(o.NoiseScale.Valid() && o.NoiseScale.Num <= o.NoiseScale.Den):
		return wrong("noise scale", "is %s; want above 0, at most 1", o.NoiseScale)
	case o.LocalSteps < 1 || o.LocalSteps > 100:
		return wrong("local steps", "are %d; want 1 to 100", o.LocalSteps)
	case o.MinBatch < minBatch || o.MinBatch > o.Devices/max(1, o.Correlated):
		return wrong("least batch", "is %d; want %d to the %d devices of a round", o.MinBatch, minBatch, o.Devices/max(1, o.Correlated))
	case !positive(o.LocalRate) || !positive(o.Clip) || !positive(o.Rate):
		return wrong("rates and clipping norm", "are %g, %g and %g; want numbers above 0", o.LocalRate, o.Rate, o.Clip)
	case o.Optimizer != SGD && o.Optimizer != Adam:
		return wrong("optimizer", "is %q; want %s or %s", o.Optimizer, SGD, Adam)
	case !(o.Momentum >= 0 && o.Momentum < 1):
		return wrong("momentum", "is %g; want 0 to below 1", o.Momentum)
	case !(o.Average >= 0 && o.Average <= 1):
		return wrong("average", "is %g; want 0 to 1", o.Average)
	case o.Attackers < 0 || o.Attackers > o.Devices || !positive(o.Push) || o.Push > 1000:
		return wrong("attackers", "are %d, with %g times the norm; want 0 to the %d devices, and at most 1000 times", o.Attackers, o.Push, o.Devices)
	}
	return nil
}

// newModel returns the model of the options.
func (o *Options) newModel() model.Model {
	switch o.Model {
	case Network:
		return model.NewNetwork(o.Set.Pixels(), o.Hidden, images.Classes)
	case Convolution:
		filter, stride := 3, 1
		if o.Set.Side >= 20 {
			filter, stride = 6, 2
		}
		return model.NewConvolution(o.Set.Side, filter, stride, o.Hidden, images.Classes)
	}
	return model.NewLogistic(o.Set.Pixels(), images.Classes)
}

// Start is the parameters of the first model.
func (o Options) Start() []float32 {
	o = o.WithDefaults()
	start := o.newModel().Start(stream.New(o.Seed, "model", 0).Normal)
	out := make([]float32, len(start))
	for i, x := range start {
		out[i] = float32(x)
	}
	return out
}

// Asked is what recipe is asked for of the accountant. Its servers are examples, which who
// has some puts others in the place of.
func (o Options) Asked() (account.Options, error) {
	if err := o.Validate(); err != nil {
		return account.Options{}, err
	}
	o = o.WithDefaults()
	q, err := recipe.NewVector(uint32(o.Terms().Entries()), 1, fracBits, 0)
	if err != nil {
		return account.Options{}, fmt.Errorf("train: %w", err)
	}
	devices := uint64(o.Devices)
	made := account.Options{
		Name:        "A model that tells digits apart",
		Description: "How a public model should change to fit the images of your device, of which only the sum over many devices is released.",
		Population:  &recipe.Population{Statement: fmt.Sprintf("simulated devices with the images of %s", o.Set.Name), Expected: devices},
		Query:       q, MinBatch: uint64(o.MinBatch),
		Leader: "https://leader.example/", Helper: "https://helper.example/",
		Kind: account.GaussianNoise, Epsilon: o.Epsilon, Delta: o.Delta, Rounds: uint32(o.Covered),
	}
	if o.Correlated > 0 {
		strategy, err := correlated.Optimize(o.Correlated, o.Covered, seriesBits)
		if err != nil {
			return account.Options{}, fmt.Errorf("train: %w", err)
		}
		made.Kind, made.Rounds = account.CorrelatedNoise, o.turns(o.Covered)
		made.Series = correlated.Series{Strategy: strategy, Separation: uint64(o.Correlated), Rounds: uint64(o.Covered)}
	}
	if o.Sample.Num < o.Sample.Den {
		if made.Participation, err = recipe.ParseBernoulli(o.Sample.String()); err != nil {
			return account.Options{}, fmt.Errorf("train: %w", err)
		}
		made.Rate = &recipe.Rate{Devices: devices, Units: 1}
		made.Relay = &recipe.Relay{URL: "https://relay.example/", Gateway: "https://gateway.example/"}
	}
	return made, nil
}

// Recipe returns the recipe under which the model is trained in the simulator.
func (o Options) Recipe() (*recipe.Recipe, error) {
	asked, err := o.Asked()
	if err != nil {
		return nil, err
	}
	r, err := account.New(asked)
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	return r, nil
}

// simulator returns that of the options, which are filled in.
func (o *Options) simulator(r *recipe.Recipe) (*simulator.Simulator, error) {
	return simulator.New(r, simulator.Options{Seed: o.Seed, Unvalidated: o.Unvalidated, Insistent: o.Attackers, NoiseScale: o.NoiseScale})
}
