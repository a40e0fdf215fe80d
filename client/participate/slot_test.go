package participate

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

const donationSlots = 4

// donations has rounds of a day, with slots of six hours; its next round begins at
// donationStart.
func donations() account.Options {
	o := options()
	o.Participation = recipe.DonationTime{Rate: recipe.Rational{Num: 1, Den: 2}, Slots: donationSlots, Length: 6}
	o.Dummies = &recipe.Dummies{Rate: recipe.Rational{Num: 1, Den: 2}, Senders: 5000, Allowance: 500}
	return o
}

var donationStart = time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)

// A device with donation times sends in a slot of the next round, and tosses its coins
// only then.
func TestDonation(t *testing.T) {
	const n = 600
	s := newServers(t)
	p := s.plan(donations())
	slots, sent := make([]int, donationSlots+1), make([]int, donationSlots+1)
	for range n {
		d := Device{Ledger: memory(t)}
		decision, err := d.Decide(t.Context(), p, one(1), now)
		if err != nil {
			t.Fatal(err)
		}
		if begin, end := decision.Round(); !begin.Equal(donationStart) || !end.Equal(donationStart.AddDate(0, 0, 1)) {
			t.Fatalf("round from %v to %v", begin, end)
		}
		slot := donationSlots
		if from, to, ok := decision.Slot(); ok != decision.Uploads() {
			t.Fatal("a slot and nothing to upload, or the other way round")
		} else if ok {
			slot = int(from.Sub(donationStart) / (6 * time.Hour))
			if at := decision.At(); slot < 0 || slot >= donationSlots || at.Before(from) || !at.Before(to) || to.Sub(from) != 6*time.Hour {
				t.Fatalf("at %v in %v to %v", at, from, to)
			}
		} else if at := decision.At(); at.Before(donationStart) || !at.Before(donationStart.AddDate(0, 0, 1)) {
			t.Fatalf("no slot, and woken at %v", at)
		}
		slots[slot]++
		unit, err := decision.take()
		if err != nil || (unit != nil) != decision.Uploads() {
			t.Fatal(unit, err)
		}
		if unit != nil {
			at := unit.carrier.(*sealedReport).report.Metadata.Time
			if begin, _ := p.recipe.TimePrecision.Begin(at); !begin.Equal(donationStart.Add(time.Duration(slot) * 6 * time.Hour)) {
				t.Fatalf("a report of slot %d says %v", slot, begin)
			}
		}
		if unit == nil {
			slot = donationSlots
		}
		sent[slot]++
	}
	none, silent := 1.0, 1.0
	for i := range donationSlots {
		w := math.Pow(0.75, float64(i)) / donationSlots
		within6(t, fmt.Sprint("slot ", i), slots[i], n, w)
		within6(t, fmt.Sprint("sent in slot ", i), sent[i], n, w*(0.5+0.25))
		none, silent = none-w, silent-w*0.75
	}
	within6(t, "no slot", slots[donationSlots], n, none)
	within6(t, "nothing sent", sent[donationSlots], n, silent)

	late := donations()
	late.Window = recipe.Between{Start: 0, End: 24}
	if _, err := (&Device{Ledger: memory(t)}).Decide(t.Context(), s.plan(late), one(1), now); !errors.Is(err, client.ErrWindow) {
		t.Error("a round outside the window", err)
	}
}

// fixed tosses the given slot, and then heads.
func fixed(slot int) coin {
	n := 0
	return func(*big.Rat) bool {
		n++
		return n > donationSlots || donationSlots-n == slot
	}
}

