package gateway

import (
	"strings"
	"testing"
	"time"
)

// TestTroubles: each way in which an upload is lost is named, what waits is named once it
// has waited for long, and a gateway that is well has no word said.
func TestTroubles(t *testing.T) {
	now := time.Unix(100_000, 0)
	lost := func(why string, ago time.Duration) Status {
		return Status{Lost: map[string]uint64{why: 2}, LastLost: map[string]time.Time{why: now.Add(-ago)}}
	}
	for _, c := range []struct {
		name string
		s    Status
		want string
		lost bool
	}{
		{"well", Status{Held: 3, HeldSeconds: 1, MinRound: 1}, "", false},
		{"damaged", lost("damaged", 0), "cannot be read", true},
		{"expired", lost("expired", time.Hour), "took none of them in time", true},
		{"few", lost("few", 24*time.Hour), "too few others", true},
		{"dropped", lost("dropped", 7*24*time.Hour), "refused by the leader", true},
		{"lost long ago", lost("dropped", 8*24*time.Hour), "", false},
		{"no such task", Status{Held: 3, Charged: 3, Unknown: 3, HeldSeconds: 7200, MinRound: 1}, "no such task", false},
		{"leader away", Status{Held: 3, HeldSeconds: 3600, MinRound: 1}, "wait for the leader", false},
		{"alone", Status{Held: 1, Waiting: 1, HeldSeconds: 3600, MinRound: 5}, "wait for others", false},
		{"full", Status{Charged: 81}, "may hold have come", false},
		{"spent", Status{Keys: []KeyStatus{{1, 90, 100, true}, {2, 95, 100, false}}}, "every key", false},
		{"one of two spent", Status{Keys: []KeyStatus{{1, 90, 100, true}, {2, 5, 100, true}}}, "", false},
	} {
		c.s.Now, c.s.Room, c.s.HoldSeconds = now, 100, 86400
		got := c.s.Troubles()
		if c.want == "" {
			if len(got) > 0 {
				t.Errorf("%s: %v", c.name, got)
			}
			continue
		}
		if len(got) != 1 || !strings.Contains(got[0].Blocks, c.want) || got[0].Lost != c.lost || got[0].Do == "" {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
