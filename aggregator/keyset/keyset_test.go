package keyset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
)

// testClock is set by hand; nothing in the package waits.
type testClock struct{ nanos atomic.Int64 }

func newClock() *testClock {
	c := new(testClock)
	c.nanos.Store(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *testClock) Now() time.Time                      { return time.Unix(0, c.nanos.Load()).UTC() }
func (c *testClock) NewTimer(d time.Duration) disk.Timer { return disk.SystemClock.NewTimer(d) }
func (c *testClock) advance(d time.Duration)             { c.nanos.Add(int64(d)) }

// short is a schedule of minutes: a key is current for 10, taken for 5 more, and opens
// for another 3 at a helper.
func short(delay time.Duration) Schedule {
	return Schedule{Period: 10 * time.Minute, MaxAge: 4 * time.Minute, Overlap: time.Minute, Delay: delay}
}

func open(t testing.TB, o Options) *Set {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func offered(t testing.TB, s *Set) dap.HpkeConfigList {
	t.Helper()
	body, _ := s.List()
	list, err := dap.ReadHpkeConfigList(body)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func unneeded(context.Context, uint8, time.Time) (string, error) { return "", nil }

func step(t testing.TB, s *Set, needs Needs) bool {
	t.Helper()
	worked, err := s.Step(t.Context(), needs)
	if err != nil {
		t.Fatal(err)
	}
	return worked
}

// state is how the set calls the key of that id.
func state(s *Set, id uint8) string {
	for _, k := range s.Status() {
		if k.ID == id {
			return k.State
		}
	}
	return ""
}

// files lists what lies in the directory, but for the state.
func files(t testing.TB, fsys disk.FS) (names []string) {
	t.Helper()
	entries, err := fsys.ReadDir("keys")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name != "state" {
			names = append(names, e.Name)
		}
	}
	return names
}

// A letter is sealed to a key.
type letter struct {
	dap.HpkeCiphertext
	text []byte
}

func seal(t testing.TB, cfg dap.HpkeConfig) letter {
	t.Helper()
	text := []byte(fmt.Sprintf("to %d", cfg.ID))
	ct, err := dap.Seal(cfg, []byte("info"), []byte("aad"), text)
	if err != nil {
		t.Fatal(err)
	}
	return letter{ct, text}
}

func (l *letter) opens(ring *sealed.Keyring) bool {
	got, err := ring.Open(l.ConfigID, l.Enc, []byte("info"), []byte("aad"), l.Payload)
	return err == nil && bytes.Equal(got, l.text)
}

// TestLife: a key is offered, taken, kept while it is needed, and destroyed; in both
// suites at once.
func TestLife(t *testing.T) {
	for _, suites := range [][]sealed.Suite{{sealed.SuiteX25519}, {sealed.SuiteXWing}, {sealed.SuiteXWing, sealed.SuiteX25519}} {
		clock, mem := newClock(), disktest.NewMem(1)
		schedule := short(3 * time.Minute)
		schedule.Suites = suites
		s := open(t, Options{Schedule: schedule, FS: mem, Clock: clock})
		first := offered(t, s)
		if len(first) != len(suites) {
			t.Fatalf("%d keys are offered", len(first))
		}
		var letters []letter
		for i, cfg := range first {
			if cfg.KEM != suites[i].KEM {
				t.Errorf("key %d is of KEM %#x", i, cfg.KEM)
			}
			letters = append(letters, seal(t, cfg))
		}
		at := func(when time.Duration, what string, takes, opens bool) {
			t.Helper()
			clock.nanos.Store(newClock().nanos.Load() + int64(when))
			accepting, opening := s.Accepting(), s.Opening(clock.Now())
			defer accepting.Release()
			defer opening.Release()
			for i, cfg := range first {
				if got := state(s, cfg.ID); got != what {
					t.Errorf("after %v: %s, want %s", when, got, what)
				}
				if accepting.Has(cfg.ID) != takes {
					t.Errorf("after %v: taken: %v", when, !takes)
				}
				if letters[i].opens(opening.Keyring()) != opens {
					t.Errorf("after %v: opened: %v", when, !opens)
				}
			}
		}
		needed := func(_ context.Context, id uint8, ended time.Time) (string, error) {
			if want := newClock().Now().Add(18 * time.Minute); !ended.Equal(want) {
				t.Errorf("ended %v, want %v", ended, want)
			}
			return "something needs it", nil
		}
		at(0, status.KeyCurrent, true, true)
		at(10*time.Minute-1, status.KeyCurrent, true, true)
		if step(t, s, needed) {
			t.Error("there was something to do")
		}
		at(10*time.Minute, status.KeyCurrent, true, true)
		if !step(t, s, needed) {
			t.Error("no new key")
		}
		second := offered(t, s)
		if len(second) != len(first) || second[0].ID == first[0].ID || bytes.Equal(second[0].Key, first[0].Key) {
			t.Errorf("the same key is offered")
		}
		at(10*time.Minute, status.KeyAccepted, true, true)
		at(15*time.Minute-1, status.KeyAccepted, true, true)
		at(15*time.Minute, status.KeyRetiring, false, true)
		at(18*time.Minute-1, status.KeyRetiring, false, true)
		step(t, s, unneeded)
		at(18*time.Minute, status.KeyRetiring, false, false) // for a job that comes now
		step(t, s, needed)
		at(18*time.Minute, status.KeyRetiring, false, false)
		if l := letters[0]; !l.opens(s.Keyring()) {
			t.Error("a key that is needed opens nothing")
		}
		if earlier := s.Opening(clock.Now().Add(-1)); !letters[0].opens(earlier.Keyring()) {
			t.Error("a job that came before the end cannot be opened")
		} else {
			earlier.Release()
		}
		for _, k := range s.Status() {
			if k.ID == first[0].ID && k.Why != "something needs it" {
				t.Errorf("why: %q", k.Why)
			}
		}
		if !step(t, s, unneeded) {
			t.Error("nothing was destroyed")
		}
		at(18*time.Minute, status.KeyDestroyed, false, false)
		if l := letters[0]; l.opens(s.Keyring()) {
			t.Error("a destroyed key opens")
		}
		if n := len(files(t, mem)); n != len(suites) {
			t.Errorf("%d key files", n)
		}
		// It stays so in the next life.
		s = open(t, Options{Schedule: schedule, FS: mem.Crash(), Clock: clock})
		at(18*time.Minute, status.KeyDestroyed, false, false)
	}
}

// TestHoldsKeep: work under way keeps its keys; a key that is closed takes no more,
// whatever the clock says.
func TestHoldsKeep(t *testing.T) {
	clock, mem := newClock(), disktest.NewMem(1)
	s := open(t, Options{Schedule: short(0), FS: mem, Clock: clock})
	id := offered(t, s)[0].ID
	asked := 0
	needs := func(context.Context, uint8, time.Time) (string, error) { asked++; return "", nil }
	clock.advance(10 * time.Minute)
	step(t, s, needs)
	upload := s.Accepting()
	clock.advance(5 * time.Minute)
	step(t, s, needs)
	if asked > 0 || state(s, id) != status.KeyRetiring || len(files(t, mem)) != 2 {
		t.Errorf("asked %d times, state %s, files %v", asked, state(s, id), files(t, mem))
	}
	clock.advance(-5 * time.Minute)
	if late := s.Accepting(); late.Has(id) {
		t.Error("a closed key is taken again when the clock goes back")
	} else {
		late.Release()
	}
	clock.advance(5 * time.Minute)
	upload.Release()
	upload.Release()
	var job *Hold // one that came before the end, and whose need shows only when the others are counted
	step(t, s, func(_ context.Context, _ uint8, ended time.Time) (string, error) {
		job = s.Opening(ended.Add(-1))
		return "", nil
	})
	if !job.Has(id) || state(s, id) != status.KeyRetiring || len(files(t, mem)) != 2 {
		t.Errorf("has %v, state %s, files %v", job.Has(id), state(s, id), files(t, mem))
	}
	job.Release()
	step(t, s, needs)
	if asked != 1 || state(s, id) != status.KeyDestroyed || len(files(t, mem)) != 1 {
		t.Errorf("asked %d times, state %s, files %v", asked, state(s, id), files(t, mem))
	}
	if _, err := s.Step(t.Context(), func(context.Context, uint8, time.Time) (string, error) { return "", errors.New("no") }); err != nil {
		t.Errorf("asked for a key that is gone: %v", err)
	}
}

// TestNeedsFails: who cannot say whether a key is needed keeps it.
func TestNeedsFails(t *testing.T) {
	clock, mem := newClock(), disktest.NewMem(1)
	s := open(t, Options{Schedule: short(0), FS: mem, Clock: clock})
	id := offered(t, s)[0].ID
	clock.advance(10 * time.Minute)
	step(t, s, unneeded)
	clock.advance(time.Hour)
	boom := errors.New("boom")
	if _, err := s.Step(t.Context(), func(context.Context, uint8, time.Time) (string, error) { return "", boom }); !errors.Is(err, boom) {
		t.Error(err)
	}
	if state(s, id) != status.KeyRetiring || len(files(t, mem)) != 3 {
		t.Errorf("state %s, files %v", state(s, id), files(t, mem))
	}
}

// TestIDs: an id is not given out again while its key lives or is remembered, and comes
// back as late as it can.
func TestIDs(t *testing.T) {
	clock, mem := newClock(), disktest.NewMem(1)
	mine, err := sealed.Generate(77, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	ring, err := sealed.NewKeyring(mine)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Schedule: short(0), FS: mem, Clock: clock, Configured: ring}
	s := open(t, o)
	last := make(map[uint8]int)
	for n := range ids + 40 {
		id := offered(t, s)[0].ID
		if before, ok := last[id]; ok && n-before != ids-1 {
			t.Fatalf("id %d after %d keys", id, n-before)
		}
		if last[id] = n; id == 77 {
			t.Fatal("the operator's id is given out")
		}
		clock.advance(10 * time.Minute)
		step(t, s, unneeded)
		if n%100 == 0 {
			s = open(t, o)
		}
	}
	// Keys that are needed for ever use up the ids; the current one stays then.
	needed := func(context.Context, uint8, time.Time) (string, error) { return "needed", nil }
	for range ids + 10 {
		clock.advance(10 * time.Minute)
		s.Step(t.Context(), needed)
	}
	if _, err := s.Step(t.Context(), needed); !errors.Is(err, errNoID) {
		t.Errorf("no id is free: %v", err)
	}
	hold := s.Accepting()
	if cfg := offered(t, s); len(cfg) != 1 || !hold.Has(cfg[0].ID) || !hold.Has(77) {
		t.Error("no key is taken")
	}
	hold.Release()
	if s = open(t, o); state(s, 77) != status.KeyConfigured {
		t.Errorf("the operator's key is %q", state(s, 77))
	}
	s.Step(t.Context(), unneeded) // destroys them; their ids are free a while later
	if n := len(files(t, mem)); n != 1 {
		t.Errorf("%d files, though only the current key is needed", n)
	}
	clock.advance(5 * time.Minute)
	s.Step(t.Context(), unneeded)
	if !step(t, s, unneeded) || len(files(t, mem)) != 2 {
		t.Errorf("no new key: files %v", files(t, mem))
	}
}

// TestClock: a clock that was years ahead, or goes back, keeps no key longer than one
// period and the time after it.
func TestClock(t *testing.T) {
	clock, mem := newClock(), disktest.NewMem(1)
	s := open(t, Options{Schedule: short(0), FS: mem, Clock: clock})
	clock.advance(10 * 365 * 24 * time.Hour)
	step(t, s, unneeded)
	ahead := offered(t, s)[0].ID
	clock.advance(-10 * 365 * 24 * time.Hour)
	step(t, s, unneeded)
	if id := offered(t, s)[0].ID; id == ahead {
		t.Error("a key of the far future is offered")
	}
	if state(s, ahead) != status.KeyAccepted {
		t.Errorf("it is %s", state(s, ahead))
	}
	clock.advance(5 * time.Minute)
	step(t, s, unneeded)
	if n := len(files(t, mem)); n != 1 || state(s, ahead) != status.KeyDestroyed {
		t.Errorf("%d keys, and that one is %s", n, state(s, ahead))
	}
	clock.advance(-30 * time.Second) // as network time does
	if step(t, s, unneeded) && state(s, offered(t, s)[0].ID) != status.KeyCurrent {
		t.Error("a small step back upsets the keys")
	}
}

// TestSuitesChange: a suite that is no longer wanted ends like any key, one that is new
// has a key at once.
func TestSuitesChange(t *testing.T) {
	clock, mem := newClock(), disktest.NewMem(1)
	o := Options{Schedule: short(0), FS: mem, Clock: clock}
	old := offered(t, open(t, o))[0].ID
	o.Suites = []sealed.Suite{sealed.SuiteXWing}
	s := open(t, o)
	if list := offered(t, s); len(list) != 1 || list[0].KEM != sealed.KEMXWing || state(s, old) != status.KeyAccepted {
		t.Errorf("%d are offered, the old one is %s", len(list), state(s, old))
	}
	clock.advance(5 * time.Minute)
	step(t, s, unneeded)
	if state(s, old) != status.KeyDestroyed {
		t.Errorf("it is %s", state(s, old))
	}
}

// TestDamage: what the state names has to be there, as it was.
func TestDamage(t *testing.T) {
	spoil := func(t *testing.T, mem *disktest.Mem, name string, f func([]byte) []byte) {
		t.Helper()
		b, err := disk.ReadFile(mem, name, 1<<16)
		if err == nil {
			err = disk.WriteFile(mem, name, f(b))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range map[string]func(t *testing.T, mem *disktest.Mem, file string){
		"key gone": func(t *testing.T, mem *disktest.Mem, file string) { mem.Remove(file) },
		"key overwritten": func(t *testing.T, mem *disktest.Mem, file string) {
			spoil(t, mem, file, func(b []byte) []byte { return make([]byte, len(b)) })
		},
		"another key": func(t *testing.T, mem *disktest.Mem, file string) {
			pair, err := sealed.Generate(0, sealed.SuiteXWing)
			if err != nil {
				t.Fatal(err)
			}
			b, err := pair.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			spoil(t, mem, file, func([]byte) []byte { return b })
		},
		"state changed": func(t *testing.T, mem *disktest.Mem, _ string) {
			spoil(t, mem, "keys/state", func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
		},
		"state cut": func(t *testing.T, mem *disktest.Mem, _ string) {
			spoil(t, mem, "keys/state", func(b []byte) []byte { return b[:20] })
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := disktest.NewMem(1)
			o := Options{FS: mem, Clock: newClock()}
			s := open(t, o)
			f(t, mem, "keys/"+files(t, mem)[0])
			if faults, err := s.Audit(t.Context()); err != nil || len(faults) != 1 {
				t.Errorf("audit: %v, %q", err, faults)
			}
			if _, err := Open(t.Context(), o); !errors.Is(err, ErrDamaged) {
				t.Errorf("opened: %v", err)
			}
		})
	}
}

// TestSweepIsCareful: files that are none of ours stay.
func TestSweepIsCareful(t *testing.T) {
	mem := disktest.NewMem(1)
	o := Options{FS: mem, Clock: newClock()}
	s := open(t, o)
	for _, name := range []string{"keys/README", "keys/00ff.hpke", "keys/00fe.hpke.tmp", "keys/state.tmp"} {
		f, err := mem.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte("x"))
		f.Close()
	}
	if faults, err := s.Audit(t.Context()); err != nil || len(faults) != 2 {
		t.Errorf("audit: %v, %q", err, faults)
	}
	open(t, o)
	if got := files(t, mem); len(got) != 3 || got[1] != "README" || got[2] != "state.tmp" {
		t.Errorf("%q", got)
	}
}

// TestAtOnce: uploads, jobs and readers beside a set that makes and destroys keys. While
// a hold lasts its keys open.
func TestAtOnce(t *testing.T) {
	clock, mem := newClock(), disktest.NewMem(1)
	s := open(t, Options{Schedule: short(time.Minute), FS: mem, Clock: clock})
	done := make(chan struct{})
	var wg sync.WaitGroup
	var taken atomic.Int64
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				cfg := offered(t, s)[0]
				l := seal(t, cfg)
				upload := s.Accepting()
				if !upload.Has(cfg.ID) {
					upload.Release()
					continue // two rotations in between
				}
				taken.Add(1)
				if !l.opens(s.Keyring()) {
					t.Error("a held key does not open")
				}
				job := s.Opening(clock.Now())
				upload.Release()
				if job.Has(cfg.ID) && !l.opens(job.Keyring()) {
					t.Error("a job's key does not open")
				}
				if len(s.Status()) == 0 {
					t.Error("no status")
				}
				job.Release()
			}
		})
	}
	for n := 0; n < 60 || taken.Load() < 100; n++ {
		clock.advance(3 * time.Minute)
		step(t, s, unneeded)
	}
	close(done)
	wg.Wait()
	for range 4 {
		clock.advance(6 * time.Minute)
		step(t, s, unneeded)
	}
	if n := len(files(t, mem)); n > 2 {
		t.Errorf("%d keys are left", n)
	}
}

