package dap

import (
	"fmt"
	"math"
	"math/bits"
	"time"
)

// TimePrecision is the number of seconds in one unit of a task's times and durations, at
// least 1 (section 4.1.1).
type TimePrecision uint64

// Time counts units of the task's [TimePrecision], not seconds, since 1970. Only times of
// one task compare.
type Time uint64

// Duration counts units of the task's [TimePrecision], not seconds.
type Duration uint64

// Interval is half-open: Start is in it, Start+Duration is not.
type Interval struct {
	Start    Time
	Duration Duration
}

// maxUnix is the last second of the year 9999, the last that package time writes as RFC
// 3339.
const maxUnix = 253402300799

// At is the unit that t falls in. It fails before 1970, after the year 9999 and for a
// precision of zero.
func (p TimePrecision) At(t time.Time) (Time, error) {
	s := t.Unix()
	if p == 0 || s < 0 || s > maxUnix {
		return 0, fmt.Errorf("dap: no unit of %d seconds for that time", p)
	}
	return Time(uint64(s) / uint64(p)), nil
}

// Begin is the instant at which unit t begins, in UTC. It fails after the year 9999 and
// for a precision of zero.
func (p TimePrecision) Begin(t Time) (time.Time, error) {
	hi, s := bits.Mul64(uint64(p), uint64(t))
	if p == 0 || hi != 0 || s > maxUnix {
		return time.Time{}, fmt.Errorf("dap: no instant for unit %d of %d seconds", t, p)
	}
	return time.Unix(int64(s), 0).UTC(), nil
}

// Units is d in whole units, rounded up; it is what a tolerance in seconds means in a
// task. It fails on negative d.
func (p TimePrecision) Units(d time.Duration) (Duration, error) {
	if p == 0 || d < 0 {
		return 0, fmt.Errorf("dap: no units of %d seconds in that duration", p)
	}
	s := uint64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	n := s / uint64(p)
	if s%uint64(p) > 0 {
		n++
	}
	return Duration(n), nil
}

// Add is t+d, and false if that overflows.
func (t Time) Add(d Duration) (Time, bool) {
	sum, carry := bits.Add64(uint64(t), uint64(d), 0)
	return Time(sum), carry == 0
}

// Sub is t-u, and false if u is after t.
func (t Time) Sub(u Time) (Duration, bool) { return Duration(t - u), u <= t }

// Span is the smallest interval that holds both times; false if last is before first or
// is the last of all times, after which a half-open interval cannot end.
func Span(first, last Time) (Interval, bool) {
	if last < first || last == math.MaxUint64 {
		return Interval{}, false
	}
	return Interval{first, Duration(last-first) + 1}, true
}

// End is the first time after the interval, and false if that overflows.
func (iv Interval) End() (Time, bool) { return iv.Start.Add(iv.Duration) }

// Valid says whether the interval holds at least one unit and its end does not overflow:
// what a query must be, else batchInvalid (section 5.1.1). Decoding checks neither,
// because the two faults have different answers.
func (iv Interval) Valid() bool {
	_, ok := iv.End()
	return ok && iv.Duration > 0
}

// Before says whether t is before the interval (at a task's interval: task_not_started).
func (iv Interval) Before(t Time) bool { return t < iv.Start }

// After says whether t is after the interval (at a task's interval: task_expired). An end
// that overflows is never reached.
func (iv Interval) After(t Time) bool { return t >= iv.Start && Duration(t-iv.Start) >= iv.Duration }

// Contains says whether t is in the interval.
func (iv Interval) Contains(t Time) bool { return !iv.Before(t) && !iv.After(t) }

// Covers says whether all of o is in the interval, which a batch selector must be in its
// query (section 5.1.2). An invalid interval covers nothing and is covered by nothing.
func (iv Interval) Covers(o Interval) bool {
	end, ok := iv.End()
	oend, ook := o.End()
	return ok && ook && iv.Duration > 0 && o.Duration > 0 && iv.Start <= o.Start && oend <= end
}

// Overlaps says whether the two have a time in common.
func (iv Interval) Overlaps(o Interval) bool {
	return iv.Duration > 0 && o.Duration > 0 && !iv.After(o.Start) && !o.After(iv.Start)
}

// Split says into how many runs of n units the interval falls that begin at multiples of
// n, and false if it is no whole number of them, 1 or more.
func (iv Interval) Split(n uint64) (runs uint64, whole bool) {
	if n == 0 || iv.Duration == 0 || uint64(iv.Start)%n != 0 || uint64(iv.Duration)%n != 0 {
		return 0, false
	}
	return uint64(iv.Duration) / n, true
}

func (iv Interval) String() string { return fmt.Sprintf("[%d, +%d)", iv.Start, iv.Duration) }

// Append appends the 16-byte encoding.
func (iv Interval) Append(dst []byte) ([]byte, error) { return encode(dst, &iv) }

// ReadInterval reads exactly one interval; see [Interval.Valid] for what it does not check.
func ReadInterval(b []byte) (Interval, error) { return decode[Interval](b) }

func (iv *Interval) code(c *coder) {
	c.Uint64((*uint64)(&iv.Start), "interval start")
	c.Uint64((*uint64)(&iv.Duration), "interval duration")
}
