package helper

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/aggregator/internal/retire"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/internal/watch"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
)

// StatusHandler serves [Helper.Status] as JSON; it belongs on a local listener.
func (h *Helper) StatusHandler() http.Handler {
	return status.Handler(func(r *http.Request) (*status.Status, error) { return h.Status(r.Context()) })
}

// Status is where the helper stands.
func (h *Helper) Status(ctx context.Context) (*status.Status, error) {
	if err := h.count(ctx); err != nil {
		return nil, err
	}
	now := h.opt.Clock.Now()
	s, err := h.Standing(ctx)
	if err != nil {
		return nil, err
	}
	s.RefusedRequests = h.srv.Refused()
	for _, id := range slices.SortedFunc(maps.Keys(h.tasks), compareTasks) {
		st, err := watch.Task(ctx, h.store, h.tasks[id], now, h.retiresAt(h.tasks[id]))
		if err != nil {
			return nil, err
		}
		st.Held, st.Damaged = h.holds.of(id), h.damaged(id)
		st.Agreement, st.Stops = h.book.Status(id), h.permits.Status(id)
		s.Tasks = append(s.Tasks, *st)
	}
	return s, nil
}

// Standing is [Helper.Status] without its tasks.
func (h *Helper) Standing(context.Context) (*status.Status, error) {
	set, err := lost.Status(h.opt.FS)
	if err != nil {
		return nil, fmt.Errorf("helper: %w", err)
	}
	room := ""
	if err := h.room.Work(); err != nil {
		room = err.Error()
	}
	return &status.Status{Role: "helper", NoRoom: room, Now: h.opt.Clock.Now().UTC(), Keys: h.Keys(), Lost: set, Clock: h.steady.Held(),
		DataKeys: h.data.Missing(), NoiseKeys: watch.DataKeys(h.data, h.tasks, h.retired, h.retiresAt)}, nil
}

// retiresAt is when a task is retired, or zero.
func (h *Helper) retiresAt(t *task.Task) time.Time {
	at, _ := retire.At(t, h.opt.Limits.ClockSkew, h.opt.Retention)
	return at
}

func compareTasks(a, b dap.TaskID) int { return slices.Compare(a[:], b[:]) }

// progress tells the leader how far we are.
func (h *Helper) progress(r *edge.Request) error {
	st, err := watch.Task(r.Context(), h.store, r.Task, h.opt.Clock.Now(), h.retiresAt(r.Task))
	if err != nil {
		return err
	}
	body, err := json.Marshal(status.Peer{Done: st.Done, Total: st.Total, Held: len(h.holds.of(r.Task.ID)), Damaged: len(h.store.Damaged(r.Task.ID))})
	if err != nil {
		return err
	}
	r.W.Header().Set("Content-Type", "application/json")
	r.W.Header().Set("Cache-Control", "no-store")
	r.W.Write(body)
	return nil
}
