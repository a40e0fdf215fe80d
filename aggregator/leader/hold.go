package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// holds are the tasks that the store holds. The lock is held while the store is asked, so
// that a newer answer is never replaced by an older one.
type holds struct {
	mu sync.Mutex
	m  map[dap.TaskID]store.Hold
}

// readHolds asks the store which tasks are held, after all that may have held one or let it
// go on, and puts that on the board.
func (l *Leader) readHolds(ctx context.Context) error {
	l.held.mu.Lock()
	defer l.held.mu.Unlock()
	list, err := l.store.Holds(ctx)
	if err != nil {
		return err
	}
	before := l.held.m
	l.held.m = make(map[dap.TaskID]store.Hold, len(list))
	for _, h := range list {
		if !l.tasks.Has(h.Task) {
			continue
		}
		if gone, err := l.party.Retired(ctx, h.Task); err != nil {
			return err
		} else if gone {
			continue
		}
		l.held.m[h.Task] = h
		l.permits.Put(h.Task, permit.Hold, reason(h))
		if _, known := before[h.Task]; !known {
			l.opt.Log.Error("a task is held until a person lets it go on", "task", h.Task, "why", h.Why)
		}
	}
	for id := range before {
		if _, still := l.held.m[id]; !still {
			l.permits.Put(id, permit.Hold)
		}
	}
	return nil
}

// reason is a hold for the board. Where the helper is at fault, batches that it has not
// refused are released as ever.
func reason(h store.Hold) permit.Reason {
	since := h.Since.Format(time.RFC3339)
	if h.Person {
		return permit.Reason{Stops: permit.All, Why: "a person holds the task since " + since + ": " + h.Why,
			Do: "when it may go on: starling task resume leader.toml --task " + h.Task.Base64()}
	}
	return permit.Reason{Stops: permit.Take | permit.Verify, Why: "the task is held since " + since + " until you decide: " + h.Why,
		Do: status.Decide(h.Task.Base64())}
}

// peersOwn says whether a helper's verdict is about the helper and not about the report,
// whatever a stranger put into it: the batch that it has collected, or the task that is
// over there, is open here, where the report's time was held to the same rules. All other
// verdicts strangers can bring about, who write both shares, their key ids and their
// times themselves, or other implementations may have reasons of; however many there are,
// they hold no task.
func peersOwn(code dap.ReportError) bool {
	switch code {
	case dap.BatchCollected, dap.TaskExpired, dap.TaskNotStarted:
		return true
	}
	return false
}

// HoldTask holds a task, or all with none named, in the name of a person, over restarts:
// uploads are refused for now, no jobs run and nothing is released. It says how many tasks.
func (l *Leader) HoldTask(ctx context.Context, why string, tasks ...dap.TaskID) (n int, err error) {
	if tasks, err = l.chosen(tasks); err != nil {
		return 0, err
	}
	for _, id := range tasks {
		if gone, err := l.party.Retired(ctx, id); err != nil {
			return n, err
		} else if gone {
			continue
		}
		if err := l.store.HoldTask(ctx, id, why, l.opt.Clock.Now()); err != nil {
			return n, err
		}
		n++
	}
	return n, l.readHolds(ctx)
}

// Resume lets tasks go on, or all with none named: those that are held take uploads and run
// jobs again, and the jobs that are parked, which ended without verdicts, send the same request again or, with drop, are given up and counted as
// report_dropped. It says how many tasks were held and how many reports were parked.
func (l *Leader) Resume(ctx context.Context, drop bool, tasks ...dap.TaskID) (held int, reports uint64, err error) {
	if tasks, err = l.chosen(tasks); err != nil {
		return 0, 0, err
	}
	l.held.mu.Lock()
	for _, id := range tasks {
		if _, is := l.held.m[id]; is {
			held++
		}
	}
	l.held.mu.Unlock()
	if reports, err = l.store.Resume(ctx, tasks, drop); err != nil {
		return 0, 0, err
	}
	if err := l.readHolds(ctx); err != nil {
		return held, reports, err
	}
	l.wakeJobs()
	l.wakeCollect()
	return held, reports, l.store.Bury(ctx)
}

// ErrNoTask: a task that is to be held, or let go on, is not provisioned here.
var ErrNoTask = errors.New("leader: no such task")

// chosen are the tasks named, or all.
func (l *Leader) chosen(tasks []dap.TaskID) ([]dap.TaskID, error) {
	if len(tasks) == 0 {
		return l.party.TaskIDs(), nil
	}
	for _, id := range tasks {
		if !l.tasks.Has(id) {
			return nil, fmt.Errorf("%w: %s", ErrNoTask, id.Base64())
		}
	}
	return tasks, nil
}
