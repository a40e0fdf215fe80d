package helper

import (
	"context"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/agreement"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/dap"
)

// compare answers a leader that compares with us what both hold; see package agreement.
func (h *Helper) compare(ctx context.Context, ids []dap.TaskID, in *agreement.Message) (*agreement.Message, error) {
	now := h.opt.Clock.Now()
	return h.book.Answer(ctx, ids, in, agreement.Service{
		Now: agreement.Millis(now), Skew: uint32(h.opt.Limits.ClockSkew / time.Second),
		JobBytes: uint64(h.opt.Limits.JobBody), JobReports: uint32(h.opt.Limits.JobReports),
	}, now)
}

// guarded is f for requests that come from a leader that holds the same, while the task is
// kept from none of the acts.
func (h *Helper) guarded(acts permit.Act, f edge.Handler) edge.Handler {
	return edge.Kept(h.party.States, h.store, edge.Fenced(h.book, func(r *edge.Request) error {
		if err := edge.Stopped(h.permits.May(r.Task.ID, acts), "this task waits for an operator"); err != nil {
			return err
		}
		return f(r)
	}))
}

// waits says whether what is stored of a task has to wait: until its leader has come in
// this life of the helper, with which keys may have changed, and while it is kept from
// the acts.
func (h *Helper) waits(id dap.TaskID, acts permit.Act) bool {
	return h.tasks.Has(id) && (!h.book.Passed(id) || h.permits.May(id, acts) != nil)
}
