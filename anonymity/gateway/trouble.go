package gateway

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway/internal/forward"
)

// A Trouble is what keeps uploads from their target, or has, and what to do about it.
type Trouble struct {
	Blocks string `json:"blocks"`
	Do     string `json:"do"`
	// Lost says that acknowledged uploads are gone, so that it is a fault and no waiting.
	Lost bool `json:"lost,omitempty"`
}

// late is how long an upload may be on its way before it is worth a word: rounds, batches
// and the first waits take seconds.
const late = time.Minute

// lately is for how long a loss is a fault; after that it is told by the status alone.
const lately = 7 * 24 * time.Hour

// spentAt is the part of a key's requests, in percent, from which on it should have
// another beside it.
const spentAt = 80

// Troubles names what is wrong, most urgent first.
func (s *Status) Troubles() (all []Trouble) {
	add := func(lost bool, do, format string, args ...any) {
		all = append(all, Trouble{fmt.Sprintf(format, args...), do, lost})
	}
	for _, outcome := range slices.Sorted(maps.Keys(s.Lost)) {
		n, last := s.Lost[outcome], s.LastLost[outcome]
		if s.Now.Sub(last) > lately {
			continue
		}
		when := last.UTC().Format(time.RFC3339)
		switch outcome {
		case forward.Damaged:
			add(true, "look after the disk; the files damaged-* are kept, and what was in them is lost", "%d rounds of acknowledged uploads cannot be read, or are gone", n)
		case forward.Expired:
			add(true, "find out why the leader did not answer; a longer hold keeps more, if the leader's max_age is as long", "%d uploads were given up, for the leader took none of them in time; the last at %s", n, when)
		case forward.Few:
			add(true, "a smaller min_round, or cover, lets them go on", "%d uploads were given up, for too few others came for their task; the last at %s", n, when)
		case forward.Dropped:
			add(true, "compare the leader's tasks with the recipes that devices have: starling status leader.toml",
				"%d uploads were refused by the leader as a whole, each alone, or were of a task that it never had; the last at %s", n, when)
		}
	}
	age := time.Duration(s.HeldSeconds * float64(time.Second)).Round(time.Second)
	hold := time.Duration(s.HoldSeconds * float64(time.Second))
	if s.Unknown > 0 {
		add(false, "compare the leader's tasks with the recipes that devices have, and start it with all of them: starling status leader.toml",
			"%d requests wait, for the leader says that it has no such task; what it does not know after %v is given up", s.Unknown, hold)
	}
	switch {
	case age < late || s.Unknown > 0 && s.Unknown == s.Charged:
	case s.Waiting > 0 && s.MinRound > 1:
		add(false, "wait, or take a smaller min_round", "%d requests wait for others: %d of one task must have come; the oldest since %v", s.Waiting, s.MinRound, age)
	default:
		add(false, "ask the leader: starling doctor leader.toml", "%d uploads wait for the leader; the oldest since %v, and is given up after %v", s.Held, age, hold)
	}
	if s.Charged > s.Room*spentAt/100 {
		add(false, "see to the leader; limits.held_requests is the room there is", "%d of the %d requests that it may hold have come; then all devices are refused", s.Charged, s.Room)
	}
	usable, spent := 0, 0
	for _, k := range s.Keys {
		if k.Usable {
			usable++
			if k.Opened > k.Max*spentAt/100 {
				spent++
			}
		}
	}
	if spent > 0 && spent == usable {
		add(false, "make the next manifest soon, or raise max_opened; whoever sends so much is bounded by the relay's limits",
			"every key has opened more than %d %% of the requests that it may", spentAt)
	}
	return all
}
