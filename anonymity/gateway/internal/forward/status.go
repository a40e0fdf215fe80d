package forward

import (
	"time"

	"github.com/starling-agg/starling/anonymity/gateway/internal/journal"
)

// Status is how far a forwarder is.
type Status struct {
	Held     int    // uploads that are not done with
	Waiting  uint64 // requests that wait for others to come, covers counted
	Requests uint64 // answered by targets since the start
	// when the oldest round that is not done with was closed; zero if there is none
	Oldest time.Time
	// Age is for how long that is held, in time that was seen to pass.
	Age time.Duration
	// Unknown are requests of routes of which their target says that it knows nothing.
	Unknown int
}

// Status says how far it is.
func (f *Forwarder) Status() Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := Status{Requests: f.requests}
	see := func(r *journal.Round) {
		if age := f.passed - r.Passed; s.Oldest.IsZero() || age > s.Age {
			s.Oldest, s.Age = r.Closed, age
		}
	}
	for _, q := range f.queues {
		if q.unknown {
			s.Unknown += q.requests()
		}
		for _, h := range q.held {
			s.Held += len(h.items)
			s.Waiting += uint64(h.round.Groups[h.group].Requests)
			see(h.round)
		}
		for _, b := range q.batches {
			s.Held += b.items
			for _, r := range b.rounds {
				if !b.done {
					see(r)
				}
			}
		}
	}
	return s
}
