package helper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// CloseTask ends a task for new reports, for good: its leader hears of it when the two
// compare themselves next, and closes it too. Jobs of reports that it has acknowledged may
// come until it says that none waits. Again is harmless: the first closing holds. A task
// that is not registered is an *[aggregator.TaskError].
func (h *Helper) CloseTask(ctx context.Context, id dap.TaskID, by, why string) (c status.Closed, err error) {
	first, err := h.party.Close(ctx, id, by, why)
	if errors.Is(err, store.ErrNotFound) {
		return c, &aggregator.TaskError{Fault: aggregator.TaskUnknown, Task: id, Detail: "nobody has added it"}
	} else if err != nil {
		return c, fmt.Errorf("helper: close a task: %w", err)
	}
	c.ClosedTask = status.ClosedTask{At: first.At, By: first.By, Why: first.Why}
	return c, nil
}

// closing refuses a new job of a task that was closed. One that is there is answered: the
// answer may have been lost, and both count the reports or neither does.
func (h *Helper) closing(r *edge.Request, body []byte) error {
	closed := r.State.Closed
	if closed.IsZero() || h.book.Takes(r.Task.ID, closed, h.steady.Now(), h.jobsCome()) {
		return nil
	}
	known, err := h.store.HasJob(r.Context(), r.Task.ID, r.ChosenID(), body)
	if known || err != nil {
		return err
	}
	return edge.Refuse(peer.ProblemClosed, "the task was closed, and takes no new reports; what it has verified can be collected until it is retired")
}

// jobsCome is by when after a closing a leader has come with every job.
func (h *Helper) jobsCome() time.Duration {
	if s := h.opt.KeySchedule; s != nil {
		return cmp.Or(s.Delay, keyset.DefaultDelay)
	}
	return keyset.DefaultDelay
}
