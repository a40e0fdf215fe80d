package status_test

import (
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
)

// replica is one that lives, and in which nothing is wrong.
func replica(name string) status.Replica {
	return status.Replica{Name: name, State: status.ReplicaLive, Version: "1", Takes: true, Settings: map[string]string{"retention": "24h"}}
}

// TestReplicaReasons: each thing in which replicas must be alike or well is named, with the
// replica, and nothing is said where all is well or of one that lives no more.
func TestReplicaReasons(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*status.Replica)
		want   string // in the one reason; empty: there is none
	}{
		"alike":           {func(*status.Replica) {}, ""},
		"dead":            {func(r *status.Replica) { *r = status.Replica{Name: "b", State: status.ReplicaDead, Version: "0"} }, ""},
		"another version": {func(r *status.Replica) { r.Version = "2" }, "replicas are of different versions: 1 at a; 2 at b"},
		"another setting": {func(r *status.Replica) { r.Settings = map[string]string{"retention": "1h"} }, "replicas do not agree in retention: 1h at b; 24h at a"},
		"says less":       {func(r *status.Replica) { r.Settings = nil }, ""}, // its version differs
		"its clock":       {func(r *status.Replica) { r.ClockAhead = -11 }, "the clocks of replicas b and a are 11s apart"},
		"almost right":    {func(r *status.Replica) { r.ClockAhead = 9 }, ""},
		"takes nothing":   {func(r *status.Replica) { r.Takes, r.NotTaking = false, []string{"disk: full"} }, "replica b takes nothing: disk: full"},
		"no marks":        {func(r *status.Replica) { r.Unreached = map[string]string{"marks": "denied"} }, "replica b does not reach the place of marks: denied"},
		"no objects":      {func(r *status.Replica) { r.Takes, r.Unreached = false, map[string]string{"objects": "denied"} }, "the place of objects: denied"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := replica("a"), replica("b")
			c.change(&b)
			s := &status.Status{Role: "leader", Replicas: []status.Replica{a, b}}
			rs := s.Reasons()
			switch {
			case c.want == "" && len(rs) > 0:
				t.Errorf("said %q", rs)
			case c.want != "" && (len(rs) != 1 || !strings.Contains(rs[0].Blocks, c.want) || rs[0].Do == ""):
				t.Errorf("said %q, want %q", rs, c.want)
			}
		})
	}
}

// TestAddReplicas: what each replica counts by itself is added up, over those that live.
func TestAddReplicas(t *testing.T) {
	a, b, gone := replica("a"), replica("b"), replica("c")
	a.Rates, b.Rates = map[string]float64{"x": 2}, map[string]float64{"x": 3, "y": 1}
	a.Refused, b.Refused = map[string]uint64{"404": 1}, map[string]uint64{"404": 2, "503": 4}
	gone.State, gone.Rates, gone.Refused = status.ReplicaDead, map[string]float64{"x": 100}, map[string]uint64{"404": 100}
	s := &status.Status{RefusedRequests: a.Refused, Now: time.Unix(0, 0),
		Tasks: []status.Task{{ID: "x", Done: 10, Total: 20, ReportsPerSec: 2, SecondsLeft: 5}, {ID: "z", ReportsPerSec: 7}}}
	s.AddReplicas([]status.Replica{a, b, gone})
	if x, z := s.Tasks[0], s.Tasks[1]; x.ReportsPerSec != 5 || x.SecondsLeft != 2 || z.ReportsPerSec != 0 {
		t.Errorf("%+v, %+v", x, z)
	}
	if s.RefusedRequests["404"] != 3 || s.RefusedRequests["503"] != 4 || len(s.Replicas) != 3 {
		t.Errorf("%v, %d replicas", s.RefusedRequests, len(s.Replicas))
	}
	alone := &status.Status{RefusedRequests: map[string]uint64{"404": 1}}
	alone.AddReplicas([]status.Replica{gone})
	if alone.RefusedRequests["404"] != 1 {
		t.Errorf("before any has said something: %v", alone.RefusedRequests)
	}
}
