package lab

import (
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// normalNever is what a standard normal variable exceeds, to either side, once in 10^6.
const normalNever = 4.891638

// TestCountAttack plays the attack that sampling with a public count falls to: all others
// hold one answer, the victim another, and the attacker, who knows that, subtracts the
// sum of the others' answers from the number of reports. What is left is the victim's
// report, the dummies and the servers' noise.
//
// With dummies the attacker never gets surer of the victim's answer than the guarantee
// allows: the privacy loss of what it saw is at most epsilon a round (plus ln 2, but for
// twice delta). And what is left of the count is as large and varies as much as the
// guarantee counts on, without which that bound would mean nothing. Each check fails
// without reason once in 10^6 runs or less. Without dummies the recipe is refused.
func TestCountAttack(t *testing.T) {
	t.Parallel() // it waits for rounds more than it computes
	const devices, rounds = 400, 8
	o := Options{Population: devices, Sampling: recipe.Rational{Num: 1, Den: 2}, Rounds: rounds,
		Frame: Frame{Epsilon: decimal("6"), Delta: decimal("0.00000001"), Out: t.TempDir()}}
	has := func(round int) bool { return round%2 == 1 }
	q := o.question()
	o.answer = func(device, round int) client.Value {
		switch {
		case device > 0:
			return q.value(0)
		case has(round):
			return q.value(1)
		}
		return client.NoValue()
	}
	var result *collector.Result
	var left, direct [rounds]float64 // what is left of the count, and the sum at the victim's place
	o.seen = func(round int, r *collector.Result) {
		result = r
		left[round], direct[round] = float64(r.ReportCount)-float64(r.Raw[0]), float64(r.Raw[1])
	}
	o.Keep = filepath.Join(t.TempDir(), "kept")
	report, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	checked, err := deploy.OpenRecipe(filepath.Join(o.Keep, deploy.RecipeFile))
	if err != nil {
		t.Fatal(err)
	}
	r := checked.Recipe()
	g := result.Guarantee
	if g.Epsilon > 6 || !(g.PerRound.Epsilon < g.Epsilon) {
		t.Fatalf("guarantee %v, %v a round", g.Loss, g.PerRound)
	}

	noise := 2 * r.Noise.(recipe.DiscreteGaussian).Variance.Float()
	free := float64(devices) * 0.5 * r.Dummies.Rate.Float() // dummies expected
	varied := free*(1-free/devices) + noise
	right, worst := 0, 0.0
	mean, square := 0.0, 0.0
	for i := range rounds {
		x := left[i] - free
		mean += x / rounds
		square += x * x / rounds
		// The best linear guess: each number counts by how little it varies.
		score := (x-0.5)/varied + (direct[i]-0.5)/noise
		if (score > 0) == has(i) {
			right++
		}
		// How much likelier this is with an answer than without: reported with
		// probability 1/2.
		worst = max(worst, math.Abs(math.Log1p(0.5*math.Expm1(score))))
	}
	t.Logf("%v; per round %v; %d of %d guesses right, the surest by %.2f; left varies by %.0f, %.0f expected, %.0f of it noise", report.SecondsByStep, g.PerRound, right, rounds, worst,
		square-mean*mean, varied, noise)
	if worst > g.PerRound.Epsilon+math.Ln2 {
		t.Errorf("in a round the attacker got sure by %.2f; the guarantee is %v", worst, g.PerRound)
	}
	// Without dummies the mean would be off by free.
	if reach := normalNever*math.Sqrt(varied/rounds) + 1; math.Abs(mean) > reach || free < 3*reach {
		t.Errorf("what is left of the count is off by %.1f on average, of %.1f dummies; want at most %.1f", mean, free, reach)
	}
	f := &forecast{}
	f.add(varied)
	if low, high := f.interval(rounds, outsideNever); square < low || square > high {
		t.Errorf("what is left of the count varies by %.1f; the guarantee counts on %.1f", square, varied)
	}

	// The same recipe without dummies.
	r.Dummies = nil
	var invalid *recipe.InvalidError
	if err := account.Validate(r); !errors.As(err, &invalid) || !strings.Contains(err.Error(), "dummies") {
		t.Errorf("without dummies: %v", err)
	}
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	var refused *client.RefusedError
	if _, err := client.New(client.Options{AnyKeys: true, Prover: account.Prover, Recipe: b}); !errors.As(err, &refused) {
		t.Errorf("a device met a recipe without dummies: %v", err)
	}
}
