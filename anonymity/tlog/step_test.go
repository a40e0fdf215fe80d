package tlog_test

import (
	"bytes"
	"errors"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	merkle "golang.org/x/mod/sumdb/tlog"
)

// TestThin: of one size an hour for five years the last are all kept, and of each age one that
// is older by little, at any time on the way.
func TestThin(t *testing.T) {
	begin := time.Unix(0, 0)
	var kept []time.Time
	const hours = 43_800
	for n := range hours {
		now := begin.Add(time.Duration(n) * time.Hour)
		kept = tlog.Thin(append(kept, now), func(at time.Time) time.Time { return at })
		if len(kept) > tlog.MaxSteps || !kept[0].Equal(begin) || !kept[len(kept)-1].Equal(now) || n < tlog.MaxSteps && len(kept) != n+1 {
			t.Fatalf("after %d hours %d are kept, from %v to %v", n, len(kept), kept[0], kept[len(kept)-1])
		}
		if n%997 != 0 && n != hours-1 {
			continue
		}
		for age := range n {
			at := now.Add(-time.Duration(age) * time.Hour)
			i := sort.Search(len(kept), func(i int) bool { return kept[i].After(at) }) - 1
			gap := at.Sub(kept[i])
			if age < tlog.Recent && gap > 0 || gap > time.Duration(age)*time.Hour/8 {
				t.Fatalf("after %d hours: of an age of %d hours one is kept %v before", n, age, gap)
			}
			age += age / 50
		}
	}
}

// A traveller follows a log, one bundle every six hours.
type traveller struct {
	t     *testing.T
	w     *world
	hour  int
	steps []hourly // that the log keeps
	m     tlog.Memory
}

type hourly struct {
	size int64
	at   time.Time
}

// pass lets hours pass in which the log goes on.
func (x *traveller) pass(hours int) {
	for range hours {
		x.hour++
		x.w.period(x.t, x.hour, 0)
		x.steps = tlog.Thin(append(x.steps, hourly{x.w.Size(), at(x.hour)}), func(h hourly) time.Time { return h.at })
	}
}

func (x *traveller) sizes() (all []int64) {
	for _, s := range x.steps[:len(x.steps)-1] {
		all = append(all, s.size)
	}
	return all
}

// look opens the bundle of now.
func (x *traveller) look(sizes []int64) (*tlog.Opened, error) {
	x.t.Helper()
	o, next, err := x.w.open(x.t, x.w.bundle(x.t, at(x.hour), sizes...), x.m, at(x.hour))
	if err == nil {
		if read, err := tlog.ReadMemory(next.Append(nil)); err != nil || !slices.Equal(read.Rungs, next.Rungs) {
			x.t.Fatalf("the memory cannot be read: %v", err)
		}
		x.m = next
	}
	return o, err
}

// remembers demands that all trees that are remembered are those of the log.
func (x *traveller) remembers() {
	x.t.Helper()
	for _, r := range x.m.Rungs {
		if root, err := merkle.TreeHash(r.Size, x.w); err != nil || root != r.Root {
			x.t.Fatalf("hour %d: it remembers another tree of %d entries", x.hour, r.Size)
		}
	}
}

func (x *traveller) follow(days int) {
	x.t.Helper()
	for range 4 * days {
		x.pass(6)
		if o, err := x.look(x.sizes()); err != nil || o.Left != nil {
			x.t.Fatalf("hour %d: %v, %v", x.hour, err, o)
		}
	}
}

func (x *traveller) fork() *traveller {
	c := *x
	c.w, c.steps = x.w.fork(), slices.Clone(x.steps)
	return &c
}

// TestLongAbsence: a device goes on by the bundle alone after days and after a year, from
// a size that the log has kept; and a log that wants it to forget a fork has to leave it
// alone for four times as long as it was shown that.
func TestLongAbsence(t *testing.T) {
	x := &traveller{t: t, w: newWorld(t)}
	x.pass(300)
	x.follow(8)
	left := x.m
	for _, days := range []int{1, 3, 5, 10, 30, 365} {
		away := x.fork()
		away.pass(24 * days)
		o, err := away.look(away.sizes())
		if err != nil {
			t.Errorf("away for %d days: %v", days, err)
			continue
		}
		if exact := !slices.Contains(away.sizes(), left.Checkpoint.Size); exact != (o.Left != nil) || exact && !bytes.Equal(o.Left, left.Note) || days <= 3 && exact {
			t.Errorf("away for %d days: what it leaves is %q", days, o.Left)
		}
		away.remembers()
		away.follow(1)
		away.pass(24 * 20)
		if _, err := away.look(away.sizes()); err != nil {
			t.Errorf("away for %d days, and again for 20: %v", days, err)
		}
	}

	// The log and all witnesses show the device another tree for five days.
	honest := x.fork()
	x.w.Add(t, release(t, 1))
	x.follow(5)
	shown := x.m
	for days, want := range map[int]error{1: tlog.ErrGap, 5: tlog.ErrGap, 19: tlog.ErrGap, 22: nil} {
		back := honest.fork()
		back.m = shown
		back.pass(24 * (5 + days))
		if o, err := back.look(back.sizes()); !errors.Is(err, want) || err == nil && !bytes.Equal(o.Left, shown.Note) {
			t.Errorf("five days of another tree, and %d of none: %v, want %v", days, err, want)
		}
		// What it offers to go on from inside of those days it has not shown.
		if want == nil {
			back.remembers() // nothing of the other tree
			continue
		}
		inside := back.w.Checkpoint(t).Size - 1
		for _, r := range shown.Rungs {
			if r.Since.After(shown.Time.Add(-time.Duration(days) * 6 * time.Hour)) {
				inside = min(inside, r.Size)
			}
		}
		if _, err := back.look([]int64{inside}); !errors.Is(err, tlog.ErrFork) && !errors.Is(err, tlog.ErrGap) {
			t.Errorf("five days of another tree, and %d of none, by a step inside of them: %v", days, err)
		}
	}

	// A device that has seen one bundle goes on from what that continued, and not before a day
	// has passed; from nothing else.
	fresh := honest.fork()
	fresh.m = tlog.Memory{}
	if _, err := fresh.look(fresh.sizes()); err != nil || len(fresh.m.Rungs) < 200 {
		t.Fatalf("%d rungs, %v", len(fresh.m.Rungs), err)
	}
	known, unknown := fresh.m.Rungs[7].Size, fresh.m.Rungs[7].Size+1
	for hours, want := range map[int]error{6: tlog.ErrGap, 23: tlog.ErrGap, 24: nil, 365 * 24: nil} {
		later := fresh.fork()
		later.pass(hours)
		if _, err := later.look([]int64{unknown}); !errors.Is(err, tlog.ErrGap) {
			t.Errorf("after %d hours, by a step that it never knew: %v", hours, err)
		}
		if _, err := later.look([]int64{known}); !errors.Is(err, want) {
			t.Errorf("after %d hours, by one that it knew: %v, want %v", hours, err, want)
		}
	}
}
