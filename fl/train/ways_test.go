package train

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/starling-agg/starling/fl/images"
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/recipe"
)

// Shards deal each image once, and a device few labels; another seed deals them otherwise.
func TestPartition(t *testing.T) {
	set := digits(t)
	labels := func(o Options, all []images.Image) (mean float64) {
		for i := range o.Devices {
			seen := map[int]bool{}
			for _, image := range all[i*o.Images : (i+1)*o.Images] {
				seen[image.Label] = true
			}
			mean += float64(len(seen)) / float64(o.Devices)
		}
		return mean
	}
	o := Options{Set: set, Images: 10, Partition: Shards, Seed: 1}.WithDefaults()
	all := o.partition()
	if len(all) != o.Devices*10 || o.Devices != 143 {
		t.Fatalf("%d images of %d devices", len(all), o.Devices)
	}
	times := map[*float64]int{}
	for _, image := range all {
		times[&image.Pixels[0]]++
	}
	for _, image := range set.Train[:len(all)] {
		if times[&image.Pixels[0]] != 1 {
			t.Fatal("an image was dealt twice, or to nobody")
		}
	}
	// Ten images at random have 6.5 of ten labels. Two shards have 2, less where both have
	// the same, more where one has two.
	if n := labels(o, all); n < 1.8 || n > 2.2 {
		t.Errorf("%.2f labels a device", n)
	}
	iid := o
	iid.Partition = IID
	if n := labels(iid, iid.partition()); n < 5.5 {
		t.Errorf("%.2f labels a device where all are alike", n)
	}
	if o.Seed = 2; &all[0].Pixels[0] == &o.partition()[0].Pixels[0] && &all[10].Pixels[0] == &o.partition()[10].Pixels[0] {
		t.Error("another seed deals the same")
	}
	r := run(t, Options{Set: set, Images: 4, LocalSteps: 3, Partition: Shards, Epsilon: recipe.Decimal{Coefficient: 8}, Rounds: 15, Seed: 2})
	if r.Accuracy < 0.4 || r.Partition != Shards || r.Images != 4 || r.LocalSteps != 3 {
		t.Errorf("%+v", r)
	}
}

// With a clipping norm that begins far too large, one that adapts learns, and one that stays
// does not; both cost the same, for the bit is inside the bound. Package session has the
// bit.
func TestClipping(t *testing.T) {
	o := Options{Set: digits(t), Clip: 20, Rounds: 40, Seed: 1}
	stays := run(t, o)
	o.AdaptiveClip = 0.5
	adapts := run(t, o)
	if adapts.Accuracy < stays.Accuracy+0.1 || adapts.Epsilon != stays.Epsilon || adapts.Dimension != stays.Dimension {
		t.Errorf("%.3f where the norm adapts, at epsilon %g; %.3f where it stays, at %g", adapts.Accuracy, adapts.Epsilon, stays.Accuracy, stays.Epsilon)
	}
	if last := adapts.Curve[len(adapts.Curve)-1].Clip; last > 2 || stays.Curve[len(stays.Curve)-1].Clip != 20 {
		t.Errorf("the norm went to %g", last)
	}
	if !strings.Contains(adapts.Caption(), "follows the 0.5 quantile") {
		t.Error(adapts.Caption())
	}
}

// Devices that take turns learn under correlated noise, and a device that was in a round
// pays for that one alone: after as many rounds as there are bands each was in one.
func TestCorrelated(t *testing.T) {
	r := run(t, Options{Set: digits(t), Correlated: 4, Rounds: 40, Epsilon: recipe.Decimal{Coefficient: 8}, Rate: 2, Seed: 1})
	if r.Accuracy < 0.8 || r.Epsilon > 8 || r.Epsilon < 7.8 || r.Rounds != 40 || r.Correlated != 4 || r.Sample != "1" || r.Neighbours != "replace" {
		t.Errorf("%+v", r)
	}
	for _, p := range r.Curve[1:] {
		if at := r.Curve[(p.Round+3)/4*2]; p.Round%4 != 0 && p.Epsilon != at.Epsilon { // the curve has each second round
			t.Errorf("epsilon %g after round %d, %g after round %d", p.Epsilon, p.Round, at.Epsilon, at.Round)
		}
	}
	if r.BothHonest != nil && !(*r.BothHonest <= r.Epsilon) {
		t.Errorf("%g where both are honest", *r.BothHonest)
	}
}

