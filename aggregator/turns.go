package aggregator

import (
	"sync"
	"time"
)

// Turns are the processors on which the aggregators of one process verify, one block of
// reports after the other. Where more blocks wait than may be worked on, the next is of the
// aggregator that was worked for least, in time: one that has much to verify waits for
// itself, and not the others for it. [NewTurns] makes them.
type Turns struct {
	mu      sync.Mutex
	free    int
	members []*Turn
}

// A Turn is one aggregator's of [Turns]. Safe for concurrent use.
type Turn struct {
	turns   *Turns
	used    time.Duration // worked for it, since it was last idle at the least of the others
	worked  time.Duration // for it, since it joined
	at      int           // blocks that are worked on
	waiting []chan struct{}
}

// NewTurns returns turns on a number of processors, at least one.
func NewTurns(processors int) *Turns { return &Turns{free: max(1, processors)} }

// Join adds an aggregator.
func (t *Turns) Join() *Turn {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := &Turn{turns: t}
	t.members = append(t.members, m)
	return m
}

// Do calls f when it is the aggregator's turn, and returns when f has.
func (m *Turn) Do(f func()) {
	m.take()
	begin := time.Now()
	defer func() { m.give(time.Since(begin)) }()
	f()
}

// Worked is how long was worked for the aggregator, on all processors together.
func (m *Turn) Worked() time.Duration {
	m.turns.mu.Lock()
	defer m.turns.mu.Unlock()
	return m.worked
}

// take waits for the turn.
func (m *Turn) take() {
	t := m.turns
	t.mu.Lock()
	if m.idle() { // what it did not use it has not saved
		m.used = max(m.used, t.least())
	}
	if t.free > 0 { // then nobody waits
		t.free--
		m.at++
		t.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	m.waiting = append(m.waiting, turn)
	t.mu.Unlock()
	<-turn
}

// give ends a turn that took some time, and lets the next begin.
func (m *Turn) give(took time.Duration) {
	t := m.turns
	t.mu.Lock()
	defer t.mu.Unlock()
	m.used += took
	m.worked += took
	m.at--
	var next *Turn
	for _, other := range t.members {
		if len(other.waiting) > 0 && (next == nil || other.used < next.used) {
			next = other
		}
	}
	if next == nil {
		t.free++
		return
	}
	turn := next.waiting[0]
	next.waiting = next.waiting[1:]
	next.at++
	close(turn)
}

func (m *Turn) idle() bool { return m.at == 0 && len(m.waiting) == 0 }

// least is the least that was worked for one that is not idle; zero where all are. The
// caller holds mu.
func (t *Turns) least() (used time.Duration) {
	found := false
	for _, m := range t.members {
		if !m.idle() && (!found || m.used < used) {
			used, found = m.used, true
		}
	}
	return used
}
