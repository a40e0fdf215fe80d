package gateway

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
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
	if seen := b.leader.await(t, 1); passed.Load() != 1 || replayed.Load() != 15 || len(seen) != 1 {
		t.Errorf("%d passed, %d refused, the leader got %d", passed.Load(), replayed.Load(), len(seen))
	}
}

// TestDiskFails: a gateway that cannot remember opens nothing more, and one whose disk is
// full for a while goes on.
func TestDiskFails(t *testing.T) {
	mem := disktest.NewMem(1)
	b := start(t, Options{FS: mem})
	full := true
	mem.Inject(func(op disktest.Op, name string) error {
		if full && op == disktest.OpWrite && strings.HasPrefix(name, "round-") {
			return errors.New("no space left on device")
		}
		return nil
	})
	m := upload(report(t, 1))
	request, _ := sealTo(t, b.pair, m)
	if got := refusedAs(t, b.bring(request)); got != door.Busy || b.Ready() != nil {
		t.Errorf("no space: %q, %v", got, b.Ready())
	}
	full = false
	mem.Inject(nil)
	if a := b.ask(t, m); a.Status != 202 || len(b.leader.await(t, 1)) != 1 { // the same report is no known one
		t.Errorf("space again: status %d", a.Status)
	}
	mem.Inject(func(op disktest.Op, name string) error {
		if op == disktest.OpSyncDir {
			return errors.New("bad sector")
		}
		return nil
	})
	for i := range byte(3) {
		request, _ := sealTo(t, b.pair, upload(report(t, 10+i)))
		if got := refusedAs(t, b.bring(request)); got != door.Busy {
			t.Errorf("%q", got)
		}
	}
	if b.Ready() == nil {
		t.Error("it goes on")
	}
}

// TestAgainBeforeItIsWritten: a report that comes again while its round is on the way to
// the disk is acknowledged only if that round gets there.
func TestAgainBeforeItIsWritten(t *testing.T) {
	mem := disktest.NewMem(1)
	b := start(t, Options{FS: mem})
	writing, goOn := make(chan struct{}), make(chan struct{})
	first := true
	mem.Inject(func(op disktest.Op, name string) error { // under the lock of mem
		if !first || op != disktest.OpWrite || !strings.HasPrefix(name, "round-") {
			return nil
		}
		first = false
		close(writing)
		<-goOn
		return errors.New("no space left on device")
	})
	m, refused := upload(report(t, 1)), make(chan door.Reason, 2)
	bring := func() {
		request, _ := sealTo(t, b.pair, m)
		go func() { refused <- refusedAs(t, b.bring(request)) }()
	}
	bring()
	<-writing
	bring()
	for b.Status().Known == 0 { // until it has been read
		runtime.Gosched()
	}
	close(goOn)
	for range 2 {
		if got := <-refused; got != door.Busy {
			t.Errorf("a report that is nowhere: %q", got)
		}
	}
	if a := b.ask(t, m); a.Status != 202 || len(b.leader.await(t, 1)) != 1 {
		t.Errorf("space again: status %d", a.Status)
	}
}

// TestRotation: a new key begins empty, the one before still counts, and one that left
// never comes back.
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
	o := Options{FS: mem, Record: disk.Sub(mem, "record"), Keys: []Key{{Pair: third}, {Pair: first}}, Targets: []Target{{URL: leaderURL}}, Protocol: nothing{}}
	if _, err := New(o); !errors.Is(err, ErrRetired) {
		t.Errorf("a key that left came back: %v", err)
	}
	entries, err := mem.ReadDir(".")
	logs, notes := 0, 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name, openedPrefix) {
			logs++
		} else if strings.HasPrefix(e.Name, retiredPrefix) {
			notes++
		}
	}
	if err != nil || logs != 2 || notes != 1 {
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
	if got := refusedAs(t, b.bring(request)); got != door.Spent || b.Ready() == nil {
		t.Errorf("%q", got)
	}
}
