package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
)

// writeReplicas tells of the processes of an aggregator that share a database, a line each;
// what stands above is of all of them.
func writeReplicas(w io.Writer, s *status.Status) {
	if len(s.Replicas) == 0 {
		return
	}
	now, live := s.Now, 0
	for i := range s.Replicas {
		r := &s.Replicas[i]
		if r.This { // by whose clock Now is
			now = s.Now.Add(-time.Duration(r.ClockAhead * float64(time.Second)))
		}
		if r.State == status.ReplicaLive {
			live++
		}
	}
	fmt.Fprintf(w, "%s, %s\n", s.Role, counted(live, "live replica", "live replicas"))
	for i := range s.Replicas {
		fmt.Fprintf(w, "  %-10s %s\n", s.Replicas[i].State, replicaLine(&s.Replicas[i], s.Role, now))
	}
}

// replicaLine is a replica in words, without its state.
func replicaLine(r *status.Replica, role string, now time.Time) string {
	line := r.Name + " " + r.ID[:min(8, len(r.ID))]
	if r.This {
		line += ", this one"
	}
	line += fmt.Sprintf(": since %s, seen %s ago", span(now.Sub(r.Since)), span(now.Sub(r.Seen)))
	if r.State == status.ReplicaLive {
		what := "uploads"
		if role == "helper" {
			what = "jobs"
		}
		if r.Takes {
			line += ", takes " + what
		} else {
			line += ", takes no " + what
		}
		line += ", " + counted(r.Claims, "claim", "claims")
		if len(r.Keys) > 0 {
			var ids []string
			for _, id := range r.Keys {
				ids = append(ids, fmt.Sprint(id))
			}
			line += ", holds HPKE keys " + strings.Join(ids, ", ")
		}
	}
	return line + "; " + r.Version
}