func TestScheduleValidate(t *testing.T) {
	var s Schedule
	if err := s.Validate(); err != nil || s.Period != DefaultPeriod || s.MaxAge != DefaultMaxAge || s.Overlap != DefaultOverlap || s.Delay != 0 ||
		len(s.Suites) != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	for name, s := range map[string]Schedule{
		"negative period":  {Period: -1},
		"short period":     {Period: time.Millisecond},
		"negative overlap": {Overlap: -1},
		"negative delay":   {Delay: -1},
		"broken age":       {MaxAge: 1500 * time.Millisecond},
		"unknown suite":    {Suites: []sealed.Suite{{KEM: 1}}},
		"suite twice":      {Suites: []sealed.Suite{sealed.SuiteX25519, sealed.SuiteX25519}},
		"too many ids":     {Period: time.Minute},
	} {
		if err := s.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for name, o := range map[string]Options{"no files": {}, "bad name": {FS: disktest.NewMem(1), Dir: "../keys"}} {
		if _, err := Open(t.Context(), o); err == nil {
			t.Errorf("%s: opened", name)
		}
	}
}

// FuzzState: whatever is read is written again as the same bytes.
func FuzzState(f *testing.F) {
	now := newClock().Now()
	good, err := appendState([]record{
		{serial: 1, id: 255, suite: sealed.SuiteXWing, created: now, superseded: now, destroyed: now},
		{serial: 2, suite: sealed.SuiteX25519, created: now},
	})
	if err != nil {
		f.Fatal(err)
	}
	if records, err := parseState(good); err != nil || len(records) != 2 {
		f.Fatal(records, err)
	}
	f.Add(good)
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		records, err := parseState(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Error(err)
			}
			return
		}
		again, err := appendState(records)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%x became %x, %v", b, again, err)
		}
	})
}

