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
	ago := func(d time.Duration) *time.Time { at := now.Add(-d); return &at }
	for _, c := range []struct {
		name string
		s    Status
		want string
		lost bool
	}{
		{"well", Status{Held: 3, Oldest: ago(time.Second), MinRound: 1}, "", false},
		{"damaged", Status{Lost: map[string]uint64{"damaged": 1}}, "cannot be read", true},
		{"expired", Status{Lost: map[string]uint64{"expired": 2}}, "took none of them in time", true},
		{"few", Status{Lost: map[string]uint64{"few": 2}}, "too few others", true},
		{"dropped", Status{Lost: map[string]uint64{"dropped": 2}}, "refused by the leader", true},
		{"leader away", Status{Held: 3, Oldest: ago(time.Hour), MinRound: 1}, "wait for the leader", false},
		{"alone", Status{Held: 1, Waiting: 1, Oldest: ago(time.Hour), MinRound: 5}, "wait for others", false},
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
