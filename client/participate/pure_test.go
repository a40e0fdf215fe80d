package participate

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestPureCostsNoDelta: a recipe with a delta of 0 is charged in epsilon alone, each
// round in proportion, so that a budget with hardly any delta takes it and refuses the
// same recipe with one.
func TestPureCostsNoDelta(t *testing.T) {
	o := options()
	o.Participation, o.Rate, o.Dummies, o.Cover, o.Relay, o.Noise = nil, nil, nil, nil, nil, nil
	o.Kind, o.Epsilon, o.Delta, o.Rounds = account.LaplaceNoise, recipe.Decimal{Coefficient: 3}, recipe.Decimal{}, 3
	decide := func(o account.Options, l *Ledger, day int) error {
		d := Device{Ledger: l}
		_, err := d.Decide(t.Context(), newServers(t).plan(o), one(1), now.AddDate(0, 0, day))
		return err
	}
	stingy := func() *Ledger {
		l, err := MemoryLedger(LedgerOptions{MaxEpsilon: 3.5, MaxDelta: 1e-17})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := stingy(); !errors.As(decide(o, l, 0), new(*BudgetError)) || l.Spent() != (Spent{}) {
		t.Errorf("a delta of 1e-9 is within a budget of 1e-17: %v", l.Spent())
	}
	o.Pure = true
	l := stingy()
	for day := range 3 {
		if err := decide(o, l, day); err != nil {
			t.Fatal(err)
		}
		if got := l.Spent(); got.Delta != 0 || math.Abs(got.Epsilon-float64(day+1)) > 1e-3 {
			t.Errorf("after %d rounds %v are spent", day+1, got)
		}
	}
	if err := decide(o, l, 3); !errors.Is(err, ErrDecided) {
		t.Errorf("a fourth round: %v", err)
	}
	if e := l.Entries(); len(e) != 1 || e[0].Loss.Delta != 0 {
		t.Errorf("%+v at %v", e, now.Add(time.Hour))
	}
}
