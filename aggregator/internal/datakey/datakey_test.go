package datakey

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// testClock is set by hand; nothing in the package waits.
type testClock struct{ nanos atomic.Int64 }

func newClock() *testClock {
	c := new(testClock)
	c.set(time.Date(2026, 1, 5, 12, 0, 0, 0, time.UTC))
	return c
}

func (c *testClock) Now() time.Time                      { return time.Unix(0, c.nanos.Load()).UTC() }
func (c *testClock) NewTimer(d time.Duration) disk.Timer { return disk.SystemClock.NewTimer(d) }
func (c *testClock) set(t time.Time)                     { c.nanos.Store(t.UnixNano()) }
func (c *testClock) advance(d time.Duration)             { c.nanos.Add(int64(d)) }

// book is a store's memory, which no crash touches.
type book struct {
	set  SetID
	keys []Record
}

func (b *book) DataKeys(context.Context) (SetID, []Record, error) {
	return b.set, slices.Clone(b.keys), nil
}

func (b *book) NoteDataKey(_ context.Context, set SetID, r Record) error {
	if b.set != (SetID{}) && b.set != set {
		return errors.New("another set")
	}
	b.set = set
	for _, k := range b.keys {
		if k.Serial == r.Serial {
			if k != r {
				return fmt.Errorf("key %d is of another time", k.Serial)
			}
			return nil
		}
	}
	b.keys = append(b.keys, r)
	return nil
}

func (b *book) EndDataKey(_ context.Context, serial uint64) error {
	for i := range b.keys {
		if b.keys[i].Serial == serial {
			b.keys[i].Ended = true
			return nil
		}
	}
	return errors.New("no such key")
}

const day = 24 * time.Hour

func options(fsys disk.FS, b *book, c *testClock) Options {
	return Options{FS: fsys, Book: b, Clock: c, Period: day, Keep: 10 * day}
}

