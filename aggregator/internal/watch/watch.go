// Package watch turns what the store knows of a task into its status, for leader and
// helper alike.
package watch

import (
	"context"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// maxBatches is how many batches a status lists.
const maxBatches = 50

// Task reads the status of one task. retires is when it will be retired, zero for never.
func Task(ctx context.Context, s store.Watch, t *task.Task, now, retires time.Time) (*status.Task, error) {
	counts, err := s.Counts(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	batches, err := s.Batches(ctx, t.ID, maxBatches)
	if err != nil {
		return nil, err
	}
	stuck, err := s.Stuck(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	kept, resealed, err := s.Shares(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	state, err := s.TaskState(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	st := &status.Task{
		ID: t.ID.Base64(), Phase: phase(t, now), BatchMode: t.Mode().String(), MinBatch: t.Config.MinBatchSize,
		TimePrecision: uint64(t.Precision()),
		Counts: status.Counts{
			Acknowledged: counts.Acknowledged, Waiting: counts.Waiting, Aggregated: counts.Aggregated,
			Collected: counts.Collected, Rejected: names(counts.Rejected), Refused: names(counts.Refused),
		},
		KeptShares: kept, Resealed: resealed, Done: counts.Aggregated,
	}
	if state.Retired {
		st.Phase = status.Retired
	} else {
		st.RetiresAt = retires.UTC()
	}
	for _, n := range counts.Rejected {
		st.Done += n
	}
	st.Total = max(st.Done+counts.Waiting, counts.Acknowledged)
	for _, b := range batches {
		v := status.Batch{
			Start: uint64(b.Batch.Start), State: [...]string{"open", "draining", "closed"}[b.State],
			Verified: b.Verified, Waiting: b.Waiting, Kept: b.Kept,
		}
		if t.Mode() == dap.LeaderSelected {
			v.ID = b.Batch.ID.Base64()
		}
		st.Batches = append(st.Batches, v)
	}
	for _, w := range stuck {
		st.Stuck = append(st.Stuck, status.Stuck{
			Reports: w.Reports, Attempts: w.Attempts, Quarantined: w.Quarantined, Parked: w.Parked, Why: w.Why, Next: w.Next,
		})
	}
	return st, nil
}

func phase(t *task.Task, now time.Time) string {
	interval, bounded := t.Interval()
	unit, err := t.Precision().At(now)
	switch {
	case !bounded || err != nil:
		return status.Running
	case interval.Before(unit):
		return status.NotStarted
	case interval.After(unit):
		return status.Over
	}
	return status.Running
}

// names puts counts under the names of the registry.
func names(m map[dap.ReportError]uint64) map[string]uint64 {
	out := make(map[string]uint64, len(m))
	for code, n := range m {
		if n > 0 {
			out[code.String()] = n
		}
	}
	return out
}
