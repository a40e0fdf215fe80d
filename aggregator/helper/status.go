package helper

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/aggregator/internal/watch"
	"github.com/starling-agg/starling/aggregator/status"
)

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
	s.UnopenedTasks = h.tasks.Len() - len(h.tasks.Opened())
	for _, t := range h.party.OpenTasks() {
		id := t.ID
		retires, err := h.party.RetiresAt(ctx, t)
		if err != nil {
			return nil, err
		}
		st, err := watch.Task(ctx, h.store, t, now, retires)
		if err != nil {
			return nil, err
		}
		if st.Damaged, err = h.damaged(ctx, id); err != nil {
			return nil, err
		}
		if st.Closed, err = h.party.Closing(ctx, id); err != nil {
			return nil, err
		}
		st.Held, st.Rate = h.holds.of(id), h.rates.Last(id)
		st.Agreement, st.Stops = h.book.Status(id), h.permits.Status(id)
		s.Tasks = append(s.Tasks, *st)
	}
	return s, h.party.Replicas(ctx, s, h.replica())
}

// beat tells the other processes on the database how this one stands.
func (h *Helper) beat(ctx context.Context) (bool, error) {
	return false, h.party.Beat(ctx, h.replica())
}

// replica is how this process stands.
func (h *Helper) replica() status.Replica {
	ready := h.Readiness()
	return status.Replica{Takes: len(ready.Take.Reasons) == 0, NotTaking: ready.Take.Words(), Claims: h.gate.Working(), Refused: h.srv.Refused()}
}

// Standing is [Helper.Status] without its tasks.
func (h *Helper) Standing(ctx context.Context) (*status.Status, error) {
	set, err := lost.Status(h.opt.FS)
	if err != nil {
		return nil, fmt.Errorf("helper: %w", err)
	}
	room := ""
	if err := h.room.Work(); err != nil {
		room = err.Error()
	}
	if err := h.party.ReadQuota(ctx, nil); err != nil {
		return nil, err
	}
	noise, err := watch.DataKeys(ctx, h.data, h.store, h.tasks, h.party.Ends)
	if err != nil {
		return nil, err
	}
	return &status.Status{Role: "helper", NoRoom: room, Now: h.opt.Clock.Now().UTC(), Keys: h.Keys(), Lost: set, Clock: h.steady.Held(),
		DataKeys: h.data.Missing(), NoiseKeys: noise, NoMarks: h.party.Unmarked(), Quotas: h.party.Quotas(), Published: h.rates.Published()}, nil
}

// progress tells the leader how far we are.
func (h *Helper) progress(r *edge.Request) error {
	retires, err := h.party.RetiresAt(r.Context(), r.Task)
	if err != nil {
		return err
	}
	st, err := watch.Task(r.Context(), h.store, r.Task, h.opt.Clock.Now(), retires)
	if err != nil {
		return err
	}
	damaged, err := h.store.Damaged(r.Context(), r.Task.ID)
	if err != nil {
		return err
	}
	body, err := json.Marshal(status.Peer{Done: st.Done, Total: st.Total, Held: len(h.holds.of(r.Task.ID)), Damaged: len(damaged)})
	if err != nil {
		return err
	}
	r.W.Header().Set("Content-Type", "application/json")
	r.W.Header().Set("Cache-Control", "no-store")
	r.W.Write(body)
	return nil
}
