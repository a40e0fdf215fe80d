package edge

import (
	"sync"
	"time"
)

// mostRefusals is how many refused requests of a second have an event in the log. Anybody
// can send thousands; all are in the metrics.
const mostRefusals = 50

// quiet keeps the log of refused requests short. Safe for concurrent use; the zero value is
// ready.
type quiet struct {
	mu     sync.Mutex
	second int64
	told   int
	untold uint64
}

// tell says whether a request that was refused at a time has an event, and how many before
// it had none since the last that had.
func (q *quiet) tell(at time.Time) (yes bool, untold uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s := at.Unix(); s != q.second {
		q.second, q.told = s, 0
	}
	if q.told == mostRefusals {
		q.untold++
		return false, 0
	}
	q.told++
	untold, q.untold = q.untold, 0
	return true, untold
}
