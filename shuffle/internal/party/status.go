package party

import (
	"encoding/hex"
	"maps"
	"slices"
	"time"
)

// Status is what the operator may know.
type Status struct {
	Role     string          `json:"role"`
	Shuffles []ShuffleStatus `json:"shuffles"`
	Trouble  string          `json:"trouble,omitempty"` // of the disk
	Now      time.Time       `json:"now"`
}

// A ShuffleStatus is of one recipe.
type ShuffleStatus struct {
	Recipe string        `json:"recipe"` // id, in hexadecimal digits
	Rounds []RoundStatus `json:"rounds"` // that have not ended
	Totals Totals        `json:"totals"`
	// Requests count what arrived since the start.
	Requests map[string]uint64 `json:"requests"`
}

// Stages of a round: a closed set.
const (
	Gathering = "gathering" // takes contributions, or waits for a batch
	Whole     = "whole"     // the batch is there
	Committed = "committed" // to be handed on
)

// A RoundStatus is of one round.
type RoundStatus struct {
	Round uint64    `json:"round"`
	Flush time.Time `json:"flush"`
	Stage string    `json:"stage"`
	// Have is how many contributions, or records of a batch, are there.
	Have uint64 `json:"have"`
	// Contributions and Messages are those of the batch to hand on.
	Contributions uint64 `json:"contributions,omitempty"`
	Messages      uint64 `json:"messages,omitempty"`
	Trouble       string `json:"trouble,omitempty"`
	// Logged says that the key stands in the log, of a recipe that names one, and Unlogged
	// why it does not.
	Logged   bool   `json:"logged,omitempty"`
	Unlogged string `json:"unlogged,omitempty"`
}

// Status says how the party stands.
func (p *Party) Status() *Status {
	s := &Status{Role: p.o.Role.String(), Now: p.o.Clock.Now().UTC(), Shuffles: []ShuffleStatus{}}
	p.mu.Lock()
	if p.failure != nil {
		s.Trouble = p.failure.Error()
	}
	var rounds [][]*round // to be looked at without p.mu
	for _, o := range p.o.Shuffles {
		x := p.shuffles[o.Recipe]
		y := ShuffleStatus{Recipe: hex.EncodeToString(x.Recipe[:]), Rounds: []RoundStatus{}, Totals: x.state.clone().totals, Requests: maps.Clone(x.counts)}
		var of []*round
		for _, n := range slices.Sorted(maps.Keys(x.rounds)) {
			r := x.rounds[n]
			of = append(of, r)
			y.Rounds = append(y.Rounds, RoundStatus{Round: n, Flush: x.Flush(n), Stage: Gathering, Trouble: r.trouble, Logged: r.logged, Unlogged: r.unlogged})
		}
		rounds = append(rounds, of)
		s.Shuffles = append(s.Shuffles, y)
	}
	p.mu.Unlock()
	for i, of := range rounds {
		for j, r := range of {
			r.tell(&s.Shuffles[i].Rounds[j])
		}
	}
	return s
}

// tell says how far a round has come.
func (r *round) tell(s *RoundStatus) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Have = max(uint64(len(r.seen)), r.inbox.tree.Records())
	switch {
	case r.out != nil:
		s.Stage, s.Contributions, s.Messages = Committed, r.out.Contributions, r.out.Records()
	case r.inbox.whole:
		s.Stage = Whole
	}
}
