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
	"sync"
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

// inTime runs a training, and anew with longer rounds where the machine was so busy that a
// device came too late for one. seen is told of each attempt from its first round on, and nil
// before.
func inTime(t *testing.T, o TrainingOptions, seen func(*released)) (r *train.Report, err error) {
	t.Helper()
	keep := o.Keep
	for try := range 3 {
		if o.seen = seen; seen != nil {
			seen(nil)
		}
		if keep != "" {
			o.Keep = filepath.Join(keep, fmt.Sprint(try))
		}
		if r, err = RunTraining(t.Context(), o); r == nil || r.Unsent.Late == 0 {
			return r, err
		}
		t.Logf("%d devices were late; again", r.Unsent.Late)
		o.Precision = 2 * o.WithDefaults().Precision
	}
	return r, err
}

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
// controller and one in the simulator go through the same models, to the last bit, where the
// servers draw the same: each round they release the same integers. Clipping adapts, noise is
// correlated over rounds, so that the servers' files tell what they drew, and devices take
// turns.
func TestTrainingEqualsSimulator(t *testing.T) {
	t.Parallel() // it waits for rounds to end
	o := TrainingOptions{
		Frame: Frame{Keep: t.TempDir(), Out: t.TempDir()},
		Train: train.Options{Set: digits(t), Devices: 44, Rounds: 3, Covered: 4, Correlated: 2, AdaptiveClip: 0.5, Sample: whole, Seed: 3},
	}
	var real []*released
	var noise [2][][]int64 // of the servers in each round, in their finer units
	dirs := -1
	got, err := inTime(t, o, func(r *released) {
		if r == nil {
			real, noise = nil, [2][][]int64{}
			dirs++
			return
		}
		real = append(real, r)
		for server, w := range noiseFiles(t, filepath.Join(o.Keep, fmt.Sprint(dirs))) {
			noise[server] = append(noise[server], w)
		}
	})
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
	sampler, err := n.Series.Strategy.Sampler(n.Variance.Num, n.Variance.Den)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	variance := sampler.Variance()
	draws, squares := 0.0, 0.0 // of the numbers that servers drew in rounds that follow another
	simulatortest.Draws(sim, func(server int, round uint32, dst []int64) {
		w, before := noise[server][round], noise[server][max(0, int(round)-1):round]
		back, err := n.Series.Strategy.Next(before, make([]int64, len(w)))
		if err != nil {
			t.Error(err)
		}
		for i := range dst {
			dst[i] = w[i] - back[i]
		}
		mu.Lock()
		defer mu.Unlock()
		// Where the machine was busy and a round of the recipe went by, so that a device may be
		// in both, the servers do not lean on the one before.
		if round > 0 && real[round].number == real[round-1].number+1 {
			for _, z := range dst {
				squares += float64(z) * float64(z) / variance
				draws++
			}
		}
	})
	again := &replay{Simulated: train.Simulated{Simulator: sim}}
	want, err := train.RunIn(t.Context(), o.Train, r, again)
	if err != nil {
		t.Fatal(err)
	}
	if len(real) != 3 || len(again.models) != 3 {
		t.Fatalf("%d rounds of servers, %d of the simulator", len(real), len(again.models))
	}
	for round, x := range real {
		if round < 2 { // the model that the next round began with
			if m := again.models[round+1]; x.next.Clip != m.Clip || !slices.Equal(x.next.Parameters, m.Parameters) {
				t.Errorf("round %d: the controller's model is another than the simulator's: %v..., %v...", round+1, x.next.Parameters[:4], m.Parameters[:4])
			}
		}
		if x.sum.Reports != 22 || again.sums[round].Reports != 22 {
			t.Errorf("round %d: servers count %d, the simulator %d", round+1, x.sum.Reports, again.sums[round].Reports)
		}
	}
	// What the servers drew has the variance that the recipe says, if they lean on the round
	// before as the simulator does: but once in 10^7, as in TestTrainingByCoins.
	if draws > 0 && math.Abs(squares/draws-1) > 9*math.Sqrt(2/draws) {
		t.Errorf("servers drew %.3f of the variance", squares/draws)
	}
	t.Logf("%g draws compared", draws)
	if !slices.Equal(got.Parameters, want.Parameters) || got.Accuracy != want.Accuracy || got.Epsilon != want.Epsilon || !got.Real || want.Real {
		t.Errorf("accuracy %g and epsilon %g; the simulator's %g and %g", got.Accuracy, got.Epsilon, want.Accuracy, want.Epsilon)
	}
	if got.Curve[3].Clip == got.Curve[0].Clip || got.Curve[3].Clip != want.Curve[3].Clip {
		t.Errorf("clipping norms %v", got.Curve)
	}
}

// replay keeps what the simulator releases, and the models that it is released of.
type replay struct {
	train.Simulated
	sums   []*simulator.Sum
	models []*train.Model
}

