package main

import (
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
)

// TestListedTask: the line of a task says where it came from, and how it ended.
func TestListedTask(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for want, task := range map[string]status.Registered{
		"a\trecipe\tadded 2026-03-01 by alice\tlive\n": {Task: "a", Form: "recipe", Source: "typed", By: "alice", Added: at},
		"b\tconfiguration\tbrought in band 2026-03-01 by the office's leader\tclosed 2026-03-03 by bob: over\n": {
			Task: "b", Form: "configuration", Source: "in band", By: "the office's leader", Added: at,
			Closed: &status.ClosedTask{At: at.Add(48 * time.Hour), By: "bob", Why: "over"},
		},
	} {
		if got := listed(&task); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
