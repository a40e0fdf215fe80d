package rows

import "sync"

// A Round is one of a task, which is given by its row.
type Round struct {
	Task   int64
	Number uint64
}

// Rounds are those whose marks a handle has found to be what was written; nobody else
// takes any away. The zero value is ready.
type Rounds struct {
	mu    sync.Mutex
	whole map[Round]bool
}

// Known reports whether a round was noted.
func (r *Rounds) Known(x Round) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.whole[x]
}

// Note notes a round.
func (r *Rounds) Note(x Round) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.whole == nil {
		r.whole = make(map[Round]bool)
	}
	r.whole[x] = true
}

// Drop forgets the rounds of a task.
func (r *Rounds) Drop(task int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for x := range r.whole {
		if x.Task == task {
			delete(r.whole, x)
		}
	}
}
