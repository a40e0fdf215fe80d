package helper

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/release"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
)

// readShareReq decodes and checks a request for an aggregate share (DAP-18 section 4.6.4).
func readShareReq(t *task.Task, body []byte) (*dap.AggregateShareReq, store.Selection, error) {
	var sel store.Selection
	req, err := dap.ReadAggregateShareReq(body)
	if err != nil {
		return nil, sel, edge.Malformed(err)
	}
	// Unlike at the leader, which hears of it from the collector, these are faults of the
	// leader's message.
	switch {
	case len(req.CollectionJobReq.AggParam) > 0:
		return nil, sel, edge.Refuse(dap.ProblemInvalidMessage, "the aggregation parameter is not the one that was aggregated with")
	case req.BatchSelector.Mode != t.Mode():
		return nil, sel, edge.Refuse(dap.ProblemInvalidMessage, "the batch selector has another batch mode than the task")
	}
	if err := edge.CheckCollection(t, &req.CollectionJobReq); err != nil {
		return nil, sel, err
	}
	if !req.BatchSelector.Consistent(req.CollectionJobReq.Query) {
		return nil, sel, edge.Refuse(dap.ProblemBatchInvalid, "the batch selector does not answer the query")
	}
	if t.Mode() == dap.TimeInterval { // it may be less than the query
		if err := edge.CheckBatch(t, req.BatchSelector.Interval); err != nil {
			return nil, sel, err
		}
	}
	return &req, store.Selection{Interval: req.BatchSelector.Interval, ID: req.BatchSelector.BatchID}, nil
}

// postShare closes a batch and answers with our share of it, or finds the answer that the
// same bytes got.
func (h *Helper) postShare(r *edge.Request) error {
	body, done, err := r.Body(dap.MediaAggregateShareReq, h.opt.Limits.JobBody)
	defer done()
	if err != nil {
		return err
	}
	req, sel, err := readShareReq(r.Task, body)
	if err != nil {
		return err
	}
	if err := release.Allowed(r.Task, sel, h.steady.Now(), h.opt.Limits.ClockSkew); err != nil {
		return h.early(err)
	}
	deferred := h.opt.Deferred == Always
	res, made, err := h.store.Create(r.Context(), store.KindShare, r.Task.ID, r.ChosenID(), body, deferred, &sel, h.steady.Now())
	if errors.Is(err, store.ErrOverlap) || errors.Is(err, store.ErrOver) {
		return refusal(err)
	}
	if err != nil {
		return err
	}
	if !made {
		if err := h.again(r, res); err != nil {
			return err
		}
	}
	if res.State == store.Pending && res.Body == nil { // see postJob
		var held *release.Held
		res.Response, err = h.release(r.Context(), res, r.Task, req, sel)
		switch p := refusal(err); {
		case err == nil:
			res.State = store.Ready
		case errors.Is(err, store.ErrNotFound):
			return edge.Later("the same request was answered at the same time", h.opt.Poll)
		case errors.As(err, &held):
			// Stored with its bytes, so that a later life releases it if more is expected
			// then.
			if err := h.drop(r.Context(), res); err != nil {
				return err
			}
			if res, _, err = h.store.Create(r.Context(), store.KindShare, r.Task.ID, r.ChosenID(), body, true, &sel, h.steady.Now()); err != nil {
				return err
			}
			h.hold(res, held)
		case notYet(err): // the clock was put back, a data key has to be, or the issuer does not answer
			if err := h.drop(r.Context(), res); err != nil {
				return err
			}
			return h.early(err)
		case p != nil:
			// Nothing was closed: let the same bytes try again, once the leader and we
			// agree.
			if err := h.drop(r.Context(), res); err != nil {
				return err
			}
			return p
		default:
			return err
		}
	}
	h.wakeUp()
	r.SetLocation(dap.AggregateSharesResource, res.ID, "")
	return h.answer(r, res, http.StatusCreated, dap.MediaAggregateShare)
}

// maxEarly is how long a leader that came too early is told to wait at most: its clock
// and ours may differ.
const maxEarly = time.Minute

// notYet says whether a share may be released later: when its round is over by this clock,
// its data key is there, or the issuer says how many credentials there are.
func notYet(err error) bool {
	var gone *datakey.GoneError
	return errors.As(err, new(*release.Early)) || errors.As(err, new(*release.Uncounted)) || errors.As(err, new(*datakey.AheadError)) || errors.As(err, &gone) && gone.Lost
}

