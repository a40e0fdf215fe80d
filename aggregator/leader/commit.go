package leader

import (
	"context"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// commit adds what both aggregators verified to its batch, once, and lets the sealed
// shares go.
//
// Step 10 of one report: from the helper's answer, to the leader's batch, its sealed
// shares gone.
func (l *Leader) commit(ctx context.Context, w *work) error {
	w.conduct.Now = l.opt.Clock.Now()
	c := &store.Commit{Task: w.Task, Batches: []store.Batch{w.Batch}, Rejected: make(map[dap.ReportError]uint64), Conduct: &w.conduct}
	for i, code := range w.batch.Verdicts() {
		if code != 0 {
			c.Rejected[code]++
		} else {
			m := &w.reports[i].Metadata
			c.Candidates = append(c.Candidates, store.Candidate{ID: m.ID, Time: m.Time, Report: int32(i)})
		}
	}
	c.Fold = func(verdict []dap.ReportError) ([]*vdaf.AggShare, error) {
		keep := make([]bool, len(w.reports))
		for k, v := range verdict {
			keep[c.Candidates[k].Report] = v == 0
		}
		return w.batch.Fold(keep, nil, 1)
	}
	if err := l.opt.Failpoints.Hit(FailBeforeCommit); err != nil {
		return err
	}
	if err := l.store.FinishJob(ctx, w.Job, c); err != nil {
		return err
	}
	l.backlog.named.Add(-int64(len(w.reports)))
	l.rates.add(w.Task, uint64(len(w.reports)), l.opt.Clock.Now())
	if err := l.opt.Failpoints.Hit(FailAfterCommit); err != nil {
		return fmt.Errorf("%w: %w", errCommitted, err)
	}
	if w.conduct.Refused > 0 {
		return l.readHolds(ctx)
	}
	return nil
}

// errCommitted: what failed came after the commit, and a restart makes up for it.
var errCommitted = errors.New("leader: the job is committed")
