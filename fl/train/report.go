package train

import (
	"fmt"

	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// A Point is the model after a number of rounds, and what these have told.
type Point struct {
	Round    int     `json:"round"`
	Accuracy float64 `json:"accuracy"`
	Epsilon  float64 `json:"epsilon"`
	// SNR is the signal-to-noise ratio of the round: the norm of what devices reported over
	// that of both servers' noise. A simulation knows it; 0 where it is not known.
	SNR float64 `json:"snr,omitempty"`
	// Clip is the clipping norm after the round.
	Clip float64 `json:"clip"`
}

// A Report is what came of a training. Its JSON keys are only added to.
type Report struct {
	// Accuracy is the share of the test images that the published model tells right; Epsilon
	// and Delta bound what the rounds that were played tell of one device.
	Accuracy float64 `json:"accuracy"`
	Epsilon  float64 `json:"epsilon"`
	Delta    float64 `json:"delta"`
	Rounds   int     `json:"rounds"`
	Seconds  float64 `json:"seconds"`

	// Real says that there were servers, and that nobody knew the coins; else it was the
	// simulator's round.
	Real bool `json:"real"`
	// SecondsByStep are those of a training with servers, their start and end included.
	SecondsByStep map[string]float64 `json:"seconds_by_step,omitempty"`

	Data       string `json:"data"`
	Model      string `json:"model"`
	Shape      string `json:"shape"`
	Dimension  int    `json:"dimension"`
	Devices    int    `json:"devices"`
	Partition  string `json:"partition"`
	Images     int    `json:"images_each"`
	LocalSteps int    `json:"local_steps"`
	Sample     string `json:"sample"`
	Optimizer  string `json:"optimizer"`
	Seed       uint64 `json:"seed"`
	MinBatch   uint64 `json:"min_batch"`
	TestImages int    `json:"test_images"`
	// Skipped rounds had too few reports; Unsent are reports of all rounds that count for
	// nothing.
	Skipped int              `json:"skipped_rounds"`
	Unsent  simulator.Unsent `json:"unsent"`
	// Attackers sent more than the bound in every round, to servers that verified no proofs
	// if Unvalidated.
	Attackers   int  `json:"attackers,omitempty"`
	Unvalidated bool `json:"unvalidated,omitempty"`
	// NoiseDeviation is that of both servers' noise in each entry of the mean, where the
	// clipping norm is 1.
	NoiseDeviation float64 `json:"noise_deviation"`
	// AdaptiveClip is the quantile that the clipping norm followed, and Correlated the bands
	// of the noise: each device reported in one of as many rounds.
	AdaptiveClip float64 `json:"adaptive_clip,omitempty"`
	Correlated   int     `json:"correlated,omitempty"`
	// NoiseScale is which part of the noise there was, as a larger cohort would have in its
	// mean, which the devices that there are do not make up.
	NoiseScale string `json:"noise_scale,omitempty"`
	// BothHonest is epsilon where both servers are honest, and Unsampled where it is known
	// who reports in which round; both for all rounds that the recipe covers. Null is no
	// bound.
	BothHonest *float64 `json:"epsilon_if_both_servers_are_honest"`
	Unsampled  *float64 `json:"epsilon_if_it_is_known_who_reports"`
	Neighbours string   `json:"neighbours"`
	RecipeID   string   `json:"recipe_id"`
	Curve      []Point  `json:"curve"`

	// Parameters are the published model's, in the order of Shape.
	Parameters []float64 `json:"-"`
}

// newReport fills in what is known before the first round.
func (t *trainer) newReport() (*Report, error) {
	claim, _ := t.recipe.Claim.(recipe.ApproxDP)
	id, err := t.recipe.ID()
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	r := &Report{
		Delta: claim.Delta.Float(), Data: t.o.Set.Name, Model: t.o.Model, Shape: t.kind.Shape(), Dimension: t.kind.Parameters(),
		Devices: t.o.Devices, Sample: t.o.Sample.String(), Optimizer: t.o.Optimizer, Seed: t.o.Seed, MinBatch: t.recipe.MinBatch,
		TestImages: len(t.o.Set.Test), Attackers: t.o.Attackers, Unvalidated: t.o.Unvalidated, Neighbours: t.recipe.Neighbours().String(),
		RecipeID:  fmt.Sprint(id),
		Partition: t.o.Partition, Images: t.o.Images, LocalSteps: t.o.LocalSteps, AdaptiveClip: t.o.AdaptiveClip, Correlated: t.o.Correlated,
	}
	r.NoiseDeviation = t.recipe.Noise.Spread().Deviation * t.unit / t.o.expected()
	if s := t.o.NoiseScale; s != (recipe.Rational{}) {
		r.NoiseScale = s.String()
		r.NoiseDeviation *= s.Float()
	}
	if both, ok := account.BothHonest(t.recipe); ok && both.Finite() {
		r.BothHonest = &both.Epsilon
	}
	if known, err := account.UnconditionalAfter(t.recipe, claim.Rounds); err == nil && known.Finite() {
		r.Unsampled = &known.Epsilon
	}
	r.Curve = []Point{{Accuracy: t.accuracy(t.now), Clip: t.o.Clip}}
	r.Accuracy = r.Curve[0].Accuracy
	return r, nil
}

// add takes down a point of the curve.
func (r *Report) add(p Point) {
	if last := &r.Curve[len(r.Curve)-1]; last.Round == p.Round {
		*last = p
	} else {
		r.Curve = append(r.Curve, p)
	}
	r.Accuracy, r.Epsilon = p.Accuracy, p.Epsilon
}
