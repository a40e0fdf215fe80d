package participate

import (
	"errors"
	"testing"
	"time"

	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// running is a recipe with correlated noise over rounds of one hour: a device at most
// three times, every fifth hour.
func running(t testing.TB) account.Options {
	s, err := correlated.SquareRoot(4, 8)
	if err != nil {
		t.Fatal(err)
	}
	o := options()
	o.Participation, o.Rate, o.Dummies, o.Relay = nil, nil, nil, nil
	o.Noise = recipe.CorrelatedGaussian{Variance: recipe.Rational{Num: 400, Den: 1}, Series: correlated.Series{Strategy: s, Separation: 5, Rounds: 24}}
	return o
}

// A device keeps the recipe's distance between its rounds, refuses before anything is
// sent or charged, and ends after its number.
func TestSeparation(t *testing.T) {
	s := newServers(t)
	p := s.plan(running(t))
	d := Device{Ledger: memory(t)}
	hour := func(n int) time.Time { return now.Add(time.Duration(n) * time.Hour) }
	decide := func(n int) error {
		t.Helper()
		before := d.Ledger.Spent()
		decision, err := d.Decide(t.Context(), p, one(1), hour(n))
		if err != nil {
			if d.Ledger.Spent() != before {
				t.Errorf("hour %d was refused and charged", n)
			}
			return err
		}
		return decision.Send(t.Context())
	}
	for _, tc := range []struct {
		hour int
		want error
	}{{0, nil}, {0, ErrDecided}, {1, ErrTooSoon}, {4, ErrTooSoon}, {-3, ErrDecided}, {5, nil}, {9, ErrTooSoon}, {12, nil}, {16, ErrDecided}, {100, ErrDecided}} {
		if err := decide(tc.hour); !errors.Is(err, tc.want) || tc.want == nil && err != nil {
			t.Errorf("hour %d: %v, want %v", tc.hour, err, tc.want)
		}
	}
	if s.Counts().Reports != 3 {
		t.Errorf("%d reports were sent, want 3", s.Counts().Reports)
	}
	var soon *SeparationError
	d = Device{Ledger: memory(t)}
	if err := errors.Join(decide(0), nil); err != nil {
		t.Fatal(err)
	}
	if err := decide(2); !errors.As(err, &soon) || soon.Separation != 5 || soon.Round != soon.Last+2 {
		t.Errorf("two hours later: %v", err)
	}
	// Without correlated noise the next round is free.
	plain := options()
	plain.Participation, plain.Rate, plain.Dummies, plain.Relay = nil, nil, nil, nil
	p = s.plan(plain)
	for n := range 3 {
		if err := decide(n); err != nil {
			t.Errorf("independent noise, hour %d: %v", n, err)
		}
	}
}

// The distance outlives a loss of power at any write: whatever was charged is remembered,
// so no two charges that a device acted on come too close.
func TestSeparationOutlivesPowerLoss(t *testing.T) {
	rule := recipe.DeviceRule{Rounds: 10, Separation: 4}
	for at := range 30 {
		mem := disktest.NewMem(uint64(at))
		writes := 0
		mem.Inject(func(op disktest.Op, _ string) error {
			if op == disktest.OpWrite || op == disktest.OpSync {
				if writes++; writes >= at+3 {
					return disktest.ErrPowerLoss
				}
			}
			return nil
		})
		var acted []uint64
		round := uint64(0)
		live := func(fsys disk.FS) {
			l, err := OpenLedger(fsys, budget)
			if err != nil {
				return
			}
			defer l.Close()
			if l.See(t.Context(), recipe.ID{1}, nil, now) != nil {
				return
			}
			for range 12 {
				round++
				switch err := l.Charge(t.Context(), recipe.ID{1}, round, rule, now, price); {
				case err == nil:
					acted = append(acted, round)
				case !errors.Is(err, ErrTooSoon):
					return
				}
			}
		}
		live(mem)
		live(mem.Crash())
		for i := 1; i < len(acted); i++ {
			if acted[i]-acted[i-1] < 4 {
				t.Errorf("power lost at write %d: acted in rounds %v", at+3, acted)
			}
		}
		if len(acted) < 3 {
			t.Errorf("power lost at write %d: acted in rounds %v only", at+3, acted)
		}
	}
}
