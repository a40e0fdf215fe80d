package train

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/starling-agg/starling/fl/images"
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

func digits(t *testing.T) *images.Set {
	t.Helper()
	s, err := images.Digits()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func run(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// usual is a training by the defaults, done once, and what it told of its progress.
func usual(t *testing.T) (*Report, []Point) {
	t.Helper()
	r, err := once()
	if err != nil {
		t.Fatal(err)
	}
	return r, told
}

var (
	told []Point
	once = sync.OnceValues(func() (*Report, error) {
		set, err := images.Digits()
		if err != nil {
			return nil, err
		}
		return Run(context.Background(), Options{Set: set, Seed: 1, Progress: func(p Point) { told = append(told, p) }})
	})
)

// The defaults reach what docs/bench/learning.md promises, at an epsilon that the accountant
// computes, for fixed seeds; and no noise is missing: with that of epsilon 1/2 the
// model is worse.
func TestDigits(t *testing.T) {
	r, told := usual(t)
	if r.Accuracy < 0.9 || !(r.Epsilon <= 4 && r.Epsilon > 3.9) || r.Delta != 1e-5 || r.Rounds != 80 || r.Skipped != 0 || r.Unsent != (simulator.Unsent{}) {
		t.Errorf("%+v", r)
	}
	if len(told) != points || !slices.Equal(told, r.Curve[1:]) || told[points-1] != (Point{80, r.Accuracy, r.Epsilon, told[points-1].SNR, 0.3}) {
		t.Errorf("told %v\nof %v", told, r.Curve)
	}
	for i, p := range r.Curve[1:] {
		if !(p.Epsilon > r.Curve[i].Epsilon) || p.Round <= r.Curve[i].Round {
			t.Errorf("%v after %v", p, r.Curve[i])
		}
	}
	if r.BothHonest == nil || r.Unsampled == nil || !(*r.BothHonest < r.Epsilon) || !(*r.Unsampled > r.Epsilon) || len(r.Parameters) != 650 {
		t.Errorf("%+v", r)
	}
	half, err := recipe.ParseDecimal("0.5")
	if err != nil {
		t.Fatal(err)
	}
	if noisy := run(t, Options{Set: digits(t), Seed: 1, Epsilon: half, Rounds: 40}); noisy.Accuracy > 0.89 || noisy.Epsilon > 0.5 ||
		noisy.NoiseDeviation < 4*r.NoiseDeviation {
		t.Errorf("at epsilon 1/2: %+v", noisy)
	}
}

// A training follows from its seed, whatever the goroutines do.
func TestSeed(t *testing.T) {
	o := Options{Set: digits(t), Rounds: 5, Seed: 4}
	one, other := run(t, o), run(t, o)
	if !slices.Equal(one.Parameters, other.Parameters) || !slices.Equal(one.Curve, other.Curve) {
		t.Error("the same seed gives another model")
	}
	o.Seed = 5
	if slices.Equal(one.Parameters, run(t, o).Parameters) {
		t.Error("another seed gives the same model")
	}
}

// Other ways to train learn too, more than half of the digits in few rounds: the network,
// Adam, all devices in each round with the last model, and federated averaging.
func TestWays(t *testing.T) {
	eight := recipe.Decimal{Coefficient: 8}
	for name, o := range map[string]Options{
		"network":     {Model: Network, Rounds: 25, Set: digits(t).Edges()},
		"filters":     {Model: Convolution, Rounds: 25},
		"adam":        {Optimizer: Adam, Rounds: 15},
		"all devices": {Sample: recipe.Rational{Num: 1, Den: 1}, Rounds: 8, Average: -1},
		"averaging":   {Images: 3, LocalSteps: 4, Rounds: 15},
	} {
		if o.Set == nil {
			o.Set = digits(t)
		}
		o.Epsilon, o.Seed = eight, 2
		r := run(t, o)
		if r.Accuracy < 0.5 || r.Epsilon > 8 || r.Rounds != o.Rounds {
			t.Errorf("%s: %+v", name, r)
		}
		want := "add-remove"
		if r.Sample == "1" {
			want = "replace"
		}
		if r.Neighbours != want {
			t.Errorf("%s: neighbours %s", name, r.Neighbours)
		}
	}
}

// The published model is the mean of those of the last rounds.
func TestAverage(t *testing.T) {
	o := Options{Set: digits(t), Covered: 2, Rounds: 1, Average: 1}
	one := run(t, o).Parameters
	o.Rounds = 2
	mean := run(t, o).Parameters
	o.Average = -1
	last := run(t, o).Parameters
	o.Average = 0.5
	half := run(t, o).Parameters
	for i := range mean {
		if math.Abs(mean[i]-(one[i]+last[i])/2) > 1e-12 || half[i] != last[i] || one[i] == last[i] && one[i] != 0 {
			t.Fatalf("entry %d: %g of %g and %g, %g of the last half", i, mean[i], one[i], last[i], half[i])
		}
	}
}

// A device that takes one local step at any rate reports its gradient, and several steps
// are what the loop says.
func TestUpdate(t *testing.T) {
	set := digits(t)
	o := Options{Set: set, Images: 2}.WithDefaults()
	tr := &trainer{o: o, kind: o.newModel(), images: set.Train}
	n := tr.kind.Parameters()
	tr.seen = make([]float64, n)
	for i := range tr.seen {
		tr.seen[i] = math.Sin(float64(i))
	}
	s := newScratch(n)
	mine := set.Train[:2]
	gradient, other, got := make([]float64, n), make([]float64, n), make([]float64, n)
	tr.kind.Gradient(gradient, tr.seen, mine[0].Pixels, mine[0].Label)
	tr.kind.Gradient(other, tr.seen, mine[1].Pixels, mine[1].Label)
	tr.update(s, got, mine)
	for i := range got {
		if math.Abs(got[i]-(gradient[i]+other[i])/2) > 1e-15 {
			t.Fatalf("entry %d: %g", i, got[i])
		}
	}
	// Two steps: the gradient here, and the one after a step along it.
	after := make([]float64, n)
	for i := range after {
		after[i] = tr.seen[i] - 0.25*got[i]
	}
	next := make([]float64, n)
	tr.gradient(s, next, after, mine)
	tr.o.LocalSteps, tr.o.LocalRate = 2, 0.25
	two := make([]float64, n)
	tr.update(s, two, mine)
	for i := range two {
		if math.Abs(two[i]-0.25*(got[i]+next[i])) > 1e-12 {
			t.Fatalf("entry %d: %g, want %g", i, two[i], 0.25*(got[i]+next[i]))
		}
	}
}

// With 5 % of the devices sending 100 times the norm, verified proofs keep accuracy within
// a point of what it is without them, and without proofs it collapses.
func TestPoisoning(t *testing.T) {
	clean, _ := usual(t)
	o := Options{Set: digits(t), Seed: 1}
	o.Attackers = clean.Devices / 20
	held := run(t, o)
	if held.Accuracy < clean.Accuracy-0.01 || held.Unsent != (simulator.Unsent{Norm: 71 * 80}) {
		t.Errorf("%.3f with attackers, %.3f without; %+v", held.Accuracy, clean.Accuracy, held.Unsent)
	}
	// A norm bound does not stop who stays within it: 5 % of the devices, which without a
	// coin are a sixth of the reports, cost some points, and do not wreck the model.
	o.Push = 1
	if within := run(t, o); within.Accuracy < clean.Accuracy-0.1 || within.Accuracy > clean.Accuracy-0.02 || within.Unsent != (simulator.Unsent{}) {
		t.Errorf("%.3f with attackers within the norm, %.3f without; %+v", within.Accuracy, clean.Accuracy, within.Unsent)
	}
	o.Push, o.Unvalidated, o.Rounds = 100, true, 20
	if open := run(t, o); open.Accuracy > 0.3 || open.Unsent != (simulator.Unsent{}) {
		t.Errorf("%.3f with attackers that nobody rejects; %+v", open.Accuracy, open.Unsent)
	}
}

// A budget that ends in the middle ends training, with the model that it paid for.
func TestBudgetEnds(t *testing.T) {
	over := new(simulator.BudgetError)
	r, err := Run(t.Context(), Options{Set: digits(t), Rounds: 9, Covered: 6})
	if !errors.As(err, &over) || over.Rounds != 6 || r == nil || r.Rounds != 6 || r.Curve[len(r.Curve)-1].Round != 6 || r.Epsilon > 4 || r.Epsilon < 3.9 ||
		len(r.Parameters) != 650 {
		t.Errorf("%+v, %v", r, err)
	}
	if r := run(t, Options{Set: digits(t), Rounds: 3, Covered: 6}); r.Rounds != 3 || !(r.Epsilon < 3.5) {
		t.Errorf("%+v", r)
	}
}

// Rounds with too few reports are skipped and paid for, and leave the model alone.
func TestEmptyCohort(t *testing.T) {
	s := digits(t)
	s.Train[3].Pixels[0] = math.NaN() // one of them sends nothing
	r := run(t, Options{Set: s, Rounds: 3, MinBatch: 1437, Sample: recipe.Rational{Num: 1, Den: 1}})
	if r.Skipped != 3 || r.Rounds != 3 || !(r.Epsilon > 3.9) || slices.ContainsFunc(r.Parameters, func(x float64) bool { return x != 0 }) {
		t.Errorf("%+v", r)
	}
	if words := r.Caption(); !strings.Contains(words, "3 rounds had too few reports") {
		t.Error(words)
	}
}

// A device with an image that is not a number, or so large that its gradient is not, sends
// nothing, and the others train on.
func TestNotFinite(t *testing.T) {
	s := digits(t)
	s.Train = slices.Clone(s.Train)
	spoil := func(i int, x float64) {
		p := slices.Clone(s.Train[i].Pixels)
		p[30] = x
		s.Train[i].Pixels = p
	}
	spoil(0, math.NaN())
	spoil(1, math.Inf(1))
	r := run(t, Options{Set: s, Rounds: 4, Sample: recipe.Rational{Num: 1, Den: 1}})
	if r.Unsent != (simulator.Unsent{NotFinite: 8}) || slices.ContainsFunc(r.Parameters, math.IsNaN) || r.Accuracy < 0.3 {
		t.Errorf("%+v", r)
	}
}

func TestOptionsRefuse(t *testing.T) {
	s := digits(t)
	with := func(change func(*images.Set)) *images.Set {
		x := *s
		x.Train = slices.Clone(s.Train)
		change(&x)
		return &x
	}
	for _, o := range []Options{
		{}, {Set: &images.Set{}}, {Set: s, Model: "x"}, {Set: s.Edges(), Model: Convolution}, {Set: s, Hidden: -1}, {Set: s, Hidden: 1025}, {Set: s, Rounds: -1}, {Set: s, Rounds: 10_001}, {Set: s, Covered: -1},
		{Set: s, Sample: recipe.Rational{Num: 3, Den: 2}}, {Set: s, Images: -1}, {Set: s, Images: 72}, {Set: s, LocalSteps: 101}, {Set: s, LocalSteps: -1}, {Set: s, MinBatch: 19},
		{Set: s, MinBatch: 1438}, {Set: s, Clip: -1}, {Set: s, Clip: math.NaN()}, {Set: s, Rate: math.Inf(1)}, {Set: s, LocalRate: -1}, {Set: s, Optimizer: "x"}, {Set: s, Momentum: 1},
		{Set: s, Momentum: -0.1}, {Set: s, Average: 1.1}, {Set: s, Attackers: -1}, {Set: s, Attackers: 1438}, {Set: s, Push: 1001}, {Set: s, Push: math.NaN()},
		{Set: s, Devices: 19}, {Set: s, Devices: 1438}, {Set: s, Devices: -1}, {Set: s, Images: 2, Devices: 719}, {Set: s, Partition: "x"}, {Set: s, Partition: Shards}, {Set: s, Partition: Shards, Images: 3},
		{Set: s, AdaptiveClip: 1}, {Set: s, AdaptiveClip: -0.1}, {Set: s, AdaptiveClip: math.NaN()}, {Set: s, Correlated: 1}, {Set: s, Correlated: -2}, {Set: s, Correlated: 9, Rounds: 8},
		{Set: s, Correlated: 65, Rounds: 100}, {Set: s, Correlated: 4, Sample: recipe.Rational{Num: 1, Den: 2}}, {Set: s, Correlated: 4, Devices: 79}, {Set: s, Correlated: 4, MinBatch: 360},
		{Set: s, NoiseScale: recipe.Rational{Num: 3, Den: 2}}, {Set: s, NoiseScale: recipe.Rational{Den: 2}}, {Set: s, NoiseScale: recipe.Rational{Num: 1}},
		{Set: with(func(x *images.Set) { x.Train[5].Pixels = x.Train[5].Pixels[:63] })}, {Set: with(func(x *images.Set) { x.Train[5].Label = 10 })},
		{Set: with(func(x *images.Set) { x.Test = nil })},
	} {
		wrong := new(OptionError)
		if _, err := Run(t.Context(), o); !errors.As(err, &wrong) || wrong.Option == "" {
			t.Errorf("%+v: %v", o, err)
		}
	}
	// What no noise gives is the recipe's to say.
	if _, err := Run(t.Context(), Options{Set: s, Epsilon: recipe.Decimal{Coefficient: 1, Scale: 9}}); err == nil {
		t.Error("epsilon 10^-9 was promised")
	}
}

// The recipe is one that others take: valid, and of the claim that was asked for.
func TestRecipe(t *testing.T) {
	r, err := Options{Set: digits(t)}.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := account.Validate(r); err != nil {
		t.Error(err)
	}
	if claim, ok := r.Claim.(recipe.ApproxDP); !ok || claim.Rounds != 80 || claim.HonestServers != 1 || claim.Epsilon.Float() > 4 {
		t.Errorf("%+v", r.Claim)
	}
	if q, _ := r.Vector(); q.Dimension != 650 || q.Norm() != 1 || q.Proof != recipe.Pine32 {
		t.Errorf("%+v", q)
	}
	if _, err := account.Certify(r); err != nil {
		t.Error(err)
	}
}

// Pictures and table have all of the curve.
func TestFiles(t *testing.T) {
	r := run(t, Options{Set: digits(t), Rounds: 2})
	var png, svg, table bytes.Buffer
	if err := errors.Join(r.WritePNG(&png), r.WriteSVG(&svg), r.WriteTable(&table)); err != nil {
		t.Fatal(err)
	}
	if !bytes.HasPrefix(png.Bytes(), []byte("\x89PNG")) || !strings.Contains(svg.String(), "round 2") || !strings.Contains(svg.String(), "epsilon spent") {
		t.Error("no pictures")
	}
	if lines := strings.Split(table.String(), "\n"); len(lines) != 5 || lines[0] != "round,accuracy,epsilon" || !strings.HasPrefix(lines[3], "2,") {
		t.Error(table.String())
	}
	r.Attackers, r.Unvalidated = 3, true
	if !strings.Contains(r.Caption(), "3 attackers sent more than the bound, and no server checked") {
		t.Error(r.Caption())
	}
}
