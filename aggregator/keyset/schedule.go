package keyset

import (
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/sealed"
)

// A Schedule says when keys are made and when they end. The zero value is good.
type Schedule struct {
	// Suites are the suites of which there is always a current key, best first; default
	// X25519 alone. Recipes choose the KEM.
	Suites []sealed.Suite
	// Period is how long a key is the current one; default 24 h.
	Period time.Duration
	// MaxAge is how long a client may use a list of keys that it was given, whole
	// seconds: the max-age of Cache-Control, and the longest life of a manifest that pins
	// the list. Default 24 h.
	MaxAge time.Duration
	// Overlap is how much longer than MaxAge a key takes uploads after it was followed by
	// another: for reports under way, retries and clocks that differ. Default 1 h.
	Overlap time.Duration
	// Promise is how far ahead the lists that the aggregator signs may reach, with all
	// the time that uploads under them may take; the keys in them take uploads for as
	// long (Set.promise). Default 0: no list is signed.
	Promise time.Duration
	// Delay is how long after the last upload a job may come from the leader; at a leader
	// zero, the default.
	Delay time.Duration
}

// Defaults of [Schedule].
const (
	DefaultPeriod  = 24 * time.Hour
	DefaultMaxAge  = 24 * time.Hour
	DefaultOverlap = time.Hour
	// DefaultDelay is what helpers are advised to take as Delay: it outlasts a long
	// weekend.
	DefaultDelay = 72 * time.Hour
)

// ids is how many config ids there are.
const ids = 256

// Validate fills in defaults and reports what makes no sense.
func (s *Schedule) Validate() error {
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{{&s.Period, DefaultPeriod}, {&s.MaxAge, DefaultMaxAge}, {&s.Overlap, DefaultOverlap}} {
		if *d.v == 0 {
			*d.v = d.d
		}
	}
	if len(s.Suites) == 0 {
		s.Suites = []sealed.Suite{sealed.SuiteX25519}
	}
	switch {
	case s.Period < time.Second || s.Overlap < 0 || s.Delay < 0 || s.Promise < 0:
		return errors.New("keyset: Period is below a second, or Overlap, Delay or Promise is negative")
	case s.MaxAge < time.Second || s.MaxAge%time.Second != 0:
		return fmt.Errorf("keyset: MaxAge %v is not whole seconds, one or more", s.MaxAge)
	}
	seen := make(map[sealed.Suite]bool)
	for _, suite := range s.Suites {
		if !suite.Supported() || seen[suite] {
			return fmt.Errorf("keyset: suite %v is not supported or there twice", suite)
		}
		seen[suite] = true
	}
	// Ids taken at one time: the current key, those that wait for their end, and those
	// that were destroyed of late.
	if n := 2 + 2*s.quarantine()/s.Period; int64(n)*int64(len(s.Suites)) > ids/2 {
		return fmt.Errorf("keyset: a new key every %v, and %v until its id is free again: more than half of the %d ids would be taken",
			s.Period, s.Period+2*s.quarantine(), ids)
	}
	return nil
}

// accepts is until when a key that was followed by another takes uploads.
func (s *Schedule) accepts(r *record) time.Time {
	end := r.superseded.Add(s.MaxAge + s.Overlap)
	if r.promised.After(end) {
		end = r.promised
	}
	return end
}

// life is until when it is kept at least.
func (s *Schedule) life(r *record) time.Time { return s.accepts(r).Add(s.Delay) }

// quarantine is how long the id of a destroyed key is not used again: whoever still sends
// something to it learns that the key is unknown, and not that the report cannot be
// opened. No key that was followed by another is kept for longer, unless it is needed.
func (s *Schedule) quarantine() time.Duration { return max(s.MaxAge+s.Overlap, s.Promise) + s.Delay }
