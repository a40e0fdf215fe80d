package status_test

import (
	"strings"
	"testing"
	"time"

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

// TestPublished: of what the log says of credentials the smallest number counts, whoever
// says it; issuers that have answered more devices than the attester let ask are an alarm;
// and a log that fails says why, since when, and as of when it is believed.
func TestPublished(t *testing.T) {
	n := func(n uint64) *uint64 { return &n }
	for name, c := range map[string]struct {
		of    status.Cohort
		least uint64
		whose string // empty: nobody says anything
		alarm string // empty: none
	}{
		"nobody":            {status.Cohort{}, 0, "", ""},
		"the issuer":        {status.Cohort{Issued: n(7), Leader: n(7), Helper: n(8), Attester: n(9)}, 7, "issuer", ""},
		"the helper":        {status.Cohort{Issued: n(7), Helper: n(6), Attester: n(9)}, 6, "helper", ""},
		"the attester":      {status.Cohort{Issued: n(7), Leader: n(6), Attester: n(5)}, 5, "attester", "5 devices were let ask for credentials, and the issuer beside this aggregator has answered 7, and the leader's owner"},
		"helper above":      {status.Cohort{Leader: n(5), Helper: n(6), Attester: n(5)}, 5, "leader", "and the helper's owner says that its issuer has answered 6"},
		"no attester":       {status.Cohort{Issued: n(7), Leader: n(4)}, 4, "leader", ""},
		"none at all, said": {status.Cohort{Leader: n(0), Attester: n(0)}, 0, "leader", ""},
	} {
		least, whose, ok := c.of.Devices()
		if least != c.least || whose != c.whose || ok != (c.whose != "") {
			t.Errorf("%s: %d of %q, %v", name, least, whose, ok)
		}
		alarm := c.of.Alarm()
		if (alarm != "") != (c.alarm != "") || !strings.Contains(alarm, c.alarm) {
			t.Errorf("%s: %q", name, alarm)
		}
		p := &status.Published{Log: "log.example", Epochs: []status.Cohort{{}, c.of}}
		if got := p.Alarms() > 0; got != (c.alarm != "") {
			t.Errorf("%s: alarms %v", name, got)
		}
	}
	seen := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := &status.Status{Role: "leader", Published: &status.Published{Log: "log.example", Seen: seen, Failing: "it is down", FailingSince: seen.Add(time.Hour),
		Epochs: []status.Cohort{{Epoch: 4, Leader: n(5)}}}}
	if rs := s.Reasons(); len(rs) != 1 || !strings.Contains(rs[0].Blocks, "found good last: 2026-11-21T12:00:00Z, and fails since 2026-11-21T13:00:00Z: it is down") ||
		!strings.Contains(rs[0].Do, "[issuer] of leader.toml") {
		t.Errorf("%+v", rs)
	}
	if words := s.Published.Words(); words != "log.example as of 2026-11-21T12:00:00Z: of epoch 4 leader says 5, helper nothing, attester nothing" {
		t.Error(words)
	}
}
