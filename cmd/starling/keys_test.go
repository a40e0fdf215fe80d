package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
)

// TestKeyLines: each state of a key in words; a key that outlives its end by a day is a fault, and one that nobody follows.
func TestKeyLines(t *testing.T) {
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	at := func(hours float64) time.Time { return now.Add(time.Duration(hours * float64(time.Hour))) }
	s := &status.Status{Role: "leader", Now: now, Keys: []status.Key{
		{ID: 7, KEM: "x25519", State: status.KeyCurrent, Created: at(-1), Until: at(23)},
		{ID: 6, KEM: "x25519", State: status.KeyAccepted, Created: at(-25.5), Until: at(24)},
		{ID: 5, KEM: "x25519", State: status.KeyRetiring, Created: at(-100), Until: at(1)},
		{ID: 4, KEM: "x-wing", State: status.KeyRetiring, Created: at(-100), Until: at(-25), Why: "3 acknowledged reports are not folded yet"},
		{ID: 3, KEM: "x25519", State: status.KeyDestroyed, Created: at(-200), Until: at(-1)},
		{ID: 77, KEM: "x25519", State: status.KeyConfigured},
	}}
	var b strings.Builder
	writeKeys(&b, s)
	const want = `leader, HPKE keys
  current      7 x25519, 1h00m old; the next one in 23h00m
  accepted     6 x25519, 25h30m old; takes uploads for 24h00m
  retiring     5 x25519, 4 days old; kept for 1h00m
  retiring     4 x-wing, 4 days old; kept: 3 acknowledged reports are not folded yet
  destroyed    3 x25519, 8 days old; destroyed 1h00m ago
  configured  77 x25519
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	if got := keysFound(s.Keys); got != "1 current, 1 accepted, 2 retiring, 1 destroyed, 1 configured" {
		t.Errorf("found %q", got)
	}
	if err := overdue(s); err == nil || err.Error() != "key 4 should have been destroyed 25h0m0s ago: 3 acknowledged reports are not folded yet" {
		t.Errorf("overdue: %v", err)
	}
	s.Keys = s.Keys[:3]
	if err := overdue(s); err != nil {
		t.Errorf("overdue: %v", err)
	}
	s.Now = at(25)
	if err := overdue(s); err == nil || !strings.Contains(err.Error(), "key 7 should have been followed") {
		t.Errorf("overdue: %v", err)
	}
}

func TestPromise(t *testing.T) {
	for control, want := range map[string]time.Duration{
		"max-age=86400": 24 * time.Hour, "public, Max-Age=60": time.Minute, "": 0, "no-store": 0, "max-age=0": 0, "max-age=x": 0,
	} {
		got, err := promise(control)
		if got != want || (want == 0) != errors.Is(err, errNoPromise) {
			t.Errorf("%q: %v, %v", control, got, err)
		}
	}
}