// early answers a request for the share of a batch that may not be released yet, and
// passes on every other error.
func (h *Helper) early(err error) error {
	var early *release.Early
	if !errors.As(err, &early) {
		if notYet(err) {
			h.opt.Log.Error("a share waits", "why", err)
			return edge.Later(err.Error(), maxEarly)
		}
		return err
	}
	return edge.Later(early.Error(), min(max(early.At.Sub(h.steady.Now()), h.opt.Poll), maxEarly))
}

// drop forgets a request for a share that closed nothing.
func (h *Helper) drop(ctx context.Context, res *store.Resource) error {
	err := h.store.Delete(ctx, store.KindShare, res.Task, res.ID)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

// release checks count, checksum and size, closes the batch and stores our share, in one
// transaction.
func (h *Helper) release(ctx context.Context, res *store.Resource, t *task.Task, req *dap.AggregateShareReq, sel store.Selection) ([]byte, error) {
	if err := h.opt.Failpoints.Hit(FailBeforeRelease); err != nil {
		return nil, err
	}
	body, err := release.Once(ctx, h.store, &release.Request{
		Task: t, Role: dap.RoleHelper, Kind: store.KindShare, Resource: res.ID,
		Asked: req.CollectionJobReq.Bytes(), Selection: sel, Count: req.ReportCount, Checksum: req.Checksum,
		Keys: h.data, Rates: &h.rates, Now: h.steady.Now(), Skew: h.opt.Limits.ClockSkew,
		Finish: func(share dap.HpkeCiphertext, _ store.Frozen) ([]byte, error) {
			return dap.AggregateShare{Ciphertext: share}.Append(nil)
		},
	})
	if err != nil {
		if refusal(err) != nil {
			h.opt.Observe.Ended(aggregator.JobShare, aggregator.JobFailed)
		}
		return nil, err
	}
	h.opt.Observe.Ended(aggregator.JobShare, aggregator.JobDone)
	if err := h.opt.Failpoints.Hit(FailAfterRelease); err != nil {
		return nil, err
	}
	return body, nil
}

// refusal is the problem that a leader gets for what the store refused, or nil for our
// own trouble.
func refusal(err error) *edge.Error {
	var order *correlated.OrderError
	var gone *datakey.GoneError
	var over *release.Over
	switch {
	case errors.As(err, &gone) && !gone.Lost:
		return edge.Refuse(dap.ProblemBatchInvalid, gone.Error())
	case errors.Is(err, store.ErrOverlap):
		return edge.Refuse(dap.ProblemBatchOverlap, "the batch overlaps one that was collected")
	case errors.As(err, &over):
		return edge.Refuse(dap.ProblemBatchInvalid, over.Error())
	case errors.Is(err, store.ErrOver):
		return edge.Refuse(dap.ProblemBatchInvalid, "the time in which views of this batch are released is over")
	case errors.Is(err, store.ErrTooSmall):
		return edge.Refuse(dap.ProblemInvalidBatchSize, "the batch is below the minimum size")
	case errors.As(err, &order):
		return edge.Refuse(dap.ProblemBatchInvalid, strings.TrimPrefix(order.Error(), "correlated: "))
	case errors.Is(err, store.ErrMismatch):
		return edge.Refuse(dap.ProblemBatchMismatch, "report count or checksum differ from the helper's")
	}
	return nil
}

// getShare answers a poll.
func (h *Helper) getShare(r *edge.Request) error {
	res, err := h.resource(r, store.KindShare)
	if err != nil {
		return err
	}
	if err := h.again(r, res); err != nil {
		return err
	}
	return h.answer(r, res, http.StatusOK, dap.MediaAggregateShare)
}

// again seals a share that was released to the key that the collector has by now; the
// leader asks for the same bytes, and hears the same share.
func (h *Helper) again(r *edge.Request, res *store.Resource) error {
	if res.State != store.Ready {
		return nil
	}
	response, sealed, err := release.Again(r.Context(), h.store, h.data, r.Task, dap.RoleHelper, res, h.steady.Now(),
		func(_ []byte, share dap.HpkeCiphertext) ([]byte, error) {
			return dap.AggregateShare{Ciphertext: share}.Append(nil)
		})
	if errors.As(err, new(*datakey.GoneError)) { // what was said before is as good as ever
		h.opt.Log.Error("a share cannot be sealed again", "task", res.Task, "why", err)
		return nil
	}
	if err != nil {
		return err
	}
	if sealed {
		h.opt.Log.Warn("a share was sealed again, to another key of the collector's", "task", res.Task)
	}
	res.Response = response
	return nil
}