func open(t *testing.T, o Options) *Set {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func noneed(context.Context, Record) (string, error) { return "", nil }

// bytesAt is a value of the key of a time, which tells keys apart.
func bytesAt(t *testing.T, s *Set, at time.Time) string {
	t.Helper()
	k, err := s.At(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", *k.Noise())
}

// TestOneKeyForEachTime: every instant has one key, in this life and any other, whatever
// the clock does in between: days in which nobody runs, a clock that is years ahead and
// comes back.
func TestOneKeyForEachTime(t *testing.T) {
	mem, b, clock := disktest.NewMem(1), new(book), newClock()
	start := clock.Now()
	s := open(t, options(mem, b, clock))
	was := map[time.Time]string{}
	note := func() {
		t.Helper()
		for at := start.Add(-40 * day); at.Before(clock.Now()); at = at.Add(7 * time.Hour) {
			key := bytesAt(t, s, at)
			if before, known := was[at]; known && before != key {
				t.Fatalf("%v has another key at %v", at, clock.Now())
			}
			was[at] = key
		}
		for i := 1; i < len(b.keys); i++ {
			if b.keys[i].From != b.keys[i-1].Until {
				t.Fatalf("key %d begins at %v, the one before ends at %v", i+1, b.keys[i].From, b.keys[i-1].Until)
			}
		}
	}
	note()
	for _, jump := range []time.Duration{time.Hour, day, 5 * time.Minute, 3 * day, 20 * day, 4000 * day, -4019 * day, day} {
		clock.advance(jump)
		if jump == 3*day {
			s = open(t, options(mem, b, clock))
		}
		note()
		s = open(t, options(mem, b, clock))
		note()
	}
	distinct := map[string]bool{}
	for _, key := range was {
		distinct[key] = true
	}
	if len(distinct) < 4 {
		t.Errorf("%d keys in all that time", len(distinct))
	}
	// Made ahead: a copy of now has the key of the next day.
	_, known, _ := b.DataKeys(t.Context())
	if last := known[len(known)-1]; last.Until.Before(clock.Now().Add(day)) {
		t.Errorf("at %v there are keys up to %v", clock.Now(), last.Until)
	}
	var ahead *AheadError
	if _, err := s.At(t.Context(), known[len(known)-1].Until); !errors.As(err, &ahead) {
		t.Errorf("beyond the last key: %v", err)
	}
}

// TestKeysEnd: a key goes when its time has been over for long enough and nothing needs
// it; its secret is not on the disk any more, what it sealed does not open, and its time
// has no key for ever.
func TestKeysEnd(t *testing.T) {
	mem, b, clock := disktest.NewMem(1), new(book), newClock()
	s := open(t, options(mem, b, clock))
	at := clock.Now()
	key, err := s.At(t.Context(), at)
	if err != nil {
		t.Fatal(err)
	}
	box := key.Seal([]byte("of what"), []byte("a share"))
	if got, err := key.Open([]byte("of what"), box); err != nil || string(got) != "a share" {
		t.Fatal(got, err)
	}
	if _, err := key.Open([]byte("of another"), box); !errors.Is(err, ErrDamaged) {
		t.Errorf("opened as another's: %v", err)
	}
	step := func(needs Needs) {
		t.Helper()
		if _, err := s.Step(t.Context(), needs); err != nil {
			t.Fatal(err)
		}
	}
	needed := func(_ context.Context, r Record) (string, error) {
		if r.Serial == key.Serial {
			return "a share lies under it", nil
		}
		return "", nil
	}
	clock.advance(10 * day)
	step(noneed)
	if _, err := s.By(key.Serial); err != nil {
		t.Errorf("before its time: %v", err)
	}
	clock.advance(2 * day)
	step(needed)
	if _, err := s.By(key.Serial); err != nil {
		t.Errorf("while it is needed: %v", err)
	}
	step(noneed)
	var gone *GoneError
	if _, err := s.By(key.Serial); !errors.As(err, &gone) || gone.Lost {
		t.Errorf("once it has ended: %v", err)
	}
	s = open(t, options(mem, b, clock))
	if _, err := s.At(t.Context(), at); !errors.As(err, &gone) || gone.Lost {
		t.Errorf("in the next life: %v", err)
	}
	for _, e := range must(mem.ReadDir("data-keys")) {
		content := must(disk.ReadFile(mem, "data-keys/"+e.Name, 1<<10))
		if bytes.Contains(content, key.secret[:]) {
			t.Errorf("%s has the key", e.Name)
		}
	}
	if faults, err := s.Audit(t.Context()); err != nil || len(faults) > 0 {
		t.Error(faults, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// TestCrashes: the power goes at each point of a key's making and destroying, with a disk
// that loses what was not synced. Then no key that was used is another, and none that
// ended is back.
func TestCrashes(t *testing.T) {
	for _, point := range FailpointNames() {
		for skip := range 2 {
			mem, b, clock := disktest.NewMem(uint64(skip)), new(book), newClock()
			at := clock.Now()
			used := bytesAt(t, open(t, options(mem, b, clock)), at)
			clock.advance(12 * day)
			var fail disk.Failpoints
			fail.Arm(point, skip, func() error { return errors.New("power lost") })
			o := options(mem, b, clock)
			o.Failpoints = &fail
			if s, err := Open(t.Context(), o); err == nil {
				s.Step(t.Context(), noneed)
			}
			if fail.Hits()[point] == 0 {
				t.Fatalf("%s is not passed", point)
			}
			s := open(t, options(mem.Crash(), b, clock))
			k, err := s.At(t.Context(), at)
			var gone *GoneError
			switch {
			case err == nil && fmt.Sprintf("%x", *k.Noise()) == used:
			case errors.As(err, &gone) && !gone.Lost:
			default:
				t.Errorf("%s: %v, or another key", point, err)
			}
			if ended := b.keys[0].Ended; ended != (err != nil) {
				t.Errorf("%s: ended %v, and %v", point, ended, err)
			}
			if _, err := s.Step(t.Context(), noneed); err != nil {
				t.Error(err)
			}
			if faults, err := s.Audit(t.Context()); err != nil || len(faults) > 0 {
				t.Errorf("%s: %q %v", point, faults, err)
			}
		}
	}
}

// TestNewestKeyMissing: without the newest key that a store has used, new ones would be
// made for its time.
func TestNewestKeyMissing(t *testing.T) {
	mem, b, clock := disktest.NewMem(1), new(book), newClock()
	open(t, options(mem, b, clock))
	last := b.keys[len(b.keys)-1]
	for what, damage := range map[string]func(){
		"gone":    func() { must(0, disk.Remove(mem, "data-keys/"+last.name()+fileSuffix)) },
		"flipped": func() { must(0, disk.WriteFile(mem, "data-keys/"+last.name()+fileSuffix, make([]byte, fileSize))) },
	} {
		content := must(disk.ReadFile(mem, "data-keys/"+last.name()+fileSuffix, 1<<10))
		damage()
		if _, err := Open(t.Context(), options(mem, b, clock)); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "put") {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := Open(t.Context(), options(mem, new(book), clock)); what == "flipped" && !errors.Is(err, ErrDamaged) {
			t.Errorf("%s, with a new store: %v", what, err)
		}
		must(0, disk.WriteFile(mem, "data-keys/"+last.name()+fileSuffix, content))
		open(t, options(mem, b, clock))
	}
}

// FuzzParseFile: one encoding for each key's file.
func FuzzParseFile(f *testing.F) {
	good := newFile(SetID{1}, Record{Serial: 3, From: time.Unix(100, 0), Until: time.Unix(200, 0)})
	f.Add(good.append())
	f.Add(good.append()[1:])
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := parseFile(b)
		if err == nil && !bytes.Equal(k.append(), b) {
			t.Errorf("%x is read as %x", b, k.append())
		}
	})
}

// TestKeyDoesNotPrint: a key in a log line is no key.
func TestKeyDoesNotPrint(t *testing.T) {
	k := &Key{Serial: 7, secret: [keySize]byte{0xab, 0xcd}}
	for _, format := range []string{"%v", "%+v", "%#v", "%x", "%s"} {
		if got := fmt.Sprintf(format, k); got != "data key 7" {
			t.Errorf("%s prints %q", format, got)
		}
	}
}
