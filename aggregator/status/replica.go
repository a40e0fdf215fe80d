package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// States of a replica.
const (
	ReplicaLive    = "live"
	ReplicaStopped = "stopped" // in order
	ReplicaDead    = "dead"    // it was not heard of for half a minute, and did not say that it stops
)

// A Replica is one of the processes of an aggregator that share a database, as it said of
// itself last.
type Replica struct {
	Name string `json:"name"` // host name and process id
	ID   string `json:"id"`   // random, of this life of the process
	// live, stopped or dead; the last two are listed for a day
	State string `json:"state"`
	// This is the one that answers.
	This    bool      `json:"this,omitempty"`
	Version string    `json:"version"`
	Since   time.Time `json:"since"` // by the database's clock, as is Seen
	Seen    time.Time `json:"seen"`
	// ClockAhead is how far its clock is ahead of the database's, in seconds.
	ClockAhead float64 `json:"clock_ahead_seconds"`
	// Takes says whether it accepts uploads, or jobs at a helper, and NotTaking why it
	// does not.
	Takes     bool     `json:"takes"`
	NotTaking []string `json:"not_taking,omitempty"`
	// Claims is how many aggregation jobs it has claimed, or at a helper works on.
	Claims int `json:"claims"`
	// Keys are the ids of the HPKE keys that it has proved to hold.
	Keys []uint16 `json:"keys,omitempty"`
	// Settings are those in which all replicas must be alike, by name.
	Settings map[string]string `json:"settings,omitempty"`
	// Unreached are the places that it does not reach, and why: objects, marks.
	Unreached map[string]string `json:"unreached,omitempty"`
	// IssuerKeys are the key epochs of credentials whose issuer's key it has not got, and why:
	// it leaves their reports to other replicas.
	IssuerKeys map[string]string `json:"issuer_keys_missing,omitempty"`
	// Refused counts the requests that it refused, as Status.RefusedRequests does of all.
	Refused map[string]uint64 `json:"refused_requests,omitempty"`
	// Rates are reports verified lately, a second, by task.
	Rates map[string]float64 `json:"reports_per_second,omitempty"`
}

// clocksApart is how far the clocks of two replicas may be apart: a claim that one renews is
// not to look ended to the other, and lasts half a minute.
const clocksApart = 10 * time.Second

// live are the replicas that live.
func (s *Status) live() (list []*Replica) {
	for i := range s.Replicas {
		if s.Replicas[i].State == ReplicaLive {
			list = append(list, &s.Replicas[i])
		}
	}
	return list
}

// AddReplicas lists replicas, and makes those figures of the status the party's that each of
// them has of its own.
func (s *Status) AddReplicas(list []Replica) {
	s.Replicas = list
	rates := make(map[string]float64)
	refused := make(map[string]uint64)
	for _, r := range s.live() {
		for task, rate := range r.Rates {
			rates[task] += rate
		}
		for why, n := range r.Refused {
			refused[why] += n
		}
	}
	if len(s.live()) == 0 {
		return // none has said anything yet: what the one that answers has stays
	}
	if s.RefusedRequests = nil; len(refused) > 0 {
		s.RefusedRequests = refused
	}
	for i := range s.Tasks {
		t := &s.Tasks[i]
		t.ReportsPerSec, t.SecondsLeft = rates[t.ID], 0
		if left := t.Total - min(t.Done, t.Total); left > 0 && t.ReportsPerSec > 0 {
			t.SecondsLeft = float64(left) / t.ReportsPerSec
		}
	}
}

// ofReplicas are what is wrong with the replicas that live, each by itself and beside the
// others.
func (s *Status) ofReplicas() (rs []Reason) {
	live, file := s.live(), s.Role+".toml"
	add := func(do, format string, a ...any) { rs = append(rs, Reason{fmt.Sprintf(format, a...), do}) }
	for _, r := range live {
		for _, place := range slices.Sorted(maps.Keys(r.Unreached)) {
			add("see that it reaches the place and may use it: [database."+place+"] in its "+file+", and the credentials that are named there",
				"replica %s does not reach the place of %s: %s", r.Name, place, r.Unreached[place])
		}
		for _, epoch := range slices.Sorted(maps.Keys(r.IssuerKeys)) {
			add("copy "+epoch+".issuer, and the epoch's manifest, into the directories in [issuer] of its "+file+" from a replica that has them; its reports are verified there meanwhile",
				"replica %s has not got the issuer's key of epoch %s: %s", r.Name, epoch, r.IssuerKeys[epoch])
		}
		if !r.Takes && len(r.Unreached) == 0 {
			add("do what it says; other replicas go on meanwhile, and what spreads connections is to leave it out as long as its /readyz is not 200",
				"replica %s takes nothing: %s", r.Name, cmp.Or(strings.Join(r.NotTaking, "; "), "it does not say why"))
		}
	}
	if len(live) < 2 {
		return rs
	}
	first, last := live[0], live[0]
	for _, r := range live {
		if r.ClockAhead < first.ClockAhead {
			first = r
		}
		if r.ClockAhead > last.ClockAhead {
			last = r
		}
	}
	if apart := time.Duration((last.ClockAhead - first.ClockAhead) * float64(time.Second)); apart > clocksApart {
		add("set the clocks of the replicas' machines by a time service; the one that is further from the database's is the wrong one",
			"the clocks of replicas %s and %s are %s apart, and claims of jobs last half a minute", first.Name, last.Name, apart.Round(time.Second))
	}
	if words, differ := values(live, func(r *Replica) string { return r.Version }); differ {
		add("replace the older ones, one by one, if that is not under way; then this goes away", "replicas are of different versions: %s", words)
	}
	names := make(map[string]bool)
	for _, r := range live {
		for name := range r.Settings {
			names[name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		of := func(r *Replica) string { return r.Settings[name] }
		// A version that does not say it yet differs in its version.
		if slices.ContainsFunc(live, func(r *Replica) bool { _, ok := r.Settings[name]; return !ok }) {
			continue
		}
		if words, differ := values(live, of); differ {
			add("give all of them the same in "+file+", and start those again that have another", "replicas do not agree in %s: %s", name, words)
		}
	}
	return rs
}

// values says who has which value, and whether there are several.
func values(list []*Replica, of func(*Replica) string) (words string, differ bool) {
	by := make(map[string][]string)
	for _, r := range list {
		by[of(r)] = append(by[of(r)], r.Name)
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(by)) {
		parts = append(parts, fmt.Sprintf("%s at %s", cmp.Or(v, "none"), strings.Join(by[v], ", ")))
	}
	return strings.Join(parts, "; "), len(by) > 1
}
