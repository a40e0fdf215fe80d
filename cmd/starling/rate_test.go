package main

import (
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator/status"
)

// TestRateIsTold: status has a task's last comparison and the batches that are held, and
// doctor a fault where it is not as expected.
func TestRateIsTold(t *testing.T) {
	devices := uint64(70)
	for _, c := range []struct {
		task  status.Task
		lines []string
		fault bool
	}{
		{status.Task{}, nil, false},
		{status.Task{Rate: &status.Rate{Verdict: status.AsExpected, Reports: 40, Senders: 60, Devices: &devices}},
			[]string{"  last batch as expected: 40 reports, of 70 devices with credentials, where the guarantee counts on 60\n"}, false},
		{status.Task{Rate: &status.Rate{Verdict: status.TooMany, Reports: 69, Devices: &devices}},
			[]string{"  last batch too many: 69 reports, of 70 devices with credentials\n"}, true},
		{status.Task{Rate: &status.Rate{Verdict: status.TooFew, Reports: 5, Senders: 60}, Held: []status.Held{{Verdict: status.TooFew, Reports: 5, Senders: 60}}},
			[]string{"  last batch too few: 5 reports, where the guarantee counts on 60\n", "  held       a batch of 5 reports is held: of 60 devices, "}, true},
		{status.Task{Rate: &status.Rate{Verdict: status.Forged, Reports: 80, Devices: &devices}}, []string{"  last batch forged: 80 reports, of 70 devices"}, true},
	} {
		var b strings.Builder
		writeStatus(&b, &status.Status{Role: "leader", Tasks: []status.Task{c.task}})
		for _, line := range c.lines {
			if !strings.Contains(b.String(), line) {
				t.Errorf("%q is not in\n%s", line, b.String())
			}
		}
		if n := strings.Count(b.String(), "  last batch ") + strings.Count(b.String(), "  held "); n != len(c.lines) {
			t.Errorf("%d lines, want %d:\n%s", n, len(c.lines), b.String())
		}
		if c.task.Rate != nil && (unlikely(c.task.Rate) != nil) != c.fault {
			t.Errorf("%+v is a fault: %v", c.task.Rate, unlikely(c.task.Rate))
		}
	}
}
