package edge

import (
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
)

// CheckBatch checks that an interval is one of which the task may release something, at
// some time.
func CheckBatch(t *task.Task, batch dap.Interval) error {
	if !batch.Valid() {
		return Refuse(dap.ProblemBatchInvalid, "the interval is empty or its end overflows")
	}
	if err := t.Calendar.Check(batch); err != nil {
		return Refuse(dap.ProblemBatchInvalid, err.Error())
	}
	return nil
}

// CheckCollection checks what leader and helper alike check of a collection job request
// (DAP-18 section 4.6.1); whether the batch was collected before is the store's to say.
func CheckCollection(t *task.Task, req *dap.CollectionJobReq) error {
	if req.Query.Mode != t.Mode() {
		return Refuse(dap.ProblemInvalidMessage, "the query has another batch mode than the task")
	}
	if len(req.AggParam) > 0 {
		return Refuse(dap.ProblemInvalidAggregationParameter, "this VDAF takes no aggregation parameter")
	}
	if !req.Extensions.Increasing() {
		return Refuse(dap.ProblemInvalidExtension, "extensions are out of order")
	}
	if unknown := req.Extensions.Unknown(); unknown != nil {
		return Unsupported(unknown)
	}
	if t.Mode() == dap.TimeInterval {
		return CheckBatch(t, req.Query.Interval)
	}
	return nil
}
