// Package retire ends tasks of leader and helper whose last report can have come a
// retention ago, and erases what is kept of them.
//
// # What goes, and when
//
// Replay protection, collected results and the names of jobs have to stay for as long as
// anybody may rely on them: a report may be uploaded, and a result asked for again, long
// after it was made. So a task is kept until its interval has ended, the clock skew that
// reports are allowed has passed, and then the retention. A task that was closed counts as
// ended then. One without an interval has no end and is kept.
//
// With the first thing that goes, a replay could not be told from a new report any more.
// So the task is marked first, for good and in the store itself: from then on uploads are
// refused as report_dropped, all other requests as unrecognizedTask, and no commit
// enters, whatever the clock or the configuration say later. Counts and the ledger of
// releases stay for ever.
package retire

import (
	"context"
	"log/slog"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
)

// Every is how often a service looks for tasks to end.
const Every = time.Minute

// rows is how many rows one transaction erases: commits of other tasks wait for it.
const rows = 500

// At is when a task is retired whose last report can have come at end, zero for never, and
// that was closed then, zero for not yet; and false for one that never is. A negative
// retention keeps every task.
func At(end, closed time.Time, skew, retention time.Duration) (time.Time, bool) {
	if !end.IsZero() {
		end = end.Add(skew)
	}
	if !closed.IsZero() && (end.IsZero() || closed.Before(end)) {
		end = closed
	}
	if end.IsZero() || retention < 0 {
		return time.Time{}, false
	}
	return end.Add(retention), true
}

// A Store ends tasks; see [store.Tasks].
type Store interface {
	TaskState(ctx context.Context, task dap.TaskID) (store.TaskState, error)
	Retire(ctx context.Context, task dap.TaskID, now time.Time) error
	Sweep(ctx context.Context, task dap.TaskID, n int) (more bool, err error)
}

// Pass retires what is due and erases a bounded part of what is retired. It says whether
// there is more to erase, and when the next task is due, as far as is known now; zero for
// none.
func Pass(ctx context.Context, s Store, tasks *task.Table, now time.Time, skew, retention time.Duration, log *slog.Logger) (more bool, next time.Time, err error) {
	for id, head := range tasks.Heads() {
		state, err := s.TaskState(ctx, id)
		if err != nil {
			return more, next, err
		}
		if !state.Retired {
			at, ok := At(head.End, state.Closed, skew, retention)
			if ok && now.Before(at) && (next.IsZero() || at.Before(next)) {
				next = at
			}
			if !ok || now.Before(at) {
				continue
			}
			if err := s.Retire(ctx, id, now); err != nil {
				return more, next, err
			}
			log.Info("task retired: it ended a retention ago, and what was kept of it is erased", "task", id)
		}
		left, err := s.Sweep(ctx, id, rows)
		if err != nil {
			return more, next, err
		}
		more = more || left
	}
	return more, next, nil
}
