package round_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// A site is where a controller's store is, whichever process has it.
type site interface {
	// open is what a process does when it starts.
	open(ctx context.Context, fail *disk.Failpoints) (round.Store, error)
	// cut ends what the process that has it can do there, as a loss of its power.
	cut()
	// crash is all that comes of that, once the process is gone.
	crash()
	// save copies what is there; back puts the copy back.
	save(t *testing.T) (back func())
}

// engines make sites, each of which has nothing yet.
var engines = map[string]func(*testing.T) site{"disk": newMem}

// each runs a test at a new site of each engine, in a bubble.
func each(t *testing.T, test func(t *testing.T, at site)) {
	t.Helper()
	for name, engine := range engines {
		t.Run(name, func(t *testing.T) {
			at := engine(t)
			synctest.Test(t, func(t *testing.T) { test(t, at) })
		})
	}
}

// mem is a directory.
type mem struct{ fs *disktest.Mem }

func newMem(*testing.T) site { return &mem{disktest.NewMem(1)} }

func (m *mem) open(_ context.Context, fail *disk.Failpoints) (round.Store, error) {
	return round.OnDisk(m.fs, fail), nil
}

func (m *mem) cut()   { m.fs.Cut() }
func (m *mem) crash() { m.fs = m.fs.Crash() }

func (m *mem) save(t *testing.T) (back func()) {
	old := disktest.FilesOf(t, m.fs)
	return func() {
		m.fs = disktest.NewMem(3)
		old.Put(t, m.fs)
	}
}

// replayed opens a store, and holds its journal to the events that it is to have.
func replayed(t *testing.T, at site, want ...string) round.Store {
	t.Helper()
	s, err := at.open(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := s.Replay(t.Context(), func(event []byte) error { got = append(got, string(event)); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("events %q, want %q", got, want)
	}
	return s
}

// TestStore is what a controller relies on, of each engine.
func TestStore(t *testing.T) {
	each(t, func(t *testing.T, at site) {
		ctx := t.Context()
		s := replayed(t, at)
		var want []string
		add := func(event string) {
			t.Helper()
			if err := s.Append(ctx, []byte(event)); err != nil {
				t.Fatal(err)
			}
			want = append(want, event)
		}
		long := string(bytes.Repeat([]byte{0xff}, 1<<10))
		for _, event := range []string{"a", "a", "\x00", long} {
			add(event)
		}
		put := func(name, content string) {
			t.Helper()
			if err := s.Put(ctx, name, []byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		holds := func(files map[string]string) {
			t.Helper()
			for _, name := range []string{"models/ab", "sums/0", "sums/1", "states/cd"} {
				b, err := s.Get(ctx, name)
				if content, there := files[name]; there && (err != nil || string(b) != content) || !there && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("%s: %d bytes, %v", name, len(b), err)
				}
			}
		}
		holds(nil)
		large := string(bytes.Repeat([]byte("0123456789abcde\x00"), 32<<20/16))
		put("models/ab", "one")
		put("models/ab", "another")
		put("sums/0", "\x00")
		put("sums/1", "sum")
		put("states/cd", large)
		holds(map[string]string{"models/ab": "another", "sums/0": "\x00", "sums/1": "sum", "states/cd": large})
		// What was acknowledged survives the process.
		at.cut()
		_ = s.Close()
		at.crash()
		s = replayed(t, at, want...)
		holds(map[string]string{"models/ab": "another", "sums/0": "\x00", "sums/1": "sum", "states/cd": large})
		if err := s.Retain(ctx, map[string]bool{"sums/1": true, "models/ab": true, "models/nothing": true}); err != nil {
			t.Fatal(err)
		}
		holds(map[string]string{"models/ab": "another", "sums/1": "sum"})
		add("b")
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = replayed(t, at, want...)
		holds(map[string]string{"models/ab": "another", "sums/1": "sum"})
		// An error of who reads ends the reading.
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s, err := at.open(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		stop := fmt.Errorf("%w: stop", round.ErrJournal)
		if err := s.Replay(ctx, func([]byte) error { return stop }); !errors.Is(err, stop) {
			t.Error(err)
		}
		_ = s.Close()
	})
}

var errPower = errors.New("power")

// TestPowerLoss: whatever is lost at any place, every round is announced once, collected
// and stepped with once, and none is lost.
func TestPowerLoss(t *testing.T) {
	for name, engine := range engines {
		skips := []int{0, 1, 2, 5} // how often a place is passed before it fails
		if name != "disk" {        // a schema for each costs more than a directory
			skips = []int{0, 2}
		}
		t.Run(name, func(t *testing.T) { testPowerLoss(t, engine, skips) })
	}
}

func testPowerLoss(t *testing.T, engine func(*testing.T) site, skips []int) {
	var places []string
	at := engine(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorldAt(t, at, nil)
		w.ran()
		places = w.fail.Seen()
	})
	if len(places) < 9+3 {
		t.Fatalf("only the places %v", places)
	}
	for _, name := range places {
		for _, skip := range skips {
			at := engine(t)
			synctest.Test(t, func(t *testing.T) {
				w, cuts := newWorldAt(t, at, nil), 0
				w.fail.Arm(name, skip, func() error {
					w.site.cut()
					w.record.Cut()
					w.die()
					return errPower
				})
				var c *round.Controller
				for {
					var err error
					if c, err = w.open(); err == nil {
						err = w.run(c)
					}
					if err == nil {
						break
					}
					if cuts++; cuts > 1 {
						t.Fatalf("%s, %d: after it was opened again: %v", name, skip, err)
					}
					w.fail.Disarm(name)
					w.site.crash()
					w.record = w.record.Crash()
				}
				s := w.check(c)
				if s.Stepped != rounds {
					t.Errorf("%s, %d: %+v", name, skip, s)
				}
				for r, n := range w.asked {
					if n > 2 {
						t.Errorf("%s, %d: round %d was asked for %d times", name, skip, r, n)
					}
				}
			})
		}
	}
}

// TestPutBack: a journal of before knows less than the record, or than what devices are
// shown, and announces nothing.
func TestPutBack(t *testing.T) {
	for _, where := range []string{"the record", "the relay"} {
		each(t, func(t *testing.T, at site) {
			w := newWorldAt(t, at, nil)
			if where == "the relay" {
				w.options = func(o *round.Options) {
					o.Record = disktest.NewMem(7) // lost each time
					o.Published = []round.Published{{Where: where, Ask: w.published}}
				}
			}
			c, err := w.open()
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
			defer cancel()
			var looking sync.WaitGroup
			looking.Go(func() {
				for ctx.Err() == nil {
					w.look(c)
					time.Sleep(time.Second)
				}
			})
			if err := c.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			looking.Wait()
			c.Close()
			back := w.site.save(t)
			c = w.ran()
			back()
			shown := maps.Clone(w.seen)
			var older *round.PutBackError
			if c, err = w.open(); err == nil {
				err = w.run(c)
			}
			if !errors.As(err, &older) || older.Where != where || older.Published.Hash() != w.last.Hash() {
				t.Errorf("%s: %v", where, err)
			}
			if !maps.Equal(shown, w.seen) {
				t.Errorf("%s: it announced", where)
			}
		})
	}
}
