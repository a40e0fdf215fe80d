package helper

import (
	"crypto/sha256"
	"errors"
	"net/http"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
)

// continueJob takes a job one step further (DAP-18 section 4.5.4.2): the step after the
// current one, or the current one again with the same bytes, which gives the same answer.
func (h *Helper) continueJob(r *edge.Request) error {
	body, done, err := r.Body(dap.MediaAggregationJobContinueReq, h.opt.Limits.JobBody)
	defer done()
	if err != nil {
		return err
	}
	req, continues, err := h.readContinue(r.Task, body)
	if err != nil {
		return err
	}
	res, err := h.resource(r, store.KindAggregation)
	if err != nil {
		return err
	}
	digest := sha256.Sum256(body)
	switch {
	case res.State == store.Failed:
		return res.Problem
	case res.State == store.Pending:
		return outOfStep()
	case req.Step == res.Step:
		// The same bytes get the same answer; the store compares and does nothing.
		_, err = h.store.Advance(r.Context(), res, req.Step, digest, nil, nil)
	case int(req.Step) != int(res.Step)+1, int(req.Step) >= h.engine.Rounds():
		// not the next, or all rounds are done
		return outOfStep()
	default:
		err = h.advance(r, res, req.Step, digest, body, continues)
	}
	if errors.Is(err, store.ErrStep) { // other bytes, or another request was first
		return outOfStep()
	}
	if err != nil {
		return err
	}
	return h.answerJob(r, res, http.StatusOK)
}

func outOfStep() error {
	return edge.Refuse(dap.ProblemStepMismatch, "the job is at another step")
}

func (h *Helper) readContinue(t *task.Task, body []byte) (dap.AggregationJobContinueReq, []dap.VerifyContinue, error) {
	req, err := t.Dialect.ReadAggregationJobContinueReq(body)
	if err != nil {
		return req, nil, edge.Malformed(err)
	}
	limits := dap.DefaultLimits()
	limits.MaxReports = h.opt.Limits.JobReports
	continues, err := dap.Collect(req.VerifyContinues(limits))
	if err != nil {
		return req, nil, edge.Malformed(err)
	}
	if len(continues) == 0 { // its answer would be empty, which means deferred
		return req, nil, edge.Refuse(dap.ProblemInvalidMessage, "a step without reports")
	}
	return req, continues, nil
}

// advance computes the next step of a job from all that was said so far, and stores it
// with its answer.
func (h *Helper) advance(r *edge.Request, res *store.Resource, step uint16, digest [32]byte, body []byte, continues []dap.VerifyContinue) error {
	requests, last, err := splitRounds(res.Response)
	if err != nil {
		return err
	}
	if len(requests) == 0 {
		return outOfStep() // the job was over before its last round
	}
	j, err := h.readJob(r.Task, requests[0])
	if err != nil {
		return err
	}
	if !j.keyed() {
		return edge.Refuse(dap.ProblemInvalidMessage, "the job's verification key is gone")
	}
	live, dropped, err := j.match(last, continues)
	if err != nil {
		return err
	}
	leave, err := h.gate.Enter(r.Context())
	if err != nil {
		return err
	}
	defer leave()
	j.keys = h.keys.Opening(res.Created)
	defer j.keys.Release()
	run, err := h.begin(r.Context(), j)
	if err != nil {
		return err
	}
	defer run.Close()
	requests = append(requests, body)
	if err := j.replay(run, requests[1:]); err != nil {
		return err
	}
	commit, reply := j.commit(run, live)
	commit.Life = j.keys.Life()
	if commit.Final {
		requests = nil // the sealed reports go once nothing is computed from them any more
	}
	if dropped > 0 {
		commit.Rejected[dap.ReportDropped] += dropped
	}
	if err := h.opt.Failpoints.Hit(FailBeforeCommit); err != nil {
		return err
	}
	res.Response, err = h.store.Advance(r.Context(), res, step, digest, commit, withRequests(requests, reply))
	if errors.Is(err, store.ErrStep) {
		return err
	}
	if err != nil {
		return h.meanwhile(r, err)
	}
	h.opt.Observe.Ended(aggregator.JobAggregation, aggregator.JobDone)
	res.Step = step
	return h.opt.Failpoints.Hit(FailAfterCommit)
}

// replay takes a job that has just begun through the continuations that came since, the
// newest of which is last.
func (j *job) replay(run rounds.Job, continuations [][]byte) error {
	limits := dap.DefaultLimits()
	limits.MaxReports = len(j.inits)
	at := j.indices()
	for _, body := range continuations {
		req, err := j.task.Dialect.ReadAggregationJobContinueReq(body)
		if err != nil {
			return err // checked before it was stored
		}
		said := make([]rounds.Said, len(j.inits))
		for c, err := range req.VerifyContinues(limits) {
			if err != nil {
				return err
			}
			said[at[c.ID]] = rounds.Said{Kind: rounds.Message, Payload: c.Payload}
		}
		if err := run.Take(said); err != nil {
			return err
		}
	}
	return nil
}

// indices finds the reports of a job by their ids.
func (j *job) indices() map[dap.ReportID]int {
	at := make(map[dap.ReportID]int, len(j.inits))
	for i := range j.inits {
		at[j.inits[i].Metadata.ID] = i
	}
	return at
}

// match finds the reports of a continuation among those that the last answer left open,
// whose order they must keep. The leader dropped those that are missing.
func (j *job) match(last []byte, continues []dap.VerifyContinue) (live []int, dropped uint64, err error) {
	at := j.indices()
	next := 0
	limits := &dap.Limits{MaxReports: len(j.inits), MaxPayload: dap.DefaultLimits().MaxPayload}
	for resp, err := range j.task.Dialect.VerifyResps(last, limits) {
		switch {
		case err != nil:
			return nil, 0, err // our own stored bytes
		case resp.Type != dap.Continue:
		case next < len(continues) && continues[next].ID == resp.ID:
			live = append(live, at[resp.ID])
			next++
		default:
			dropped++
		}
	}
	if next < len(continues) {
		return nil, 0, edge.Refuse(dap.ProblemInvalidMessage, "a report is unknown, finished, there twice or out of order")
	}
	return live, dropped, nil
}
