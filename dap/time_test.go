package dap

import (
	"math"
	"testing"
	"time"
)

const last = math.MaxUint64

func TestTimePrecision(t *testing.T) {
	epoch := time.Unix(0, 0)
	// The draft's example (section 4.1.1.1): precision 10, unit 123456789.
	if got, err := TimePrecision(10).At(time.Unix(1234567899, 999999999)); err != nil || got != 123456789 {
		t.Errorf("At: %d, %v", got, err)
	}
	if got, err := TimePrecision(10).Begin(123456789); err != nil || got != time.Date(2009, 2, 13, 23, 31, 30, 0, time.UTC) {
		t.Errorf("Begin: %v, %v", got, err)
	}
	for _, c := range []struct {
		p    TimePrecision
		t    time.Time
		want Time
		ok   bool
	}{
		{1, epoch, 0, true}, {1, epoch.Add(-1), 0, false}, {0, epoch, 0, false}, {last, time.Unix(maxUnix, 0), 0, true},
		{1, time.Unix(maxUnix, 0), maxUnix, true}, {1, time.Unix(maxUnix+1, 0), 0, false}, {3600, time.Unix(3599, 0), 0, true},
		{3600, time.Unix(3600, 0), 1, true}, {1, time.Time{}, 0, false},
	} {
		if got, err := c.p.At(c.t); got != c.want || (err == nil) != c.ok {
			t.Errorf("%d.At(%v) = %d, %v; want %d, %v", c.p, c.t, got, err, c.want, c.ok)
		}
	}
	for _, c := range []struct {
		p  TimePrecision
		t  Time
		ok bool
	}{
		{1, 0, true}, {1, maxUnix, true}, {1, maxUnix + 1, false}, {2, maxUnix / 2, true}, {2, maxUnix/2 + 1, false},
		{0, 1, false}, {last, last, false}, {1 << 32, 1 << 32, false}, {last, 0, true}, {last, 1, false}, {1, 1 << 63, false},
	} {
		got, err := c.p.Begin(c.t)
		if (err == nil) != c.ok {
			t.Errorf("%d.Begin(%d) = %v, %v; want %v", c.p, c.t, got, err, c.ok)
		}
		if err == nil {
			if back, err := c.p.At(got); err != nil || back != c.t {
				t.Errorf("%d.Begin(%d) is in unit %d, %v", c.p, c.t, back, err)
			}
		}
	}
	for _, c := range []struct {
		p    TimePrecision
		d    time.Duration
		want Duration
		ok   bool
	}{
		{10, 0, 0, true}, {10, 1, 1, true}, {10, 10 * time.Second, 1, true}, {10, 10*time.Second + 1, 2, true},
		{0, 1, 0, false}, {10, -1, 0, false}, {1, math.MaxInt64, 9223372037, true}, {last, time.Second, 1, true},
	} {
		if got, err := c.p.Units(c.d); got != c.want || (err == nil) != c.ok {
			t.Errorf("%d.Units(%v) = %d, %v; want %d, %v", c.p, c.d, got, err, c.want, c.ok)
		}
	}
}

func TestTimeArithmetic(t *testing.T) {
	for _, c := range []struct {
		t    Time
		d    Duration
		want Time
		ok   bool
	}{{0, 0, 0, true}, {1, 2, 3, true}, {last, 0, last, true}, {last - 1, 1, last, true}, {last, 1, 0, false}, {last, last, last - 1, false}} {
		if got, ok := c.t.Add(c.d); got != c.want || ok != c.ok {
			t.Errorf("%d.Add(%d) = %d, %v", c.t, c.d, got, ok)
		}
	}
	for _, c := range []struct {
		t, u Time
		want Duration
		ok   bool
	}{{3, 1, 2, true}, {3, 3, 0, true}, {last, 0, last, true}, {0, 1, last, false}} {
		if got, ok := c.t.Sub(c.u); got != c.want || ok != c.ok {
			t.Errorf("%d.Sub(%d) = %d, %v", c.t, c.u, got, ok)
		}
	}
	for _, c := range []struct {
		first, last Time
		want        Interval
		ok          bool
	}{
		{5, 5, Interval{5, 1}, true}, {5, 7, Interval{5, 3}, true}, {7, 5, Interval{}, false}, {last, last, Interval{}, false},
		{0, last - 1, Interval{0, last}, true}, {0, last, Interval{}, false},
	} {
		if got, ok := Span(c.first, c.last); got != c.want || ok != c.ok {
			t.Errorf("Span(%d, %d) = %v, %v", c.first, c.last, got, ok)
		}
	}
}

// All relations between intervals at both ends of the number line against their
// definition on wide integers.
func TestIntervalRelations(t *testing.T) {
	var edges []uint64
	for i := range uint64(4) {
		edges = append(edges, i, last-i)
	}
	end := func(iv Interval) (hi, lo uint64) { // 65 bits
		lo = uint64(iv.Start) + uint64(iv.Duration)
		if lo < uint64(iv.Start) {
			hi = 1
		}
		return hi, lo
	}
	has := func(iv Interval, x uint64) bool {
		hi, lo := end(iv)
		return uint64(iv.Start) <= x && (hi == 1 || x < lo)
	}
	var all []Interval
	for _, s := range edges {
		for _, d := range edges {
			iv := Interval{Time(s), Duration(d)}
			all = append(all, iv)
			hi, lo := end(iv)
			if got, ok := iv.End(); ok != (hi == 0) || uint64(got) != lo {
				t.Errorf("%v.End() = %d, %v", iv, got, ok)
			}
			if iv.Valid() != (hi == 0 && d > 0) {
				t.Errorf("%v.Valid() = %v", iv, iv.Valid())
			}
			for _, x := range edges {
				before, in := x < s, has(iv, x)
				gotB, gotIn, gotA := iv.Before(Time(x)), iv.Contains(Time(x)), iv.After(Time(x))
				if gotB != before || gotIn != in || gotA != (!before && !in) {
					t.Errorf("%v and %d: before %v, in %v, after %v", iv, x, gotB, gotIn, gotA)
				}
			}
		}
	}
	for _, a := range all {
		for _, b := range all {
			ahi, aend := end(a)
			bhi, bend := end(b)
			covers := a.Valid() && b.Valid() && a.Start <= b.Start && bend <= aend
			if a.Covers(b) != covers {
				t.Errorf("%v.Covers(%v) = %v", a, b, a.Covers(b))
			}
			overlaps := a.Duration > 0 && b.Duration > 0 &&
				(ahi == 1 || uint64(b.Start) < aend) && (bhi == 1 || uint64(a.Start) < bend)
			if a.Overlaps(b) != overlaps {
				t.Errorf("%v.Overlaps(%v) = %v", a, b, a.Overlaps(b))
			}
		}
	}
}
