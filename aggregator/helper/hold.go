package helper

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/release"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// holdPoll is how long the leader of a held batch is told to wait: an operator has to act.
const holdPoll = time.Minute

// holds are the requests for shares of batches that are held, by resource id. The
// expected number changes with a restart only, so a life asks itself once. Safe for
// concurrent use; the zero value is ready.
type holds struct {
	mu sync.Mutex
	m  map[string]held
}

type held struct {
	task dap.TaskID
	status.Held
}

func (h *holds) has(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, ok := h.m[id]
	return ok
}

// put says whether the id is new.
func (h *holds) put(id string, v held) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.m[id]; ok {
		return false
	}
	if h.m == nil {
		h.m = make(map[string]held)
	}
	h.m[id] = v
	return true
}

func (h *holds) drop(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.m, id)
}

// of lists the held batches of a task, by time.
func (h *holds) of(task dap.TaskID) (out []status.Held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range h.m {
		if v.task == task {
			out = append(out, v.Held)
		}
	}
	slices.SortFunc(out, func(a, b status.Held) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Duration, b.Duration), cmp.Compare(a.Reports, b.Reports))
	})
	return out
}

// number is how many are held.
func (h *holds) number() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.m)
}

// hold leaves a stored request as it is and raises the alarm.
func (h *Helper) hold(res *store.Resource, why *release.Held) {
	if h.holds.put(res.ID, held{res.Task, why.Held}) {
		h.opt.Log.Error("a batch is held", "task", res.Task, "why", why.Why())
		h.opt.Observe.Ended(aggregator.JobShare, aggregator.JobHeld)
		if why.Rate != nil {
			h.rates.Note(res.Task, why.Rate)
		}
	}
}