// TestHoldOrEnd: work that begins at the very end of a key either holds it or is without
// it. A job that began with a key and lost it before its next round would come to another
// verdict.
func TestHoldOrEnd(t *testing.T) {
	clock, fail := newClock(), new(disk.Failpoints)
	s := open(t, Options{Schedule: short(3 * time.Minute), FS: disktest.NewMem(1), Clock: clock, Failpoints: fail})
	id := offered(t, s)[0].ID
	l := seal(t, offered(t, s)[0])
	came := clock.Now()
	for range 2 {
		clock.advance(10 * time.Minute)
		step(t, s, func(context.Context, uint8, time.Time) (string, error) { return "not yet", nil })
	}
	lost := errors.New("power lost")
	var h *Hold
	begin := func() error { h = s.Opening(came); return nil }
	fail.Arm(failBeforeDestroy, 0, func() error { begin(); return lost })
	if _, err := s.Step(t.Context(), unneeded); !errors.Is(err, lost) || h == nil {
		t.Fatal(err)
	}
	if h.Has(id) || l.opens(h.Keyring()) {
		t.Error("a job began with a key that is being destroyed")
	}
	h.Release()
	// It was not destroyed after all, and is as it was.
	if begin(); !h.Has(id) || !l.opens(h.Keyring()) {
		t.Error("the key is lost, and still there")
	}
	if fail.Disarm(failBeforeDestroy); step(t, s, unneeded) || state(s, id) != status.KeyRetiring {
		t.Error("a key is destroyed under a job")
	}
	h.Release()
	if step(t, s, unneeded); state(s, id) != status.KeyDestroyed {
		t.Errorf("the key is %s", state(s, id))
	}
}

// TestKeyOfAnother: ids are few, so another party's key may have the same; its file in the
// place of ours is damage, and nothing is sealed to it.
func TestKeyOfAnother(t *testing.T) {
	mem := disktest.NewMem(1)
	s := open(t, Options{Schedule: short(time.Minute), FS: mem, Clock: newClock()})
	ours := offered(t, s)[0]
	theirs, err := sealed.Generate(ours.ID, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	file, err := theirs.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	entries, err := mem.ReadDir("keys")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name, ".hpke") {
			if err := disk.WriteFile(mem, "keys/"+e.Name, file); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := Open(t.Context(), Options{Schedule: short(time.Minute), FS: mem, Clock: newClock()}); !errors.Is(err, ErrDamaged) {
		t.Errorf("another's key of the same id: %v", err)
	}
}
