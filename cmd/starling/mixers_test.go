package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/shuffle/hop"
)

// TestWhyShuffle: each thing that keeps a result of the shuffled path is named, with what to do,
// and a round that nobody has sent to yet is none.
func TestWhyShuffle(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	later := now.Add(time.Hour)
	for name, c := range map[string]struct {
		x    hop.ShuffleStatus
		want []string // of the reasons, in order
	}{
		"nothing":     {hop.ShuffleStatus{Rounds: []hop.RoundStatus{{Round: 7, Flush: later}}}, nil},
		"under way":   {hop.ShuffleStatus{Rounds: []hop.RoundStatus{{Round: 7, Flush: later, Have: 12}}}, []string{"round 7 is handed on at 2026-11-27T13:00:00Z, whole; 12 are here"}},
		"over":        {hop.ShuffleStatus{Rounds: []hop.RoundStatus{{Round: 7, Flush: now, Have: 12}}}, nil},
		"waits":       {hop.ShuffleStatus{Rounds: []hop.RoundStatus{{Round: 7, Flush: now, Have: 12, Trouble: "status 401"}}}, []string{"round 7 waits: status 401"}},
		"not logged":  {hop.ShuffleStatus{Rounds: []hop.RoundStatus{{Round: 8, Flush: later, Unlogged: "the log is away"}}}, []string{"the key of round 8 is not in the log"}},
		"few":         {hop.ShuffleStatus{Totals: hop.Totals{Rounds: map[string]uint64{"few": 1, "tallied": 5}}}, []string{"1 round so far had fewer contributions"}},
		"few expired": {hop.ShuffleStatus{Totals: hop.Totals{Rounds: map[string]uint64{"few": 2, "expired": 3}}}, []string{"2 rounds so far had fewer", "3 rounds so far were not taken"}},
	} {
		got := whyShuffle(&c.x, now, "hop-1.toml")
		if len(got) != len(c.want) {
			t.Errorf("%s: %+v", name, got)
			continue
		}
		for i, r := range got {
			if !strings.HasPrefix(r.Blocks, c.want[i]) || r.Do == "" {
				t.Errorf("%s: %+v, want %q", name, r, c.want[i])
			}
		}
	}
	for _, lost := range lostRounds {
		if !slices.Contains(hop.Outcomes(), lost.outcome) {
			t.Errorf("no round ends with %q", lost.outcome)
		}
	}
}