// A device that starts again goes on with its slot: before it, in it and after it, and
// pays and tosses once.
func TestDonationResume(t *testing.T) {
	s := newServers(t)
	p := s.plan(donations())
	ctx := t.Context()
	mem := disktest.NewMem(1)
	// life is the device between two losses of power.
	life := func(toss coin) Device {
		mem = mem.Crash()
		l, err := OpenLedger(mem, LedgerOptions{MaxEpsilon: 100, MaxDelta: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		return Device{Ledger: l, coin: toss}
	}
	never := coin(func(*big.Rat) bool { t.Error("a coin is tossed"); return false })
	d := life(never)
	if _, err := d.Resume(ctx, p, one(1), now); !errors.Is(err, ErrNoDraw) {
		t.Fatal("resumed from nothing", err)
	}
	d = life(fixed(2))
	first, err := d.Decide(ctx, p, one(1), now)
	if err != nil {
		t.Fatal(err)
	}
	from, to, ok := first.Slot()
	if !ok || !from.Equal(donationStart.Add(12*time.Hour)) {
		t.Fatal(from, ok)
	}
	paid := d.Ledger.Spent()

	d = life(never)
	if _, err := d.Decide(ctx, p, one(1), now.Add(time.Hour)); !errors.Is(err, ErrDecided) {
		t.Error("decided again", err)
	}
	if _, err := d.Resume(ctx, p, client.Number(1), now); !errors.As(err, new(*client.ValueError)) {
		t.Error("a wrong answer", err)
	}
	again, err := d.Resume(ctx, p, one(1), now.Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if f, _, ok := again.Slot(); !ok || !f.Equal(from) || again.At().Before(from) || !again.At().Before(to) {
		t.Errorf("resumed in %v, drawn for %v", f, from)
	}
	// In the slot it sends at once, and once.
	tosses := 0
	d = life(func(*big.Rat) bool { tosses++; return true })
	inside := from.Add(time.Minute)
	twin, err := d.Resume(ctx, p, one(1), inside)
	if err != nil {
		t.Fatal(err)
	}
	decision, err := d.Resume(ctx, p, one(1), inside)
	if err != nil || !decision.At().Equal(inside) || !decision.Uploads() || tosses != 0 {
		t.Fatal(decision.At(), tosses, err)
	}
	if err := decision.Send(ctx); err != nil || s.Counts().Reports != 1 {
		t.Fatalf("%d reports, %v", s.Counts().Reports, err)
	}
	if unit, err := twin.take(); unit != nil || err != nil {
		t.Error("one slot is taken twice", err)
	}
	d = life(func(*big.Rat) bool { return true })
	decision, err = d.Resume(ctx, p, one(1), inside)
	if err != nil || decision.Uploads() {
		t.Fatal("the slot is there after it was taken", err)
	}
	if err := decision.Send(ctx); err != nil || s.Counts().Reports != 1 {
		t.Errorf("%d reports, %v", s.Counts().Reports, err)
	}
	if spent := d.Ledger.Spent(); spent != paid {
		t.Errorf("spent %v, then %v", paid, spent)
	}
	// Once the round is over, nothing is left of it, and the next one can be decided.
	after := donationStart.AddDate(0, 0, 1)
	if _, err := d.Resume(ctx, p, one(1), after); !errors.Is(err, ErrNoDraw) {
		t.Error("resumed after the end", err)
	}
	d = life(fixed(0))
	if _, err := d.Decide(ctx, p, one(1), after); err != nil {
		t.Fatal(err)
	}
	if len(d.Ledger.draws) != 1 {
		t.Errorf("%d slots are kept", len(d.Ledger.draws))
	}
	// A slot that nobody was there for is missed.
	d = life(never)
	missed, err := d.Resume(ctx, p, one(1), after.AddDate(0, 0, 1).Add(7*time.Hour))
	if err != nil || missed.Uploads() || missed.At().Before(after.AddDate(0, 0, 1).Add(7*time.Hour)) {
		t.Error("a slot that has passed", err)
	}
}

// TestPass: in another slot the disk is changed as often as by taking the slot, the slot is
// there afterwards, and once it was taken no older file of draws gives it back.
func TestPass(t *testing.T) {
	s := newServers(t)
	p := s.plan(donations())
	mem := disktest.NewMem(1)
	open := func() (*Ledger, error) { return OpenLedger(mem, LedgerOptions{MaxEpsilon: 100, MaxDelta: 1}) }
	l, err := open()
	if err != nil {
		t.Fatal(err)
	}
	decision, err := (&Device{Ledger: l, coin: fixed(2)}).Decide(t.Context(), p, one(1), now)
	if err != nil {
		t.Fatal(err)
	}
	drawn, err := disk.ReadFile(mem, DrawsFile, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	serial, length := l.mark.serial, len(drawn)
	for range 3 {
		writes := mem.Writes()
		if err := decision.Pass(t.Context(), now); err != nil || decision.sent {
			t.Fatal(err)
		}
		if serial++; l.mark.serial != serial || mem.Writes() == writes {
			t.Errorf("change %d of the mark, want %d", l.mark.serial, serial)
		}
	}
	writes := mem.Writes()
	if err := decision.Pass(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	passed := mem.Writes() - writes
	last, err := disk.ReadFile(mem, DrawsFile, 1<<10)
	if err != nil {
		t.Fatal(err)
	}
	writes = mem.Writes()
	if unit, err := decision.take(); unit == nil || err != nil {
		t.Errorf("the slot is gone: %v", err)
	}
	if taken := mem.Writes() - writes; taken != passed || l.mark.serial != serial+2 {
		t.Errorf("%d calls to take a slot, %d in another; change %d of the mark, want %d", taken, passed, l.mark.serial, serial+2)
	}
	if err := decision.Pass(t.Context(), now); err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	none, err := disk.ReadFile(mem, DrawsFile, 1<<10)
	if err != nil || len(none) != length {
		t.Errorf("%d bytes, before %d; %v", len(none), length, err)
	}
	for name, old := range map[string][]byte{"as it was drawn": drawn, "as it was before it was taken": last} {
		if err := disk.WriteFile(mem, DrawsFile, old); err != nil {
			t.Fatal(err)
		}
		if _, err := open(); !errors.Is(err, ErrLedger) {
			t.Errorf("the file %s: %v", name, err)
		}
	}
}

// What the disk tells of a slot that is taken, and of none, is the same.
func TestDrawsTellNothing(t *testing.T) {
	s := newServers(t)
	p := s.plan(donations())
	file := func(slot int, take bool) []byte {
		mem := disktest.NewMem(1)
		l, err := OpenLedger(mem, LedgerOptions{MaxEpsilon: 100, MaxDelta: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		decision, err := (&Device{Ledger: l, coin: fixed(slot)}).Decide(t.Context(), p, one(1), now)
		if err == nil && take {
			_, err = decision.take()
		}
		if err != nil {
			t.Fatal(err)
		}
		b, err := disk.ReadFile(mem, DrawsFile, 1<<10)
		if err != nil {
			t.Fatal(err)
		}
		clear(b[len(drawsMagic) : len(drawsMagic)+len(salt{})])
		return b
	}
	none := file(-1, false)
	if taken := file(2, true); !slices.Equal(taken, none) || !slices.Equal(file(-1, true), none) {
		t.Errorf("taken %x, none %x", taken, none)
	}
	if drawn := file(2, false); len(drawn) != len(none) || slices.Equal(drawn, none) {
		t.Errorf("drawn %x, none %x", drawn, none)
	}
}

// Whatever the disk does to the file of draws, no slot is taken twice and none is made up.
func TestDrawsCrash(t *testing.T) {
	k := drawKey{recipe.ID{1}, 7}
	far := draw{slot: 3, end: now.Unix() + 100}
	whole := 0
	for run := range 2 * 40 {
		at, kill := run/2, run%2 == 1
		mem := disktest.NewMem(uint64(at))
		l := open(t, mem)
		n := 0
		mem.Inject(func(op disktest.Op, _ string) error {
			if n++; n > at {
				return errors.New("injected")
			}
			return nil
		})
		remembered := l.remember(k, far, now)
		took, err := l.take(k, now)
		if took && (err != nil || remembered != nil) {
			t.Errorf("call %d: taken though %v, %v", at, remembered, err)
		}
		after := mem
		if mem.Inject(nil); !kill { // who kills the process leaves the disk as it is
			after = mem.Crash()
		}
		l = open(t, after)
		again, err := l.take(k, now)
		if err != nil {
			t.Errorf("call %d: %v", at, err)
		}
		if took && again {
			t.Errorf("call %d: taken twice", at)
		}
		if took {
			whole++
		}
	}
	if whole < 2 {
		t.Error("no run came through")
	}
	mem := disktest.NewMem(1)
	for _, b := range []string{"x", drawsMagic + "x", "starling draws v3"} {
		if err := disk.WriteFile(mem, DrawsFile, []byte(b)); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenLedger(mem, budget); !errors.Is(err, ErrLedger) {
			t.Errorf("%q: %v", b, err)
		}
	}
}

func FuzzDraws(f *testing.F) {
	for _, draws := range []map[drawKey]draw{
		{}, {{recipe.ID{1}, 2}: {3, 4}}, {{recipe.ID{1}, 2}: {3, 4}, {recipe.ID{1}, 3}: {noSlot, 5}, {recipe.ID{2}, 1}: {0, 6}},
	} {
		b, err := appendDraws(nil, salt{5}, draws)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		salt, draws, err := readDraws(b)
		if err != nil {
			return
		}
		if again, err := appendDraws(nil, salt, draws); err != nil || string(again) != string(b) {
			t.Fatalf("%x written again is %x, %v", b, again, err)
		}
	})
}
