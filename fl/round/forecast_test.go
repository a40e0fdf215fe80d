package round_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/recipe"
)

// TestPlan: a plan says what the recipe of it would, and what follows by hand.
func TestPlan(t *testing.T) {
	asked := round.Asked{Devices: 8000, Sample: recipe.Rational{Num: 1, Den: 8}, Rounds: 20, Epsilon: recipe.Decimal{Coefficient: 2},
		Delta: recipe.Decimal{Coefficient: 1, Scale: 5}, Dimension: 400, Length: time.Minute, Collect: time.Second}
	f, err := round.Plan(asked)
	if err != nil {
		t.Fatal(err)
	}
	if f.Epsilon > 2 || f.Epsilon < 1.99 || f.First >= f.Epsilon || f.Known <= f.Epsilon || f.Expected != 1000 || f.MinBatch != 500 {
		t.Errorf("%+v", f)
	}
	if f.Skipped > 1e-9 || f.Skipped < 0 || f.Dummies <= 0 {
		t.Errorf("skipped %v, dummies %v", f.Skipped, f.Dummies)
	}
	// The mean is of norm 1 at most, its noise sigma sqrt(2) sqrt(400) / 1000.
	if want := 1000 / (f.Sigma * math.Sqrt(2*400)); math.Abs(f.Signal/want-1) > 1e-9 {
		t.Errorf("signal %v, want %v", f.Signal, want)
	}
	// A minute, five of grace for the relay, a second to collect: the seventh minute begins.
	if f.Seconds != 6*60 && f.Seconds != 7*60 {
		t.Errorf("%v seconds", f.Seconds)
	}
	// A minimum near what is expected.
	near := asked
	near.MinBatch = 920
	if f, err = round.Plan(near); err != nil || f.Skipped <= 0 || f.Skipped > 0.5 {
		t.Errorf("%+v, %v", f, err)
	}
	all := round.Asked{Devices: 50, Rounds: 5, Epsilon: asked.Epsilon, Delta: asked.Delta, Dimension: 10, Length: 2 * time.Second, Grace: time.Second, Collect: time.Second}
	if f, err = round.Plan(all); err != nil || f.Skipped != 0 || f.Dummies != 0 || f.Expected != 50 || f.Seconds != 4 {
		t.Errorf("%+v, %v", f, err)
	}
	for name, change := range map[string]func(*round.Asked){
		"no devices": func(a *round.Asked) { a.Devices = 0 },
		"no rounds":  func(a *round.Asked) { a.Rounds = 0 },
		"a sample":   func(a *round.Asked) { a.Sample = recipe.Rational{Num: 9, Den: 8} },
		"no length":  func(a *round.Asked) { a.Length = 0 },
	} {
		bad := asked
		change(&bad)
		if _, err := round.Plan(bad); !errors.Is(err, round.ErrAsked) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
