package lab

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/fl/images"
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/fl/simulator/simulatortest"
	"github.com/starling-agg/starling/fl/train"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

func digits(t *testing.T) *images.Set {
	t.Helper()
	set, err := images.Digits()
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// whole is a training without coins.
var whole = recipe.Rational{Num: 1, Den: 1}

// noiseFiles are the noise of both servers that their files have for later rounds, of a
// deployment with two bands: that of the last round.
func noiseFiles(t *testing.T, dir string) (both [2][]int64) {
	t.Helper()
	for server, name := range []string{"leader", "helper"} {
		err := filepath.WalkDir(filepath.Join(dir, name), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, ".noise") {
				return err
			}
			b, err := os.ReadFile(path)
			if err != nil || both[server] != nil {
				return errors.Join(err, errIf(both[server] != nil))
			}
			for b = b[24:]; len(b) > 0; b = b[8:] {
				both[server] = append(both[server], int64(binary.BigEndian.Uint64(b)))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return both
}

func errIf(bad bool) error {
	if bad {
		return errors.New("two files of noise")
	}
	return nil
}

// TestTrainingEqualsSimulator: a training through real leader, helper, relay, gateway and
// collector and one in the simulator are the same, to the last bit of the model, where the
// servers draw the same: each round they release the same integers. Clipping adapts, noise is
// correlated over rounds, so that the servers' files tell what they drew, and devices take
// turns.
func TestTrainingEqualsSimulator(t *testing.T) {
	o := TrainingOptions{
		Frame: Frame{Keep: filepath.Join(t.TempDir(), "kept"), Out: t.TempDir()},
		Train: train.Options{Set: digits(t), Devices: 44, Rounds: 3, Covered: 4, Correlated: 2, AdaptiveClip: 0.5, Sample: whole, Seed: 3},
	}
	var real []*simulator.Sum
	var noise [2][][]int64 // of the servers in each round, in their finer units
	o.seen = func(_ int, _ []bool, sum *simulator.Sum) {
		x := *sum
		x.Raw, x.Estimate = slices.Clone(x.Raw), slices.Clone(x.Estimate)
		real = append(real, &x)
		for server, w := range noiseFiles(t, o.Keep) {
			noise[server] = append(noise[server], w)
		}
	}
	got, err := RunTraining(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := o.Train.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulator.New(r, simulator.Options{Seed: 9})
	if err != nil {
		t.Fatal(err)
	}
	n, _ := r.Correlated()
	simulatortest.Draws(sim, func(server int, round uint32, dst []int64) {
		w := noise[server][round]
		lean := min(int(round), 1)
		back, err := n.Series.Strategy.Next(noise[server][int(round)-lean:round], make([]int64, len(w)))
		if err != nil {
			t.Error(err)
		}
		for i := range dst {
			dst[i] = w[i] - back[i]
		}
	})
	again := &replay{Simulated: train.Simulated{Simulator: sim}}
	want, err := train.RunIn(t.Context(), o.Train, r, again)
	if err != nil {
		t.Fatal(err)
	}
	for round, sum := range real {
		if s := again.sums[round]; sum.Reports != 22 || s.Reports != 22 || !slices.Equal(sum.Raw, s.Raw) || !slices.Equal(sum.Estimate, s.Estimate) {
			t.Errorf("round %d: servers count %d and release %v..., the simulator %d and %v...", round+1, sum.Reports, sum.Raw[:4], s.Reports, s.Raw[:4])
		}
	}
	if len(real) != 3 || !slices.Equal(got.Parameters, want.Parameters) || got.Accuracy != want.Accuracy || got.Epsilon != want.Epsilon || !got.Real || want.Real {
		t.Errorf("%d rounds, accuracy %g and epsilon %g; the simulator's %g and %g", len(real), got.Accuracy, got.Epsilon, want.Accuracy, want.Epsilon)
	}
	if got.Curve[3].Clip == got.Curve[0].Clip || got.Curve[3].Clip != want.Curve[3].Clip {
		t.Errorf("clipping norms %v", got.Curve)
	}
}

// replay keeps what the simulator releases.
type replay struct {
	train.Simulated
	sums []*simulator.Sum
}

func (r *replay) Round(ctx context.Context, m *train.Model, devices int, answer simulator.Answer) (*simulator.Sum, *train.Model, error) {
	sum, next, err := r.Simulated.Round(ctx, m, devices, answer)
	if sum != nil {
		x := *sum
		x.Raw, x.Estimate = slices.Clone(x.Raw), slices.Clone(x.Estimate)
		r.sums = append(r.sums, &x)
	}
	return sum, next, err
}

// TestTrainingByCoins: where devices report by their coins, the simulator that is given who
// did, and draws nothing, is off from what the servers release by their noise: by chi-square
// of 650 entries, which strays from 1 by as much once in 10^7 (6 deviations of a chi-square
// of 650 degrees that is taken for normal, and half as much again for that).
func TestTrainingByCoins(t *testing.T) {
	o := TrainingOptions{
		Frame: Frame{Out: t.TempDir()},
		Train: train.Options{Set: digits(t), Devices: 260, Rounds: 2, Sample: recipe.Rational{Num: 1, Den: 2}, Epsilon: decimal("8"), Seed: 3, MinBatch: 40},
	}
	var who [][]bool
	var real []*simulator.Sum
	o.seen = func(_ int, answered []bool, sum *simulator.Sum) {
		x := *sum
		x.Raw, x.Estimate = slices.Clone(x.Raw), slices.Clone(x.Estimate)
		who, real = append(who, answered), append(real, &x)
	}
	if _, err := RunTraining(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	r, err := o.Train.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulator.New(r, simulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	simulatortest.Coins(sim, func(device int, round uint32) (bool, bool) { return who[round][device], false })
	simulatortest.Draws(sim, func(int, uint32, []int64) {})
	// The model of the second round follows from what the servers released of the first.
	again := &replay{Simulated: train.Simulated{Simulator: sim}}
	if _, err := train.RunIn(t.Context(), o.Train, r, &following{again, real}); err != nil {
		t.Fatal(err)
	}
	deviation := r.Noise.Spread().Deviation
	for round, sum := range real {
		exact, squares := again.sums[round], 0.0
		for i, x := range sum.Raw {
			off := float64(x-exact.Raw[i]) / deviation
			squares += off * off
		}
		n := float64(len(sum.Raw))
		if math.Abs(squares/n-1) > 9*math.Sqrt(2/n) {
			t.Errorf("round %d: off by %.3f of the noise's variance", round+1, squares/n)
		}
		if sum.Reports != exact.Reports+sum.Dummies || exact.Reports < 40 || exact.Reports > 220 {
			t.Errorf("round %d: %d reports, %d dummies among them; %d answered", round+1, sum.Reports, sum.Dummies, exact.Reports)
		}
	}
}

// following goes on with the estimates of others.
type following struct {
	*replay
	theirs []*simulator.Sum
}

func (f *following) Round(ctx context.Context, m *train.Model, devices int, answer simulator.Answer) (*simulator.Sum, *train.Model, error) {
	sum, next, err := f.replay.Round(ctx, m, devices, answer)
	if err == nil {
		sum.Raw = slices.Clone(f.theirs[len(f.sums)-1].Raw)
	}
	return sum, next, err
}

// Rounds with too few reports are skipped and paid for, as in the simulator, and the budget
// ends a training in the middle: the report is of the rounds that it covered.
func TestTrainingSkips(t *testing.T) {
	set := digits(t)
	set.Train[3].Pixels[0] = math.NaN() // one of them sends nothing
	o := train.Options{Set: set, Devices: 22, MinBatch: 22, Sample: whole, Rounds: 3, Covered: 2}
	over, other := new(simulator.BudgetError), new(simulator.BudgetError)
	got, err := RunTraining(t.Context(), TrainingOptions{Frame: Frame{Out: t.TempDir()}, Train: o})
	want, simulated := train.Run(t.Context(), o)
	if !errors.As(err, &over) || !errors.As(simulated, &other) || *over != *other || got == nil || got.Skipped != 2 || got.Rounds != 2 ||
		got.Unsent != want.Unsent || got.Skipped != want.Skipped || got.Epsilon != want.Epsilon || got.Unsent.NotFinite != 2 {
		t.Errorf("%+v, %v\nthe simulator %+v, %v", got, err, want, simulated)
	}
}

// A training that is stopped ends its servers and leaves nothing behind.
func TestTrainingStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	dir := filepath.Join(t.TempDir(), "kept")
	o := TrainingOptions{Frame: Frame{Keep: dir, Out: t.TempDir()}, Train: train.Options{Set: digits(t), Devices: 20, Sample: whole, Rounds: 50}}
	o.Train.Progress = func(train.Point) { cancel() }
	r, err := RunTraining(ctx, o)
	if r != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("half of a deployment was left behind", err)
	}
}

// Each device has its credentials and the recipe counts it once a round.
func TestTrainingCredentials(t *testing.T) {
	o := TrainingOptions{Frame: Frame{Out: t.TempDir()}, Credentials: true, Train: train.Options{Set: digits(t), Devices: 24, Sample: whole, Rounds: 1}}
	var recorded *simulator.Sum
	o.seen = func(_ int, _ []bool, sum *simulator.Sum) { recorded = sum }
	r, err := RunTraining(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if recorded == nil || recorded.Reports != 24 || r.Skipped > 0 || r.SecondsByStep[enrolling] == 0 {
		t.Errorf("%+v, %+v", recorded, r)
	}
}

func TestTrainingOptionsRefuse(t *testing.T) {
	set := digits(t)
	for name, o := range map[string]train.Options{
		"no images":    {},
		"rounds":       {Set: set, Rounds: MaxTrainingRounds + 1},
		"attackers":    {Set: set, Rounds: 5, Attackers: 1},
		"no proofs":    {Set: set, Rounds: 5, Unvalidated: true},
		"scaled noise": {Set: set, Rounds: 5, NoiseScale: recipe.Rational{Num: 1, Den: 2}},
		"devices":      {Set: set, Rounds: 5, Devices: 1438},
	} {
		wrong := new(train.OptionError)
		if _, err := RunTraining(t.Context(), TrainingOptions{Frame: Frame{Out: t.TempDir()}, Train: o}); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
	many := *set
	for len(many.Train) <= MaxTrainingDevices {
		many.Train = append(many.Train, set.Train...)
	}
	wrong := new(train.OptionError)
	if _, err := RunTraining(t.Context(), TrainingOptions{Train: train.Options{Set: &many, Rounds: 5}}); !errors.As(err, &wrong) || wrong.Option != "devices" {
		t.Error(err)
	}
	// The recipe that is posed is one that others take.
	made, err := train.Options{Set: set, Devices: 44, Correlated: 2, Rounds: 4}.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := account.Validate(made); err != nil {
		t.Error(err)
	}
}

var measureTraining = flag.Bool("measure-training", false, "measure 50 devices, 5 rounds and 26,035 numbers through all parties with credentials, for docs/bench/learning.md")

// TestTrainingMeasured holds a training of the network with the fewest units that has 26,010
// numbers to a minute, and says what it took.
func TestTrainingMeasured(t *testing.T) {
	if !*measureTraining {
		return
	}
	o := TrainingOptions{Frame: Frame{Out: t.TempDir()}, Credentials: true,
		Train: train.Options{Set: digits(t), Devices: 50, Rounds: 5, Sample: whole, Model: train.Network, Hidden: 347, Seed: 1}}
	begun, before := time.Now(), processorTime()
	r, err := RunTraining(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	wall := time.Since(begun)
	if wall > time.Minute || r.Dimension != 26035 || r.Rounds != 5 || r.Skipped > 0 {
		t.Errorf("%v, %+v", wall, r)
	}
	fmt.Printf("%.1f s, %.1f s of processor, %v\n", wall.Seconds(), (processorTime() - before).Seconds(), r.SecondsByStep)
}
