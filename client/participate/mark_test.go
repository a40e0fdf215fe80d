package participate

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
)

// files are a device's three files, by name.
type files map[string][]byte

func filesOf(t *testing.T, mem *disktest.Mem) files {
	t.Helper()
	list := files{}
	for _, name := range []string{LedgerFile, MarkFile, DrawsFile} {
		b, err := disk.ReadFile(mem, name, 1<<20)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		list[name] = b
	}
	return list
}

func (f files) with(name string, b []byte) files {
	f = maps.Clone(f)
	if f[name] = b; b == nil {
		delete(f, name)
	}
	return f
}

func (f files) disk(t *testing.T) *disktest.Mem {
	t.Helper()
	mem := disktest.NewMem(1)
	for name, b := range f {
		if err := disk.WriteFile(mem, name, b); err != nil {
			t.Fatal(err)
		}
	}
	return mem
}

var drawn = drawKey{recipe.ID{1}, 3}

// history is a device's life, as its files were after each step: it decides rounds 1 and
// 2, draws a slot for round 3, takes that, and decides round 4.
func history(t *testing.T) (steps []files) {
	t.Helper()
	mem, ctx := disktest.NewMem(1), t.Context()
	l := open(t, mem)
	id, rule := drawn.recipe, times(9)
	for i, step := range []func() error{
		func() error { return l.See(ctx, id, []byte("recipe"), now) },
		func() error { return l.Charge(ctx, id, 1, rule, now, price) },
		func() error { return l.Charge(ctx, id, 2, rule, now, price) },
		func() error { return l.Charge(ctx, id, 3, rule, now, price) },
		func() error { return l.remember(drawn, draw{slot: 2, end: now.Unix() + 100}, now) },
		func() error {
			ok, err := l.take(drawn, now)
			if !ok {
				t.Error("the slot is not there")
			}
			return err
		},
		func() error { return l.Charge(ctx, id, 4, rule, now, price) },
	} {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		steps = append(steps, filesOf(t, mem))
	}
	return steps
}

// refused says that a device with these files tosses nothing again that it tossed in the
// history: it does not open them, or holds the rounds for decided and the slot for taken.
func refused(t *testing.T, what string, f files, rounds uint64) (opened bool) {
	t.Helper()
	l, err := OpenLedger(f.disk(t), budget)
	if err != nil {
		if !errors.Is(err, ErrLedger) {
			t.Errorf("%s: %v", what, err)
		}
		return false
	}
	defer l.Close()
	for round := uint64(1); round <= rounds; round++ {
		if err := l.Charge(t.Context(), drawn.recipe, round, times(9), now, price); !errors.Is(err, ErrDecided) {
			t.Errorf("%s: round %d is decided again: %v", what, round, err)
		}
	}
	if ok, err := l.take(drawn, now); ok || err != nil {
		t.Errorf("%s: the slot is taken again: %v", what, err)
	}
	return true
}

// Any one bit flipped, and any cut, in any of the three files ends the ledger, its last
// record included: a charge that was acted on is never taken for a torn one.
func TestLedgerDamage(t *testing.T) {
	last := history(t)[6]
	if !refused(t, "untouched", last, 4) {
		t.Fatal("an untouched ledger is refused")
	}
	for name, whole := range last {
		for n := range whole {
			for bit := range 8 {
				changed := slices.Clone(whole)
				changed[n] ^= 1 << bit
				if what := fmt.Sprintf("%s, byte %d, bit %d", name, n, bit); refused(t, what, last.with(name, changed), 4) {
					t.Errorf("%s: opened", what)
				}
				if _, _, err := ReadLedger(last.with(name, changed).disk(t)); name != DrawsFile && !errors.Is(err, ErrLedger) {
					t.Errorf("%s, byte %d, bit %d: shown, %v", name, n, bit, err)
				}
			}
			if what := fmt.Sprintf("%s, cut to %d", name, n); refused(t, what, last.with(name, whole[:n:n]), 4) {
				t.Errorf("%s: opened", what)
			}
		}
		if what := name + " removed"; refused(t, what, last.with(name, nil), 4) {
			t.Errorf("%s: opened", what)
		}
	}
}

// The mark gone and the ledger's charges cut off with it is no new ledger.
func TestLedgerWithoutMark(t *testing.T) {
	last := history(t)[3] // no slot was drawn yet: a file of draws would not fit no mark
	whole := last[LedgerFile]
	const begun = disk.LogHeaderSize + disk.FrameOverhead + 1 + 4 + len(recipe.ID{}) // the end of the first record
	for n := begun + 1; n <= len(whole); n++ {
		if what := fmt.Sprint("no mark, and cut to ", n); refused(t, what, last.with(MarkFile, nil).with(LedgerFile, whole[:n:n]), 3) {
			t.Errorf("%s: opened", what)
		}
	}
}