func (r *replay) Round(ctx context.Context, m *train.Model, devices int, answer simulator.Answer) (*simulator.Sum, *train.Model, error) {
	r.models = append(r.models, &train.Model{Parameters: slices.Clone(m.Parameters), Clip: m.Clip})
	sum, next, err := r.Simulated.Round(ctx, m, devices, answer)
	if sum != nil {
		x := *sum
		r.sums = append(r.sums, &x)
	}
	return sum, next, err
}

// TestTrainingByCoins: where devices report by their coins, the simulator that is given who
// did, and draws nothing, comes to a model that is off from the controller's by the step along
// the servers' noise: by chi-square of 650 entries, which strays from 1 by as much once in
// 10^7 (6 deviations of a chi-square of 650 degrees that is taken for normal, and half as much
// again for that).
func TestTrainingByCoins(t *testing.T) {
	t.Parallel() // it waits for rounds to end
	o := TrainingOptions{
		Frame: Frame{Out: t.TempDir()},
		Train: train.Options{Set: digits(t), Devices: 260, Rounds: 1, Sample: recipe.Rational{Num: 1, Den: 2}, Epsilon: decimal("8"), Seed: 3, MinBatch: 40, Rate: 1},
	}
	var real *released
	if _, err := inTime(t, o, func(r *released) { real = r }); err != nil || real == nil {
		t.Fatal(real, err)
	}
	r, err := o.Train.Recipe()
	if err != nil {
		t.Fatal(err)
	}
	sim, err := simulator.New(r, simulator.Options{})
	if err != nil {
		t.Fatal(err)
	}
	simulatortest.Coins(sim, func(device int, _ uint32) (bool, bool) { return real.answered[device], false })
	simulatortest.Draws(sim, func(int, uint32, []int64) {})
	exact, err := train.RunIn(t.Context(), o.Train, r, train.Simulated{Simulator: sim})
	if err != nil {
		t.Fatal(err)
	}
	// One unit of noise in a sum over the cohort of 130 that the clipping norm divides.
	q, _ := r.Vector()
	step := r.Noise.Spread().Deviation * q.Unit() / 130
	squares, n := 0.0, float64(len(exact.Parameters))
	for i, x := range real.next.Parameters {
		off := (float64(x) - exact.Parameters[i]) / step
		squares += off * off
	}
	if math.Abs(squares/n-1) > 9*math.Sqrt(2/n) {
		t.Errorf("off by %.3f of the noise's variance", squares/n)
	}
	answers := uint64(0)
	for _, did := range real.answered {
		if did {
			answers++
		}
	}
	if real.sum.Reports != answers+real.sum.Dummies || answers < 40 || answers > 220 {
		t.Errorf("%d reports, %d dummies among them; %d answered", real.sum.Reports, real.sum.Dummies, answers)
	}
}

// Rounds with too few reports are skipped and paid for, as in the simulator, and the budget
// ends a training in the middle: the report is of the rounds that it covered.
func TestTrainingSkips(t *testing.T) {
	t.Parallel() // it waits for rounds to end
	set := digits(t)
	set.Train[3].Pixels[0] = math.NaN() // one of them sends nothing
	o := train.Options{Set: set, Devices: 22, MinBatch: 22, Sample: whole, Rounds: 3, Covered: 2}
	over, other := new(simulator.BudgetError), new(simulator.BudgetError)
	got, err := inTime(t, TrainingOptions{Frame: Frame{Out: t.TempDir()}, Train: o}, nil)
	want, simulated := train.Run(t.Context(), o)
	if !errors.As(err, &over) || !errors.As(simulated, &other) || *over != *other || got == nil || got.Skipped != 2 || got.Rounds != 2 ||
		got.Unsent != want.Unsent || got.Skipped != want.Skipped || got.Epsilon != want.Epsilon || got.Unsent.NotFinite != 2 {
		t.Errorf("%+v, %v\nthe simulator %+v, %v", got, err, want, simulated)
	}
}

// A training that is stopped ends its servers and leaves nothing behind.
func TestTrainingStops(t *testing.T) {
	t.Parallel() // it waits for rounds to end
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
	t.Parallel() // it waits for rounds to end
	o := TrainingOptions{Frame: Frame{Out: t.TempDir()}, Credentials: true, Train: train.Options{Set: digits(t), Devices: 24, Sample: whole, Rounds: 1}}
	var recorded *released
	r, err := inTime(t, o, func(r *released) { recorded = r })
	if err != nil {
		t.Fatal(err)
	}
	if recorded == nil || recorded.sum.Reports != 24 || r.Skipped > 0 || r.SecondsByStep[enrolling] == 0 {
		t.Errorf("%+v, %+v", recorded, r)
	}
}

func TestTrainingOptionsRefuse(t *testing.T) {
	set := digits(t)
	for name, o := range map[string]train.Options{
		"no images":    {},
		"rounds":       {Set: set, Rounds: maxTrainingRounds + 1},
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
	for len(many.Train) <= maxTrainingDevices {
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
