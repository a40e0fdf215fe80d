package gateway

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/anonymity/gateway/internal/forward"
	"github.com/starling-agg/starling/anonymity/internal/door"
)

// Status is what the operator may know.
type Status struct {
	// Passed uploads were taken by a target; Requests are those to targets that were
	// answered.
	Passed   uint64 `json:"passed"`
	Requests uint64 `json:"requests"`
	// Covers and reports that had come before were answered as all others and went
	// nowhere.
	Covers uint64 `json:"covers"`
	Known  uint64 `json:"known"`
	// Admission counts requests for tasks that ask for tokens: counted, each a device's
	// first of a round; again, with a token that was counted before; not_admitted, with
	// none that holds.
	Admission map[string]uint64 `json:"admission"`
	// Refused requests by reason: those that were told so, and those that were answered
	// as all others.
	Refused map[string]uint64 `json:"refused"`
	// Verdicts are the uploads that a target took and refused, by its reason.
	Verdicts map[string]uint64 `json:"verdicts"`
	// Lost are acknowledged uploads that no target will take: dropped, refused when sent
	// alone; expired, not taken within Hold; few, held back for too few others came
	// within Hold; damaged, counted in rounds, by the disk. LastLost is when the last
	// was.
	Lost     map[string]uint64    `json:"lost"`
	LastLost map[string]time.Time `json:"last_lost"`
	// Held uploads are on the disk, to be passed on; of Charged requests, covers among
	// them, the rounds are not done, and Waiting ones wait for MinRound; of Unknown ones
	// their target says that it has no such task. Oldest is when the first of their
	// rounds was closed, if there is one, and HeldSeconds for how long it is held, by a
	// count that neither a clock that is set nor a stop moves.
	Held        int        `json:"held"`
	Charged     int        `json:"charged"`
	Waiting     uint64     `json:"waiting"`
	Unknown     int        `json:"unknown"`
	Oldest      *time.Time `json:"oldest,omitempty"`
	HeldSeconds float64    `json:"held_seconds"`
	MinRound    int        `json:"min_round"`
	// HoldSeconds is how long a round is kept, and Room how many requests the gateway
	// holds at most.
	HoldSeconds float64   `json:"hold_seconds"`
	Room        int       `json:"room"`
	Now         time.Time `json:"now"`
	// Keys in use.
	Keys []KeyStatus `json:"keys"`
}

// KeyStatus tells of one key.
type KeyStatus struct {
	ID     uint8 `json:"id"`
	Opened int   `json:"opened"` // requests in its life
	Max    int   `json:"max"`
	Usable bool  `json:"usable"`
}

// Status counts what became of uploads, Passed, Verdicts and Lost, over all starts, but
// for the damaged rounds, which count as long as their files are there. All else it
// counts since the start.
func (g *Gateway) Status() *Status {
	// In the way of an upload: one that moves on meanwhile is counted twice, and never
	// missed.
	answered := 0
	g.mu.Lock()
	for _, r := range slices.Concat(g.writing, g.answered) {
		answered += len(r.record.Items)
	}
	answered += len(g.open.record.Items)
	g.mu.Unlock()
	f := g.forward.Status()
	s := &Status{Passed: g.counts.outcomes[forward.Taken].Load(), Requests: f.Requests, Covers: g.counts.covers.Load(),
		Known: g.counts.known.Load(), Admission: make(map[string]uint64), Refused: make(map[string]uint64), Verdicts: make(map[string]uint64),
		Lost: make(map[string]uint64), LastLost: make(map[string]time.Time), Unknown: f.Unknown, Held: answered + f.Held, Waiting: f.Waiting, MinRound: g.o.MinRound,
		HoldSeconds: g.o.Hold.Seconds(), Room: g.o.Limits.Held, Now: g.o.Clock.Now()}
	if !f.Oldest.IsZero() {
		s.Oldest, s.HeldSeconds = &f.Oldest, f.Age.Seconds()
	}
	left, _ := g.room.left()
	s.Charged = g.o.Limits.Held - left
	fill := func(into map[string]uint64, from map[string]*atomic.Uint64) {
		for word, n := range from {
			if n := n.Load(); n > 0 {
				into[word] = n
			}
		}
	}
	fill(s.Admission, g.counts.admission)
	fill(s.Refused, g.counts.refused)
	fill(s.Verdicts, g.counts.verdicts)
	for _, word := range lost {
		if n := g.counts.outcomes[word].Load(); n > 0 {
			s.Lost[word], s.LastLost[word] = n, g.counts.lastOf(word)
		}
	}
	for _, k := range g.keys.Load().list {
		s.Keys = append(s.Keys, KeyStatus{k.Pair.ID(), g.count(k.opened), k.opened.max, k.usable(g.o.Clock)})
	}
	return s
}

// lost are the outcomes of acknowledged uploads that nobody took.
var lost = []string{forward.Dropped, forward.Expired, forward.Few, forward.Damaged}

// An Observer is told of what happens, in words of closed sets.
type Observer struct {
	// Refused tells of a request, by the reason.
	Refused func(reason string)
	// Admission tells of a request for a task that asks for tokens, by a word of
	// [Status.Admission].
	Admission func(word string)
	// Uploads counts uploads by outcome: a word of [Status.Lost], "taken", or a target's
	// reason. It is told the counts of earlier starts at the start.
	Uploads func(outcome string, n uint64)
}

// Refusals are the words of [Observer.Refused].
func Refusals() []string { return door.Labels() }

// Admissions are the words of [Observer.Admission].
func Admissions() []string { return []string{TokenCounted, TokenAgain, TokenNone} }

// Outcomes are the words of [Observer.Uploads].
func Outcomes(p Protocol) []string { return append(p.Reasons(), forward.Outcomes...) }

// counts are those of a life, and of all lives for what became of uploads. The maps of
// counters do not change.
type counts struct {
	refused, outcomes, verdicts, admission map[string]*atomic.Uint64
	covers, known                          atomic.Uint64
	observe                                Observer

	mu   sync.Mutex
	last map[string]time.Time // of each outcome; guarded by mu
}

func newCounts(o Options) *counts {
	c := &counts{observe: o.Observe, last: make(map[string]time.Time)}
	for _, set := range []struct {
		into  *map[string]*atomic.Uint64
		words []string
	}{{&c.refused, door.Labels()}, {&c.admission, Admissions()}, {&c.outcomes, forward.Outcomes}, {&c.verdicts, o.Protocol.Reasons()}} {
		*set.into = make(map[string]*atomic.Uint64)
		for _, w := range set.words {
			(*set.into)[w] = new(atomic.Uint64)
		}
	}
	return c
}

func (c *counts) refuse(reason door.Reason) {
	c.refused[string(reason)].Add(1)
	if c.observe.Refused != nil {
		c.observe.Refused(string(reason))
	}
}

func (c *counts) admit(word string) {
	c.admission[word].Add(1)
	if c.observe.Admission != nil {
		c.observe.Admission(word)
	}
}

// add counts uploads by an outcome or a target's reason. A word that is neither is one
// that an earlier version of the software has counted by.
func (c *counts) add(word string, n uint64, at time.Time) {
	if n == 0 {
		return
	}
	found := false
	for _, set := range []map[string]*atomic.Uint64{c.outcomes, c.verdicts} {
		if counter := set[word]; counter != nil {
			counter.Add(n)
			found = true
		}
	}
	if !found {
		return
	}
	c.mu.Lock()
	c.last[word] = at
	c.mu.Unlock()
	if c.observe.Uploads != nil {
		c.observe.Uploads(word, n)
	}
}

func (c *counts) lastOf(word string) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[word]
}
