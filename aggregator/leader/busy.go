package leader

import (
	"errors"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/dap"
)

// manyBusy is how many jobs of a task in a row its helper has to put off before the others
// wait as well. Fewer may be about the reports of these jobs alone.
const manyBusy = 4

// maxBusy bounds how long they wait, whatever the helper says.
const maxBusy = 30 * time.Second

// busy are the tasks whose helper puts off one job after the other, for want of room say.
// Each job would else be opened and verified again only to hear the same, and thousands may
// wait. Safe for concurrent use; the zero value is ready.
type busy struct {
	mu sync.Mutex
	m  map[dap.TaskID]putOff
}

type putOff struct {
	jobs  int // in a row
	until time.Time
}

// heard is told how a job of a task ended with its helper.
func (b *busy) heard(task dap.TaskID, err error, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var retry *peer.Retry
	if !errors.As(err, &retry) || retry.After <= 0 {
		delete(b.m, task)
		return
	}
	if b.m == nil {
		b.m = make(map[dap.TaskID]putOff)
	}
	p := b.m[task]
	if p.jobs++; p.jobs >= manyBusy {
		p.until = now.Add(min(retry.After, maxBusy))
	}
	b.m[task] = p
}

// tasks are those whose jobs wait now.
func (b *busy) tasks(now time.Time) (list []dap.TaskID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, p := range b.m {
		if now.Before(p.until) {
			list = append(list, id)
		}
	}
	return list
}
