package deploy

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/service/servicetest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// TestCheckInsThroughServers: devices check in at slots of a round of real servers, each at
// its own, and each slot is released alone; the whole round is not. Their numbers are what
// the coins say: within six deviations, which fails once in 10^8 runs, as does the sum. A
// machine has to make 600 decisions in four seconds, and to send 200 reports in three; one
// that is too busy has longer slots.
func TestCheckInsThroughServers(t *testing.T) {
	for length := 3 * time.Second; !checkIns(t, length); length *= 3 {
		if length > 30*time.Second {
			t.Fatal("devices came too late each time")
		}
	}
}

// checkIns plays slots of a length, and says whether all devices came in time for theirs.
func checkIns(t *testing.T, length time.Duration) bool {
	const devices, slots = 600, 2
	a, err := Loopback()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	r, err := account.New(account.Options{Name: "Slots", Query: recipe.Multihot{Length: 2, MaxWeight: 1}, Leader: a.LeaderURL(), Helper: a.HelperURL(), MinBatch: 20,
		TimePrecision: 1, Grace: 2 * time.Second, Noise: recipe.EachDraws(recipe.Rational{Num: 4, Den: 1}), Delta: recipe.Decimal{Coefficient: 1, Scale: 6},
		Participation: recipe.CheckIn{Schedule: release.FixedWindow, Rate: recipe.Rational{Num: 1, Den: 2}, Slots: slots, Length: uint32(length / time.Second)},
		Rate:          &recipe.Rate{Devices: devices, Units: slots * uint64(length/time.Second)},
		Dummies:       &recipe.Dummies{Rate: recipe.Rational{Num: 1, Den: 4}, Senders: devices, Allowance: 90}})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "d")
	if err := Create(dir, r, a); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	servicetest.Serve(t, append(load(t, dir, dap.RoleHelper).Parts(log, Listeners{Public: a.Helper, Local: a.HelperLocal}),
		load(t, dir, dap.RoleLeader).Parts(log, Listeners{Public: a.Leader, Local: a.LeaderLocal})...)...)
	checked, err := OpenRecipe(filepath.Join(dir, RecipeFile))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	answers, err := client.New(client.Options{Checked: checked, MaxEpsilon: math.Inf(1), AnyKeys: true})
	if err != nil {
		t.Fatal(err)
	}
	plan, err := participate.NewPlan(participate.PlanOptions{Client: answers})
	if err != nil {
		t.Fatal(err)
	}
	if err := answers.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	// All decide in one round, for the next.
	at := time.Now()
	if at = at.Truncate(slots * length).Add(slots * length); time.Until(at) < length+time.Second {
		time.Sleep(time.Until(at))
		at = at.Add(slots * length)
	}
	var decisions []*participate.Decision
	drawn := [slots]int{}
	for i := range devices {
		ledger, err := participate.OpenLedger(disktest.NewMem(uint64(i)), participate.LedgerOptions{MaxEpsilon: 100, MaxDelta: 1})
		if err != nil {
			t.Fatal(err)
		}
		d := &participate.Device{Ledger: ledger}
		decision, err := d.Decide(ctx, plan, client.Vector([]uint64{1, 0}), at.Add(-time.Second))
		if err != nil {
			t.Fatal(err)
		}
		from, _, ok := decision.Slot()
		if begin, _ := decision.Round(); !ok || !begin.Equal(at) {
			t.Fatalf("device %d: round from %v, slot %v", i, begin, ok)
		}
		drawn[int(from.Sub(at)/length)]++
		decisions = append(decisions, decision)
	}
	for slot := range slots {
		from := at.Add(time.Duration(slot) * length)
		time.Sleep(time.Until(from.Add(200 * time.Millisecond)))
		for i, d := range decisions {
			if begin, _, _ := d.Slot(); !begin.Equal(from) {
				continue
			}
			err := d.Send(ctx)
			if late := time.Since(from.Add(length)); late > 0 {
				t.Logf("device %d: %v late in a slot of %v, %v", i, late, length, err)
				return false
			} else if err != nil {
				t.Fatalf("device %d: %v", i, err)
			}
		}
	}
	config, err := LoadCollector(filepath.Join(dir, CollectorFile))
	if err != nil {
		t.Fatal(err)
	}
	s, err := config.Open(collector.Options{Poll: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	end := at.Add(slots * length)
	if _, err := s.Collect(ctx, at, end); !errors.As(err, new(*recipe.BatchError)) {
		t.Errorf("the whole round: %v", err)
	}
	time.Sleep(time.Until(end.Add(2500 * time.Millisecond)))
	for slot := range slots {
		from := at.Add(time.Duration(slot) * length)
		result, err := s.Collect(ctx, from, from.Add(length))
		if err != nil {
			t.Fatal(err)
		}
		n := float64(drawn[slot])
		if got := float64(result.ReportCount); math.Abs(got-n*0.625) > 6*math.Sqrt(n*0.625*0.375) {
			t.Errorf("slot %d of %v devices: %v reports", slot, n, got)
		}
		// The sum of those who reported, undone by the coin: noise of both servers has variance 8.
		if got := result.Estimate[0]; math.Abs(got-n) > 6*2*math.Sqrt(n*0.25+8) {
			t.Errorf("slot %d: %v of %v devices", slot, got, n)
		}
	}
	return true
}
