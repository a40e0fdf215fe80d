package participate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
)

var budget = LedgerOptions{MaxEpsilon: 10, MaxDelta: 1e-3}

// each round of the test's recipes costs 1, and 10^-6, and on no conditions 3.
func price(rounds uint32) (loss, open recipe.Loss, err error) {
	n := float64(rounds)
	return recipe.Loss{Epsilon: n, Delta: 1e-6 * n}, recipe.Loss{Epsilon: 3 * n, Delta: 1e-6 * n}, nil
}

func open(t *testing.T, fsys disk.FS) *Ledger {
	t.Helper()
	l, err := OpenLedger(fsys, budget)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func times(n uint32) recipe.DeviceRule { return recipe.DeviceRule{Rounds: n} }

func TestLedgerKeeps(t *testing.T) {
	mem := disktest.NewMem(1)
	l := open(t, mem)
	ctx := t.Context()
	for i := range 3 {
		id := recipe.ID{byte(i)}
		if err := l.See(ctx, id, []byte{byte(i)}, now); err != nil {
			t.Fatal(err)
		}
		for round := range uint64(i) {
			if err := l.Charge(ctx, id, round, times(2), now, price); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := l.Refuse(ctx, recipe.ID{0}, "too little privacy", now); err != nil {
		t.Fatal(err)
	}
	if err := l.Charge(ctx, recipe.ID{9}, 0, times(1), now, price); !errors.Is(err, ErrLedger) {
		t.Error("a recipe that was not seen is charged", err)
	}
	if err := l.Charge(ctx, recipe.ID{2}, 2, times(2), now, price); !errors.Is(err, ErrDecided) {
		t.Error("more rounds than the recipe has", err)
	}
	if err := l.Charge(ctx, recipe.ID{1}, 0, times(2), now, price); !errors.Is(err, ErrDecided) {
		t.Error("one round twice", err)
	}
	want, spent := l.Entries(), l.Spent()
	if math.Abs(spent.Epsilon-3) > 1e-6 || math.Abs(spent.Delta-3e-6) > 1e-9 || want[0].Refused == "" || want[2].Rounds != 2 {
		t.Errorf("spent %v, entries %+v", spent, want)
	}
	shown, sum, err := ReadLedger(mem)
	if err != nil || fmt.Sprint(shown) != fmt.Sprint(want) || sum != spent {
		t.Errorf("read beside: %v, %v, %v", shown, sum, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = open(t, mem)
	if got := l.Entries(); fmt.Sprint(got) != fmt.Sprint(want) || l.Spent() != spent {
		t.Errorf("after opening again\n%+v\nwant\n%+v", got, want)
	}
	if _, _, err := ReadLedger(disktest.NewMem(2)); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a ledger where none is", err)
	}
}

func TestBudget(t *testing.T) {
	ctx := t.Context()
	l, err := MemoryLedger(LedgerOptions{MaxEpsilon: 2.5, MaxDelta: 1e-3})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		id := recipe.ID{byte(i)}
		if err := l.See(ctx, id, nil, now); err != nil {
			t.Fatal(err)
		}
		err := l.Charge(ctx, id, 0, times(1), now, price)
		var over *BudgetError
		if i < 2 && err != nil || i == 2 && !errors.As(err, &over) {
			t.Errorf("recipe %d: %v", i, err)
		}
		if over != nil && (math.Abs(over.Price.Epsilon-1) > 1e-6 || math.Abs(over.Spent.Epsilon-2) > 1e-6) {
			t.Errorf("%+v", over)
		}
	}
	// No differential privacy is more than any finite budget, and fits only an infinite
	// one.
	none := func(uint32) (_, _ recipe.Loss, _ error) { return recipe.NoPrivacy, recipe.NoPrivacy, nil }
	if err := l.Charge(ctx, recipe.ID{2}, 0, times(1), now, none); !errors.Is(err, ErrBudget) {
		t.Error(err)
	}
	l, err = MemoryLedger(LedgerOptions{MaxEpsilon: math.Inf(1), MaxDelta: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.See(ctx, recipe.ID{}, nil, now), l.Charge(ctx, recipe.ID{}, 0, times(1), now, none)); err != nil {
		t.Fatal(err)
	}
	if !math.IsInf(l.Spent().Epsilon, 1) || l.Entries()[0].Loss != recipe.NoPrivacy {
		t.Errorf("spent %v", l.Spent())
	}
	// delta counts as epsilon does.
	l, err = MemoryLedger(LedgerOptions{MaxEpsilon: 100, MaxDelta: 1.5e-6})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.See(ctx, recipe.ID{}, nil, now), l.Charge(ctx, recipe.ID{}, 0, times(5), now, price)); err != nil {
		t.Fatal(err)
	}
	if err := l.Charge(ctx, recipe.ID{}, 1, times(5), now, price); !errors.Is(err, ErrBudget) {
		t.Error("delta is overspent", err)
	}
	for _, o := range []LedgerOptions{{}, {MaxEpsilon: 1}, {MaxDelta: 1}, {MaxEpsilon: math.NaN(), MaxDelta: 1}, {MaxEpsilon: 1, MaxDelta: 2}} {
		if _, err := MemoryLedger(o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
}

// script is a device's life; acted counts what was acted on: a coin is tossed only after
// Charge returned nil.
func script(ctx context.Context, l *Ledger) (acted int) {
	for i := range 4 {
		id := recipe.ID{byte(i)}
		if l.See(ctx, id, []byte("recipe"), now) != nil {
			return acted
		}
		for round := range uint64(2) {
			if l.Charge(ctx, id, round, times(2), now, price) != nil {
				return acted
			}
			acted++
		}
	}
	return acted
}

// The power goes at every call that changes the disk, the process is killed there, and
// each such call fails alone: what was acted on is in the ledger afterwards, and at most
// one charge more.
func TestLedgerCrash(t *testing.T) {
	run := func(mem *disktest.Mem) int {
		l, err := OpenLedger(mem, budget)
		if err != nil {
			return 0
		}
		acted := script(t.Context(), l)
		l.Close() // fails where the power is gone
		return acted
	}
	whole := disktest.NewMem(1)
	if acted := run(whole); acted != 8 {
		t.Fatalf("acted %d times", acted)
	}
	calls := whole.Writes()
	if calls < 16 {
		t.Fatalf("only %d calls", calls)
	}
	for _, kind := range []string{"power", "kill", "failure"} {
		for at := range calls {
			for seed := range uint64(3) {
				mem := disktest.NewMem(seed)
				n := 0
				mem.Inject(func(op disktest.Op, _ string) error {
					if op == disktest.OpOpen || op == disktest.OpRead {
						return nil
					}
					if n++; n-1 < at || kind == "failure" && n-1 > at {
						return nil
					}
					return errors.New("injected")
				})
				acted := run(mem)
				after := mem
				if mem.Inject(nil); kind != "kill" { // who kills the process leaves the disk as it is
					after = mem.Crash()
				}
				l, err := OpenLedger(after, budget)
				if errors.Is(err, disk.ErrLogHeader) && acted == 0 {
					continue // never was one
				}
				if err != nil {
					t.Fatalf("%s at call %d, seed %d: %v", kind, at, seed, err)
				}
				rounds := 0
				for _, e := range l.Entries() {
					rounds += int(e.Rounds)
				}
				if rounds < acted || rounds > acted+1 {
					t.Errorf("%s at call %d, seed %d: acted on %d coins, %d are charged", kind, at, seed, acted, rounds)
				}
				// It goes on from there.
				if err := errors.Join(l.See(t.Context(), recipe.ID{77}, nil, now), l.Charge(t.Context(), recipe.ID{77}, 5, times(1), now, price)); err != nil {
					t.Errorf("%s at call %d, seed %d: %v", kind, at, seed, err)
				}
				l.Close()
			}
		}
	}
}

// After a write that may or may not have happened nothing is charged until the ledger is
// opened again.
func TestLedgerStops(t *testing.T) {
	mem := disktest.NewMem(1)
	l := open(t, mem)
	if err := l.See(t.Context(), recipe.ID{1}, nil, now); err != nil {
		t.Fatal(err)
	}
	mem.Inject(func(op disktest.Op, _ string) error {
		if op == disktest.OpSync {
			return errors.New("injected")
		}
		return nil
	})
	if err := l.Charge(t.Context(), recipe.ID{1}, 0, times(5), now, price); !errors.Is(err, ErrLedger) {
		t.Fatal(err)
	}
	mem.Inject(nil)
	if err := l.Charge(t.Context(), recipe.ID{1}, 1, times(5), now, price); !errors.Is(err, ErrLedger) {
		t.Error("charged after a failed sync", err)
	}
	if spent := l.Spent(); spent.Epsilon != 0 {
		t.Errorf("spent %v", spent)
	}
}

func FuzzRecord(f *testing.F) {
	for _, r := range []record{
		{kind: kindBegun, day: 1, recipe: recipe.ID{7}},
		{kind: kindSeen, day: 1, recipe: recipe.ID{1}, bytes: []byte("x")},
		{kind: kindRefused, day: 2, recipe: recipe.ID{2}, bytes: []byte("why")},
		{kind: kindCharge, day: 3, recipe: recipe.ID{3}, round: 4, charge: charge{5, 6}},
	} {
		b, err := r.append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := readRecord(b)
		if err != nil {
			if !errors.Is(err, errRecord) {
				t.Fatal(err)
			}
			return
		}
		again, err := r.append(nil)
		if err != nil || string(again) != string(b) {
			t.Fatalf("%x written again is %x, %v", b, again, err)
		}
	})
}
