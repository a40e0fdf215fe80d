package room

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator"
)

// ErrStored: as many bytes are stored as may be.
var ErrStored = errors.New("the quota of bytes stored is used up")

// A Quota holds an aggregator to what it may take of a machine that it shares. All that it
// says costs a few instructions, for a flood asks it. Safe for concurrent use.
type Quota struct {
	most aggregator.Quota
	now  func() time.Time

	requests atomic.Int64 // under way

	mu   sync.Mutex
	left float64   // reports that may come now; below 0: come too early
	at   time.Time // when that was so

	tasks  atomic.Int64  // live, as last read
	stored atomic.Int64  // bytes, as last read, less what had come in before
	came   atomic.Uint64 // bytes that were acknowledged since the start
}

// NewQuota returns what holds an aggregator to most, by a clock.
func NewQuota(most aggregator.Quota, now func() time.Time) *Quota {
	return &Quota{most: most, now: now, left: float64(most.ReportsPerSecond), at: now()}
}

// Enter says whether a request may begin; [Quota.Leave] must then be called.
func (q *Quota) Enter() bool {
	if n := q.requests.Add(1); q.most.Requests > 0 && n > int64(q.most.Requests) {
		q.requests.Add(-1)
		return false
	}
	return true
}

// Leave is called when a request that began has ended.
func (q *Quota) Leave() { q.requests.Add(-1) }

// Early is how long reports have to wait for what came before them; zero: they may come.
// One request may bring more reports than there is time for; those after it wait for all.
func (q *Quota) Early() time.Duration {
	if q.most.ReportsPerSecond == 0 {
		return 0
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pass()
	if q.left > 0 {
		return 0
	}
	return max(time.Millisecond, time.Duration((1-q.left)/float64(q.most.ReportsPerSecond)*float64(time.Second)))
}

// Came counts the reports of a request that was taken.
func (q *Quota) Came(reports int) {
	if q.most.ReportsPerSecond == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.pass()
	q.left -= float64(reports)
}

// pass adds what the time since the last look allows, and no more than a second's. The
// caller holds mu.
func (q *Quota) pass() {
	now, rate := q.now(), float64(q.most.ReportsPerSecond)
	if passed := now.Sub(q.at); passed > 0 {
		q.left = min(rate, q.left+rate*min(passed.Seconds(), 1e9))
	}
	q.at = now // a clock that was put back allows nothing, and keeps nobody waiting for it
}

// Acknowledged counts bytes of reports that became durable.
func (q *Quota) Acknowledged(bytes int64) { q.came.Add(uint64(bytes)) }

// Read keeps what read has found in the store: live tasks and bytes, and how many of the
// acknowledged bytes no row names yet. Reports that come meanwhile may count twice until the
// next reading, and are never left out.
func (q *Quota) Read(read func() (tasks int, bytes int64, err error)) error {
	before := q.came.Load()
	tasks, bytes, err := read()
	if err != nil {
		return err
	}
	q.tasks.Store(int64(tasks))
	q.stored.Store(bytes - int64(before))
	return nil
}

// Room says whether more may be stored: nil, or [ErrStored].
func (q *Quota) Room() error {
	if n := q.bytes(); q.most.BytesStored > 0 && n >= q.most.BytesStored {
		return fmt.Errorf("%w: %d bytes, and no more than %d may be (quota.bytes_stored)", ErrStored, n, q.most.BytesStored)
	}
	return nil
}

func (q *Quota) bytes() int64 { return max(0, q.stored.Load()+int64(q.came.Load())) }

// Used is how much of each is used, tasks and bytes as they were read last.
func (q *Quota) Used() aggregator.Quota {
	used := aggregator.Quota{Tasks: int(q.tasks.Load()), BytesStored: q.bytes(), Requests: int(q.requests.Load())}
	if rate := q.most.ReportsPerSecond; rate > 0 {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.pass()
		used.ReportsPerSecond = rate - int(q.left)
	}
	return used
}
