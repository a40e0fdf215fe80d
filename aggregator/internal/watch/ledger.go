package watch

import (
	"context"
	"fmt"
	"sync"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// A Ledger tells an observer how the store's counts grow, over all tasks. The zero value
// is ready; it is safe for concurrent use.
type Ledger struct {
	mu   sync.Mutex
	told map[entry]uint64
}

type entry struct {
	stage  aggregator.Stage
	reason dap.ReportError
}

// Tell reads the counts, passes on by how much they grew since the last call, since ever
// the first time, and returns how many reports wait.
func (l *Ledger) Tell(ctx context.Context, s store.Watch, o *aggregator.Observer) (waiting uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c, err := s.Totals(ctx)
	if err != nil {
		return 0, fmt.Errorf("watch: %w", err)
	}
	now := map[entry]uint64{
		{stage: aggregator.StageAcknowledged}: c.Acknowledged,
		{stage: aggregator.StageAggregated}:   c.Aggregated,
		{stage: aggregator.StageCollected}:    c.Collected,
	}
	for code, n := range c.Rejected {
		now[entry{aggregator.StageRejected, code}] = n
	}
	for code, n := range c.Refused {
		now[entry{aggregator.StageRefused, code}] = n
	}
	for e, n := range now {
		if n > l.told[e] && o.Reports != nil {
			o.Reports(e.stage, e.reason, n-l.told[e])
		}
	}
	l.told = now
	return c.Waiting, nil
}
