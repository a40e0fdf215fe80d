package helper

import (
	"crypto/sha256"
	"errors"
	"net/http"

	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// continueJob takes a job one step further (DAP-18 section 4.5.4.2): the step after the current one, or the current one
// again with the same bytes, which gives the same answer.
func (h *Helper) continueJob(r *edge.Request) error {
	body, done, err := r.Body(dap.MediaAggregationJobContinueReq, h.opt.Limits.JobBody)
	defer done()
	if err != nil {
		return err
	}
	req, err := dap.ReadAggregationJobContinueReq(body)
	if err != nil {
		return edge.Malformed(err)
	}
	limits := dap.DefaultLimits()
	limits.MaxReports = h.opt.Limits.JobReports
	continues, err := dap.Collect(req.VerifyContinues(limits))
	if err != nil {
		return edge.Malformed(err)
	}
	res, err := h.resource(r, store.KindAggregation)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(body)
	mismatch := edge.Refuse(dap.ProblemStepMismatch, "the job is at another step")
	switch {
	case res.State == store.Failed:
		return res.Problem
	case res.State == store.Pending:
		return mismatch
	case req.Step == res.Step:
		// The same bytes get the same answer; the store compares and does nothing.
		if _, err := h.store.Advance(r.Context(), res, req.Step, digest, nil, nil); errors.Is(err, store.ErrStep) {
			return mismatch
		} else if err != nil {
			return err
		}
		return h.answerJob(r, res, http.StatusOK)
	case int(req.Step) != int(res.Step)+1:
		return mismatch
	case int(req.Step) >= h.engine(r.Task).rounds():
		return mismatch // all rounds are done
	}
	init, last, err := splitRounds(res.Response)
	if err != nil {
		return err
	}
	j, err := h.readJob(r.Task, init)
	if err != nil {
		return err
	}
	live, messages, dropped, err := j.match(last, continues)
	if err != nil {
		return err
	}
	leave, err := h.gate.Enter(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	out, err := h.engine(r.Task).next(r.Context(), j, req.Step, live, messages)
	if err != nil {
		return err
	}
	defer out.close()
	commit, reply := j.commit(out, live)
	if commit.Final {
		init = nil // the sealed reports go once nothing is computed from them any more
	}
	if dropped > 0 {
		commit.Rejected[dap.ReportDropped] += dropped
	}
	res.Response, err = h.store.Advance(r.Context(), res, req.Step, digest, commit, withInit(init, reply))
	if errors.Is(err, store.ErrStep) {
		return mismatch // another request was first
	}
	if err != nil {
		return err
	}
	res.Step = req.Step
	return h.answerJob(r, res, http.StatusOK)
}

// match finds the reports of a continuation among those that the last answer left open, whose order they must keep. The
// leader dropped those that are missing.
func (j *job) match(last []byte, continues []dap.VerifyContinue) (live []int, messages [][]byte, dropped uint64, err error) {
	at := make(map[dap.ReportID]int, len(j.inits))
	for i := range j.inits {
		at[j.inits[i].Metadata.ID] = i
	}
	next := 0
	for resp, err := range dap.VerifyResps(last, &dap.Limits{MaxReports: len(j.inits), MaxPayload: dap.DefaultLimits().MaxPayload}) {
		switch {
		case err != nil:
			return nil, nil, 0, err // our own stored bytes
		case resp.Type != dap.Continue:
		case next < len(continues) && continues[next].ID == resp.ID:
			live = append(live, at[resp.ID])
			messages = append(messages, continues[next].Payload)
			next++
		default:
			dropped++
		}
	}
	if next < len(continues) {
		return nil, nil, 0, edge.Refuse(dap.ProblemInvalidMessage, "a report is unknown, finished, there twice or out of order")
	}
	return live, messages, dropped, nil
}
