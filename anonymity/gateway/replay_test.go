package gateway

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/disk"
	"github.com/starling-agg/starling/disk/disktest"
)

// fixedClock has a time that stands still and the system's timers.
type fixedClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *fixedClock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }
func (c *fixedClock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}
func (c *fixedClock) NewTimer(d time.Duration) disk.Timer { return disk.SystemClock.NewTimer(d) }

// TestReplayAtOnce: of many copies that arrive at one time, one is passed on.
func TestReplayAtOnce(t *testing.T) {
	b := start(t, Options{})
	request, _ := sealTo(t, b.pair, upload(report(t, 1)))
	var all sync.WaitGroup
	var passed, replayed atomic.Int32
	for range 16 {
		all.Go(func() {
			switch got := refusedAs(t, b.bring(request)); got {
			case "":
				passed.Add(1)
			case door.Replayed:
				replayed.Add(1)
			default:
				t.Errorf("refused: %s", got)
			}
		})
	}
	all.Wait()
	if passed.Load() != 1 || replayed.Load() != 15 || len(b.leader.seen()) != 1 {
		t.Errorf("%d passed, %d refused, the leader got %d", passed.Load(), replayed.Load(), len(b.leader.seen()))
	}
}

// TestReplayAfterPowerLoss: power is lost at each failpoint; what a leader has seen is refused from then on.
func TestReplayAfterPowerLoss(t *testing.T) {
	pair := generate(t, 1)
	for _, name := range disk.LogFailpoints() {
		for seed := range uint64(8) {
			mem := disktest.NewMem(seed)
			points := new(disk.Failpoints)
			b := start(t, Options{FS: mem, Keys: []Key{{Pair: pair}}, Failpoints: points})
			first, _ := sealTo(t, pair, upload(report(t, 1)))
			second, _ := sealTo(t, pair, upload(report(t, 2)))
			if got := refusedAs(t, b.bring(first)); got != "" {
				t.Fatalf("%s: %s", name, got)
			}
			points.Arm(name, 0, func() error { mem.Cut(); return disktest.ErrPowerLoss })
			got := refusedAs(t, b.bring(second))
			seen := len(b.leader.seen())
			if (got == "") != (seen == 2) {
				t.Errorf("%s: refused as %q, and the leader got %d requests", name, got, seen)
			}
			b.stop()

			again := start(t, Options{FS: mem.Crash(), Keys: []Key{{Pair: pair}}})
			if got := refusedAs(t, again.bring(first)); got != door.Replayed {
				t.Errorf("%s, seed %d: after the crash the first is %q", name, seed, got)
			}
			// The second may have become durable without having been passed on; the device then encapsulates anew.
			switch got := refusedAs(t, again.bring(second)); {
			case seen == 2 && got != door.Replayed, got != "" && got != door.Replayed:
				t.Errorf("%s, seed %d: after the crash the second is %q", name, seed, got)
			}
			third, _ := sealTo(t, pair, upload(report(t, 2)))
			if got := refusedAs(t, again.bring(third)); got != "" {
				t.Errorf("%s, seed %d: encapsulated anew it is %q", name, seed, got)
			}
			again.stop()
		}
	}
}

// TestDiskFails: a gateway that cannot remember opens nothing more.
func TestDiskFails(t *testing.T) {
	points := new(disk.Failpoints)
	b := start(t, Options{Failpoints: points})
	points.Arm(disk.FailLogBeforeSync, 0, func() error { return errors.New("bad sector") })
	for i := range byte(3) {
		request, _ := sealTo(t, b.pair, upload(report(t, i)))
		if got := refusedAs(t, b.bring(request)); got != door.Busy {
			t.Errorf("%q", got)
		}
	}
	if len(b.leader.seen()) != 0 || b.Ready() == nil {
		t.Error("it goes on")
	}
}

// TestRotation: a new key begins empty, the one before still counts, and one that left never comes back.
func TestRotation(t *testing.T) {
	mem := disktest.NewMem(1)
	first, second, third := generate(t, 1), generate(t, 2), generate(t, 3)
	b := start(t, Options{FS: mem, Keys: []Key{{Pair: first}}})
	request, _ := sealTo(t, first, upload(report(t, 1)))
	if got := refusedAs(t, b.bring(request)); got != "" {
		t.Fatal(got)
	}
	b.stop()
	b = start(t, Options{FS: mem, Keys: []Key{{Pair: second}, {Pair: first}}})
	if got := refusedAs(t, b.bring(request)); got != door.Replayed {
		t.Errorf("under the previous key: %q", got)
	}
	b.stop()
	b = start(t, Options{FS: mem, Keys: []Key{{Pair: third}, {Pair: second}}})
	if got := refusedAs(t, b.bring(request)); got != door.Key {
		t.Errorf("under a key that left: %q", got)
	}
	b.stop()
	o := Options{FS: mem, Keys: []Key{{Pair: third}, {Pair: first}}, Targets: []Target{{URL: leaderURL}}, Protocol: nothing{}}
	if _, err := New(o); !errors.Is(err, ErrRetired) {
		t.Errorf("a key that left came back: %v", err)
	}
	entries, err := mem.ReadDir(".")
	if err != nil || len(entries) != 3 { // two logs and one note
		t.Errorf("%v, %v", entries, err)
	}
}

// TestFull: a key opens a bounded number of requests, over restarts too.
func TestFull(t *testing.T) {
	mem, pair := disktest.NewMem(1), generate(t, 1)
	for range 2 {
		b := start(t, Options{FS: mem, Keys: []Key{{Pair: pair}}, MaxOpened: 2})
		request, _ := sealTo(t, pair, upload(report(t, 1)))
		if got := refusedAs(t, b.bring(request)); got != "" {
			t.Fatal(got)
		}
		b.stop()
	}
	b := start(t, Options{FS: mem, Keys: []Key{{Pair: pair}}, MaxOpened: 2})
	request, _ := sealTo(t, pair, upload(report(t, 1)))
	if got := refusedAs(t, b.bring(request)); got != door.Full || b.Ready() == nil {
		t.Errorf("%q", got)
	}
}