// A part of the noise is told as such, wherever the numbers go, and rounds tell their
// signal-to-noise ratio in that part.
func TestNoiseScale(t *testing.T) {
	o := Options{Set: digits(t), Rounds: 3, Seed: 1}
	all := run(t, o)
	o.NoiseScale = recipe.Rational{Num: 1, Den: 10}
	part := run(t, o)
	if part.NoiseScale != "0.1" && part.NoiseScale != "1/10" || all.NoiseScale != "" || !strings.Contains(part.Caption(), "NOISE SCALED by "+part.NoiseScale) ||
		strings.Contains(all.Caption(), "SCALED") {
		t.Errorf("%s: %s", part.NoiseScale, part.Caption())
	}
	if x := all.Curve[1].SNR * 10 / part.Curve[1].SNR; math.Abs(x-1) > 1e-3 || all.Curve[1].SNR == 0 || math.Abs(all.NoiseDeviation/part.NoiseDeviation-10) > 1e-9 {
		t.Errorf("signal to noise %g of all, %g of a part", all.Curve[1].SNR, part.Curve[1].SNR)
	}
	if part.Epsilon != all.Epsilon {
		t.Error("the part has another epsilon than the recipe")
	}
}

// A stub is a world whose rounds end as it is told.
type stub struct {
	rounds uint32
	seen   []Model
	next   func(round uint32) (*Model, error)
}

func (s *stub) Rounds() uint32 { return s.rounds }

func (s *stub) Round(_ context.Context, m *Model, _ int, _ simulator.Answer) (*simulator.Sum, *Model, error) {
	s.rounds++
	s.seen = append(s.seen, *m)
	next, err := s.next(s.rounds)
	return &simulator.Sum{Unsent: simulator.Unsent{Late: 1}}, next, err
}

// A world that steps the model is followed: the training goes on with its models, tests them,
// and publishes the mean of the last; what is wrong with a world ends the training.
func TestWorld(t *testing.T) {
	o := Options{Set: digits(t), Rounds: 4, Seed: 1}
	r, err := o.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	of := func(round uint32) *Model {
		m := &Model{make([]float32, 650), float64(round)}
		m.Parameters[7] = float32(round)
		return m
	}
	w := &stub{next: func(round uint32) (*Model, error) {
		if round == 3 {
			return nil, &simulator.TooFewError{}
		}
		return of(round), nil
	}}
	got, err := RunIn(t.Context(), o, r, w)
	if err != nil || got.Rounds != 4 || got.Skipped != 1 || got.Unsent.Late != 4 || got.Parameters[7] != 4 {
		t.Fatalf("%+v, %v", got, err)
	}
	for i, want := range []float32{0, 1, 2, 2} { // the round that was skipped leaves it
		if w.seen[i].Parameters[7] != want || i > 0 && w.seen[i].Clip != float64(want) {
			t.Errorf("round %d began with %g and %g", i+1, w.seen[i].Parameters[7], w.seen[i].Clip)
		}
	}
	fault := errors.New("a fault")
	for name, next := range map[string]func(uint32) (*Model, error){
		"a fault":          func(uint32) (*Model, error) { return nil, fault },
		"too few numbers":  func(uint32) (*Model, error) { return &Model{make([]float32, 649), 1}, nil },
		"another recipe's": func(uint32) (*Model, error) { return &Model{make([]float32, 651), 1}, nil },
		"no numbers":       func(uint32) (*Model, error) { return &Model{Clip: 1}, nil },
	} {
		if got, err := RunIn(t.Context(), o, r, &stub{next: next}); err == nil || got != nil {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}