// A charge whose mark does not stand was not acted on: torn, its round is free; whole, it
// counts, and its coin is lost.
func TestLedgerTornCharge(t *testing.T) {
	steps := history(t)
	before, after := steps[1], steps[2]
	for n := len(before[LedgerFile]); n <= len(after[LedgerFile]); n++ {
		torn := before.with(LedgerFile, after[LedgerFile][:n:n])
		l, err := OpenLedger(torn.disk(t), budget)
		if err != nil {
			t.Fatalf("cut to %d: %v", n, err)
		}
		err = l.Charge(t.Context(), drawn.recipe, 2, times(9), now, price)
		if whole := n == len(after[LedgerFile]); !whole && err != nil || whole && !errors.Is(err, ErrDecided) {
			t.Errorf("cut to %d of %d: %v", n, len(after[LedgerFile]), err)
		}
		l.Close()
	}
}

// One file put back to what it was at any time before brings nothing back. That all of
// them were put back together nobody can tell who sees these files only.
func TestLedgerPutBack(t *testing.T) {
	steps := history(t)
	last := steps[len(steps)-1]
	for i, old := range steps[:len(steps)-1] {
		for name := range last {
			if slices.Equal(old[name], last[name]) {
				continue
			}
			opened := refused(t, fmt.Sprintf("%s as after step %d", name, i), last.with(name, old[name]), 4)
			if name == LedgerFile && opened {
				t.Errorf("a ledger as after step %d is opened", i)
			}
		}
	}
	// Right after the slot was taken, the file that still has it looks as if the power
	// had gone in between.
	if !refused(t, "draws of before the slot was taken", steps[5].with(DrawsFile, steps[4][DrawsFile]), 3) {
		t.Error("a change of draws that did not reach the disk ends the ledger")
	}
	// A mark of two charges ago was put back; one of one charge ago may be what a loss of
	// power left.
	for step, opens := range map[int]bool{1: false, 2: true} {
		what := fmt.Sprintf("a mark of after step %d", step)
		if refused(t, what, steps[3].with(MarkFile, steps[step][MarkFile]), 3) != opens {
			t.Errorf("%s: opened is not %v", what, opens)
		}
	}
	// Nor does another device's file fit, though it did the same.
	for name, b := range history(t)[6] {
		if refused(t, "another device's "+name, last.with(name, b), 4) {
			t.Errorf("another device's %s is opened", name)
		}
	}
}

// With a counter outside, all files put back together, or removed, are found out too: of
// every earlier time, those within one round included. A power cut at any call leaves a
// ledger that opens, or none.
func TestLedgerPutBackAsAWhole(t *testing.T) {
	elsewhere := disktest.NewMem(9)
	o := budget
	o.Counter = FileCounter{elsewhere, "counter"}
	mem, ctx := disktest.NewMem(1), t.Context()
	l, err := OpenLedger(mem, o)
	if err != nil {
		t.Fatal(err)
	}
	steps := []files{{}, filesOf(t, mem)}
	for i, step := range []func() error{
		func() error {
			return errors.Join(l.See(ctx, drawn.recipe, []byte("recipe"), now), l.Charge(ctx, drawn.recipe, 1, times(9), now, price))
		},
		func() error { return l.Charge(ctx, drawn.recipe, 3, times(9), now, price) },
		func() error { return l.remember(drawn, draw{slot: 2, end: now.Unix() + 100}, now) },
		func() error { _, err := l.take(drawn, now); return err },
	} {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		steps = append(steps, filesOf(t, mem))
	}
	l.Close()
	for i, old := range steps {
		again, err := OpenLedger(old.disk(t), o)
		if last := i == len(steps)-1; !last && !errors.Is(err, ErrLedger) || last && err != nil {
			t.Errorf("as after step %d: %v", i, err)
		}
		if err == nil {
			again.Close()
		}
	}
	counter, err := disk.ReadFile(elsewhere, "counter", 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	for n := range counter {
		changed := slices.Clone(counter)
		changed[n] ^= 0x10
		if err := disk.WriteFile(elsewhere, "counter", changed); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenLedger(steps[len(steps)-1].disk(t), o); !errors.Is(err, ErrLedger) {
			t.Errorf("a counter changed at byte %d: %v", n, err)
		}
	}
	// The power goes at every call of either disk: what was acted on is charged, and the
	// ledger opens.
	for at := range 60 {
		mem, elsewhere := disktest.NewMem(uint64(at)), disktest.NewMem(uint64(at)+1000)
		n := 0
		cut := func(disktest.Op, string) error {
			if n++; n > at {
				return errors.New("injected")
			}
			return nil
		}
		mem.Inject(cut)
		elsewhere.Inject(cut)
		o.Counter = FileCounter{elsewhere, "counter"}
		acted := 0
		if l, err := OpenLedger(mem, o); err == nil {
			acted = script(ctx, l)
			l.Close()
		}
		o.Counter = FileCounter{elsewhere.Crash(), "counter"}
		l, err := OpenLedger(mem.Crash(), o)
		if err != nil {
			t.Errorf("cut at call %d: %v", at, err)
			continue
		}
		rounds := 0
		for _, e := range l.Entries() {
			rounds += int(e.Rounds)
		}
		if rounds < acted || rounds > acted+1 {
			t.Errorf("cut at call %d: acted on %d coins, %d are charged", at, acted, rounds)
		}
		l.Close()
	}
}
