package participate

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"hash/crc32"
	"math/big"
	"testing"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/recipe"
)

var writeDamage = flag.Bool("write-damage", false, "write the matrix in docs/bench/damage.md anew")

// usedDevice is a device's directory, with a counter outside of it in "outside/". It has
// decided in rounds 1 to 3 of one recipe and in round 3 of its next epoch, has taken the
// slot of the one and waits for that of the other.
type usedDevice struct {
	older, whole disktest.Files
	spent        Spent
}

var (
	epochs  = [2]recipe.ID{{1}, {2}}
	taken   = drawKey{epochs[0], 3}
	waiting = drawKey{epochs[1], 3}
)

func onDisk(t *testing.T, f disktest.Files) (*disktest.Mem, LedgerOptions) {
	mem, o := disktest.NewMem(1), budget
	f.Put(t, mem)
	if err := mem.MkdirAll("outside"); err != nil {
		t.Fatal(err)
	}
	o.Counter = FileCounter{disk.Sub(mem, "outside"), "counter"}
	return mem, o
}

func useDevice(t *testing.T) *usedDevice {
	t.Helper()
	mem, o := onDisk(t, nil)
	l, err := OpenLedger(mem, o)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	u, ctx := &usedDevice{}, t.Context()
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range epochs {
		step(l.See(ctx, id, []byte{byte(i)}, now))
	}
	for round := range uint64(3) {
		step(l.Charge(ctx, epochs[0], round+1, times(9), now, price))
	}
	step(l.remember(taken, draw{slot: 2, end: now.Unix() + 100}, now))
	u.older = disktest.FilesOf(t, mem)
	if ok, err := l.take(taken, now); !ok || err != nil {
		t.Fatal(ok, err)
	}
	step(l.Charge(ctx, epochs[1], 3, times(9), now, price))
	step(l.remember(waiting, draw{slot: 1, end: now.Unix() + 200}, now))
	u.whole, u.spent = disktest.FilesOf(t, mem), l.Spent()
	return u
}

// TestDamage does to each file of a device what disks and people do, and holds what comes
// of it to the table in docs/bench/damage.md: no coin is tossed a second time, no slot is
// taken twice, nothing that is spent is forgotten.
func TestDamage(t *testing.T) {
	u := useDevice(t)
	m := &disktest.Matrix{Whole: u.whole, Older: u.older, Others: useDevice(t).whole,
		Kind: func(name string) string { return name },
		Newer: func(name string, b []byte) []byte {
			switch name {
			case LedgerFile:
				binary.BigEndian.PutUint32(b[16:], 3)
				binary.BigEndian.PutUint32(b[60:], crc32.Checksum(b[:60], crc32.MakeTable(crc32.Castagnoli)))
			case MarkFile:
				b = resummed(b, "charged v1", "charged v2")
			case DrawsFile:
				return bytes.Replace(b, []byte("draws v2"), []byte("draws v3"), 1)
			default:
				b = resummed(b, "counter v1", "counter v2")
			}
			return b
		},
		Dirs:   [][]string{{LedgerFile, MarkFile, DrawsFile}, {"outside/"}},
		Unseen: []string{"outside/, older"},
		Play: func(t *testing.T, f disktest.Files) (class, words string) {
			mem, o := onDisk(t, f)
			l, err := OpenLedger(mem, o)
			if err != nil {
				if !errors.Is(err, ErrLedger) {
					t.Errorf("an error of another kind: %v", err)
				}
				return "refused", err.Error()
			}
			defer l.Close()
			for i, rounds := range []uint64{3, 3} {
				for round := 1 + uint64(i)*2; round <= rounds; round++ {
					if err := l.Charge(t.Context(), epochs[i], round, times(9), now, price); !errors.Is(err, ErrDecided) {
						return "fails", "a round is decided again"
					}
				}
			}
			if ok, err := l.take(taken, now); ok || err != nil {
				return "fails", "a slot is taken again"
			}
			if s := l.Spent(); s.Epsilon < u.spent.Epsilon || s.Delta < u.spent.Delta {
				return "fails", "something that is spent is forgotten"
			}
			first, err1 := l.take(waiting, now)
			second, err2 := l.take(waiting, now)
			switch {
			case err1 != nil || err2 != nil || second:
				return "fails", "a slot is taken twice"
			case !first:
				return "waits", "the slot that was waited for is not to be had any more"
			}
			return "harmless", ""
		},
	}
	table, cells := m.Run(t)
	if t.Logf("%d cells\n%s", cells, table); cells < 20 {
		t.Errorf("only %d cells", cells)
	}
	disktest.HoldTable(t, "../../docs/bench/damage.md", "device", table, *writeDamage)
}

// resummed is a file that ends in the SHA-256 of what is before, as a later version would
// write it.
func resummed(b []byte, magic, later string) []byte {
	b = bytes.Replace(b, []byte(magic), []byte(later), 1)
	n := len(b) - len(digest{})
	sum := sha256.Sum256(b[:n])
	return append(b[:n], sum[:]...)
}

// TestTwoEpochsInOneLedger: a recipe that was published again, for a server lost what it
// knew, is another one: the device decides the same round anew, pays for both, and tosses
// nothing that would overspend the two together; what one epoch has decided, a start later
// too, says nothing of the other.
func TestTwoEpochsInOneLedger(t *testing.T) {
	s := newServers(t)
	first := s.plan(options())
	again, err := recipe.Read(first.checked.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	again.Epoch++
	b, err := again.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	second := s.planOf(b)
	if first.o.Client.RecipeID() == second.o.Client.RecipeID() {
		t.Fatal("two epochs have one id")
	}
	one1, err := first.checked.LossAfter(1)
	if err != nil {
		t.Fatal(err)
	}
	mem := disktest.NewMem(1)
	o := LedgerOptions{MaxEpsilon: one1.Epsilon*2 + 1e-6, MaxDelta: 1}
	tossed := 0
	device := func() (*Device, *Ledger) {
		l, err := OpenLedger(mem, o)
		if err != nil {
			t.Fatal(err)
		}
		return &Device{Ledger: l, coin: func(p *big.Rat) bool { tossed++; return false }}, l
	}
	d, l := device()
	for i, p := range []*Plan{first, second} {
		if _, err := d.Decide(t.Context(), p, one(1), now); err != nil {
			t.Fatalf("epoch %d: %v", i, err)
		}
	}
	coins := tossed
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	d, l = device()
	defer l.Close()
	entries, spent := l.Entries(), l.Spent()
	if len(entries) != 2 || entries[0].Rounds != 1 || entries[1].Rounds != 1 || spent.Epsilon < 2*one1.Epsilon {
		t.Fatalf("%d entries, %v spent, want two of %v", len(entries), spent, one1)
	}
	for i, p := range []*Plan{first, second} {
		if _, err := d.Decide(t.Context(), p, one(1), now); !errors.Is(err, ErrDecided) {
			t.Errorf("epoch %d, the same round again: %v", i, err)
		}
		next := now.Add(time.Duration(p.recipe.RoundUnits()) * time.Duration(p.recipe.TimePrecision) * time.Second)
		if _, err := d.Decide(t.Context(), p, one(1), next); !errors.Is(err, ErrBudget) {
			t.Errorf("epoch %d, over the budget of both: %v", i, err)
		}
	}
	if tossed != coins {
		t.Errorf("%d coins were tossed that were not paid for", tossed-coins)
	}
}
