package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// Add takes a task, which is durable and takes uploads when Add returns; made is false where
// the same one was there. The helper is asked at once whether it has it too, and nothing
// waits for its answer. A task that is refused is an *[aggregator.TaskError].
func (l *Leader) Add(ctx context.Context, in *aggregator.Provision) (made bool, err error) {
	id, made, err := l.party.Add(ctx, in)
	if err != nil {
		return made, fmt.Errorf("leader: %w", err)
	}
	l.agreeNow(id)
	return made, nil
}

// CloseTask ends a task for uploads, for good, and says what becomes of its reports. Again
// is harmless, and says how they stand now. It fails with [ErrNoTask].
func (l *Leader) CloseTask(ctx context.Context, id dap.TaskID, by, why string) (status.Closed, error) {
	return l.closeTask(ctx, id, by, why, false)
}

// GiveUp closes a task, or finds it closed, and ends the reports of it that wait to be
// verified, which count as report_dropped, but for those that the helper was asked about:
// what it answers counts. They are ended all at once; where that fails none is, the task
// stays closed, and the same call again does the rest.
func (l *Leader) GiveUp(ctx context.Context, id dap.TaskID, by, why string) (status.Closed, error) {
	return l.closeTask(ctx, id, by, why, true)
}

func (l *Leader) closeTask(ctx context.Context, id dap.TaskID, by, why string, drop bool) (c status.Closed, err error) {
	t := l.tasks.Get(id)
	if t == nil {
		return c, fmt.Errorf("%w: %s", ErrNoTask, id.Base64())
	}
	first, err := l.party.Close(ctx, id, by, why)
	if errors.Is(err, store.ErrNotFound) {
		return c, fmt.Errorf("%w: %s stands in the configuration alone", ErrNoTask, id.Base64())
	} else if err != nil {
		return c, fmt.Errorf("leader: close a task: %w", err)
	}
	c.At, c.By, c.Why = first.At, first.By, first.Why
	if drop {
		if c.Dropped, err = l.giveUp(ctx, id, by, why); err != nil {
			return c, fmt.Errorf("leader: the task is closed, and what waits is not given up: %w", err)
		}
	}
	st, err := l.taskStatus(ctx, t, l.opt.Clock.Now())
	if err != nil {
		return c, fmt.Errorf("leader: %w", err)
	}
	c.Waiting = st.Counts.Waiting
	l.agreeNow(id)
	l.wakeCollect()
	c.Ready, c.Short, err = l.collectable(ctx, t)
	return c, err
}

// giveUp ends the reports that wait of a closed task, and says how many.
func (l *Leader) giveUp(ctx context.Context, id dap.TaskID, by, why string) (reports uint64, err error) {
	if gone, err := l.party.Retired(ctx, id); gone || err != nil {
		return 0, err
	}
	// Uploads that were judged before the closing are in the log, or refused, once they are
	// through; and rows name what is in the log once that is sorted.
	if err := l.uploads.close().wait(ctx); err != nil {
		return 0, err
	}
	if _, err := l.intake.settle(ctx); segment.Blocks(err, id) {
		return 0, fmt.Errorf("acknowledged reports of it may be in a log: %w", err)
	}
	if reports, err = l.store.GiveUp(ctx, id); err != nil || reports == 0 {
		return 0, err
	}
	l.opt.Log.Warn("acknowledged reports of a closed task were given up, and count as report_dropped", "task", id, "reports", reports, "by", by, "why", why)
	if err := l.store.Bury(ctx); err != nil { // it is done again and again
		l.opt.Log.Warn("what was given up is not erased yet", "task", id, "error", err)
	}
	return reports, nil
}

// reportsWait says whether acknowledged reports of a task are to be verified.
func (l *Leader) reportsWait(ctx context.Context, id dap.TaskID) (bool, error) {
	if l.intake.mayHave(id) {
		return true, nil
	}
	counts, err := l.store.Counts(ctx, id)
	if err != nil {
		return false, fmt.Errorf("leader: %w", err)
	}
	return counts.Waiting > 0, nil
}

// collectable adds up the verified reports of open batches that have the minimum, and of those
// that have not. A status lists some batches, the last ones; this is of as many.
func (l *Leader) collectable(ctx context.Context, t *task.Task) (ready, short uint64, err error) {
	batches, err := l.store.Batches(ctx, t.ID, maxClosing)
	if err != nil {
		return 0, 0, fmt.Errorf("leader: %w", err)
	}
	for _, b := range slices.DeleteFunc(batches, func(b store.BatchStatus) bool { return b.State == store.Closed }) {
		if b.Verified >= max(t.Config.MinBatchSize, 1) {
			ready += b.Verified
		} else {
			short += b.Verified
		}
	}
	return ready, short, nil
}

// maxClosing is how many batches a closing looks at.
const maxClosing = 100_000
