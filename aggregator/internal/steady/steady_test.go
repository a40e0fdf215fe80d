package steady_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/steady"
	"github.com/starling-agg/starling/internal/disk"
)

// keeper is a store of one time.
type keeper struct {
	t     time.Time
	saves int
}

func (k *keeper) SeenTime(context.Context) (time.Time, error) { return k.t, nil }
func (k *keeper) SaveTime(_ context.Context, t time.Time) error {
	k.t, k.saves = t, k.saves+1
	return nil
}

// machine is a clock that a test sets.
type machine struct{ now time.Time }

func (m *machine) Now() time.Time                      { return m.now }
func (m *machine) NewTimer(d time.Duration) disk.Timer { return disk.SystemClock.NewTimer(d) }

const day = 24 * time.Hour

func TestClock(t *testing.T) {
	ctx := context.Background()
	start := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	k, m, logged := new(keeper), &machine{start}, new(bytes.Buffer)
	open := func(absence time.Duration) *steady.Clock {
		t.Helper()
		c, err := steady.Open(ctx, steady.Options{Keeper: k, Clock: m, Absence: absence, Log: slog.New(slog.NewTextHandler(logged, nil))})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := open(0)
	// at moves the machine's clock, and wants a time of c, held or not.
	at := func(move time.Duration, want time.Time, held bool) {
		t.Helper()
		m.now = m.now.Add(move)
		if got := c.Now(); !got.Equal(want) {
			t.Errorf("at %v the time is %v, want %v", m.now, got, want)
		}
		if h := c.Held(); (h != nil) != held {
			t.Errorf("at %v: held %+v", m.now, h)
		}
		if l := c.Latest(); l.Before(m.now) || l.Before(want) {
			t.Errorf("latest is %v", l)
		}
		if err := c.Step(ctx); err != nil {
			t.Fatal(err)
		}
	}
	at(0, start, false)
	at(time.Second, start.Add(time.Second), false)
	at(6*day, m.now.Add(6*day), false)
	last := m.now
	at(steady.DefaultAbsence, last.Add(steady.DefaultAbsence), false) // to the limit
	last = m.now
	at(steady.DefaultAbsence+1, last, true) // and beyond
	at(3*365*day, last, true)
	c = open(0) // a restart changes nothing
	at(0, last, true)
	if !strings.Contains(logged.String(), "ahead of") {
		t.Error("no word in the log")
	}
	m.now = last
	at(time.Minute, last.Add(time.Minute), false) // set right
	last = m.now
	at(-time.Minute, last, false) // corrected: the time does not go back
	at(-2*time.Hour, last, true)
	at(-60*365*day, last, true) // a machine that begins in 1970
	c = open(0)
	at(0, k.t, true)
	if !strings.Contains(logged.String(), "behind") {
		t.Error("no word in the log")
	}

	// A person says that it is right.
	m.now = last.Add(400 * day)
	at(0, k.t, true)
	if _, err := c.Confirm(ctx); err != nil {
		t.Fatal(err)
	}
	at(0, m.now, false)
	c = open(0)
	at(day, m.now.Add(day), false)

	// Off for less than the absence allowed: nobody is asked. What was not written down
	// counts.
	saves := k.saves
	for range 20 {
		at(time.Minute, m.now.Add(time.Minute), false)
	}
	if k.saves-saves != 2 {
		t.Errorf("%d saves in 20 minutes", k.saves-saves)
	}
	c = open(0)
	at(steady.DefaultAbsence-10*time.Minute, m.now.Add(steady.DefaultAbsence-10*time.Minute), false)

	// Without a limit the clock is followed wherever it goes.
	c = open(-1)
	at(1000*day, m.now.Add(1000*day), false)
	at(-2000*day, m.now.Add(-2000*day), false)
}
