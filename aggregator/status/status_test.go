package status_test

import (
	"strings"
	"testing"

	"github.com/starling-agg/starling/aggregator/status"
)

func TestWhy(t *testing.T) {
	open := func(n uint64) []status.Batch { return []status.Batch{{State: "open", Verified: n}} }
	for name, c := range map[string]struct {
		task   status.Task
		blocks string // of the first reason; empty: nothing blocks
		do     string
	}{
		"nothing sent": {status.Task{MinBatch: 10}, "no report has arrived", "send"},
		"all refused": {status.Task{MinBatch: 10, Counts: status.Counts{Refused: map[string]uint64{"outdated_config": 3, "report_too_early": 5}}},
			"report_too_early (5), outdated_config (3)", "clocks"},
		"before the interval": {status.Task{Phase: status.NotStarted}, "has not started", "wait"},
		"verifying":           {status.Task{MinBatch: 10, Total: 5, Counts: status.Counts{Acknowledged: 5, Waiting: 5}}, "5 acknowledged", "wait"},
		"too few": {status.Task{MinBatch: 10, Total: 5, Batches: open(5), Counts: status.Counts{Acknowledged: 5}},
			"5 verified reports, below the minimum of 10", "send more"},
		"too few for ever": {status.Task{MinBatch: 10, Total: 5, Phase: status.Over, Batches: open(5), Counts: status.Counts{Acknowledged: 5}},
			"the task is over", "nothing can be released"},
		"not asked for": {status.Task{MinBatch: 10, Total: 10, Batches: open(10), Counts: status.Counts{Acknowledged: 10}}, "nobody has asked", "starling collect"},
		"quarantined": {status.Task{MinBatch: 1, Stuck: []status.Stuck{{Why: "helper did not answer: x"}, {Quarantined: true, Reports: 4, Why: "y"}}},
			"4 reports were set aside: y", "read the reason"},
		"failing": {status.Task{Stuck: []status.Stuck{{Reports: 9, Attempts: 3, Why: "helper refused: about:blank (status 401)"}}},
			"9 reports failed 3 times", "token"},
		"held": {status.Task{Held: []status.Held{{Reports: 30, Expected: 14, Epsilon: 0.5, Delta: 1e-6}}},
			"30 reports is held, more than twice the 14 expected; if an attacker sent half of a batch, the others are left with epsilon 0.5 at delta 1e-06",
			"raise what this aggregator expects"},
		"too few devices": {status.Task{Held: []status.Held{{Verdict: status.TooFew, Reports: 30, Senders: 90}}},
			"a batch of 30 reports is held: of 90 devices, as the guarantee counts on, more would have come", "have more devices take part"},
		"too few credentials": {status.Task{Held: []status.Held{{Verdict: status.TooFew, Reports: 30, Senders: 90, Devices: new(uint64)}}},
			"0 devices have credentials, and the guarantee counts on 90", "have more devices take part"},
		"forged": {status.Task{Held: []status.Held{{Verdict: status.Forged, Reports: 30, Devices: new(uint64)}}},
			"30 credentials were shown in a round, and this aggregator's issuer has given out 0", "who has the issuer's key"},
		"flooded": {status.Task{Held: []status.Held{{Verdict: status.TooMany, Reports: 30, Expected: 3, Devices: new(uint64)}}},
			"30 reports is held, more than twice the 3 expected of 0 devices with credentials", "the attester let too many devices in"},
		"more than chance": {status.Task{Rate: &status.Rate{Verdict: status.TooMany, Reports: 30, Senders: 10}},
			"more reports than coins of honest devices explain: too many: 30 reports, where the guarantee counts on 10", "nothing is held for it"},
		"held by the helper": {status.Task{Peer: &status.Peer{Held: 2}}, "the helper holds batches, for too many reports or too few (2)", "helper's operator"},
		"collected": {status.Task{MinBatch: 10, Total: 10, Batches: []status.Batch{{State: "closed", Verified: 10}},
			Counts: status.Counts{Acknowledged: 10, Collected: 10}}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := status.Why(&c.task)
			if c.blocks == "" {
				if len(got) != 0 {
					t.Errorf("got %+v, want nothing", got)
				}
				return
			}
			if len(got) == 0 || !strings.Contains(got[0].Blocks, c.blocks) || !strings.Contains(got[0].Do, c.do) {
				t.Errorf("got %+v, want %q and %q first", got, c.blocks, c.do)
			}
		})
	}
}
