package helper

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// A job is an init request that passed the checks which concern all of it.
type job struct {
	task  *task.Task
	req   dap.AggregationJobInitReq
	inits []dap.VerifyInit
	batch dap.BatchID  // leader-selected
	keys  *keyset.Hold // while it runs
}

// readJob decodes and checks a whole init request (DAP-18 section 4.5.3.2); what concerns
// one report comes later.
func (h *Helper) readJob(t *task.Task, body []byte) (*job, error) {
	req, err := t.Dialect.ReadAggregationJobInitReq(body)
	if err != nil {
		return nil, edge.Malformed(err)
	}
	j := &job{task: t, req: req}
	if !j.keyed() && !t.Dialect.JudgesKey() {
		return nil, edge.Refuse(dap.ProblemInvalidMessage, "unknown verification key id")
	}
	var known []uint16
	if t.Mode() == dap.LeaderSelected {
		known = []uint16{dap.ExtLeaderSelectedBatchID}
	}
	if !req.Extensions.Increasing() {
		return nil, edge.Refuse(dap.ProblemInvalidMessage, "extensions are out of order")
	}
	if unknown := req.Extensions.Unknown(known...); unknown != nil {
		return nil, edge.Unsupported(unknown)
	}
	if t.Mode() == dap.LeaderSelected {
		var ok bool
		if j.batch, ok = req.LeaderSelectedBatch(); !ok {
			return nil, edge.Refuse(dap.ProblemInvalidMessage, "no batch id")
		}
	}
	if len(req.AggParam) > 0 {
		return nil, edge.Refuse(dap.ProblemInvalidAggregationParameter, "this VDAF takes no aggregation parameter")
	}
	limits := dap.DefaultLimits()
	limits.MaxReports = h.opt.Limits.JobReports
	if j.inits, err = dap.Collect(j.req.VerifyInits(limits)); err != nil {
		return nil, edge.Malformed(err)
	}
	if len(j.inits) == 0 {
		return nil, edge.Refuse(dap.ProblemInvalidMessage, "a job without reports")
	}
	seen := make(map[dap.ReportID]struct{}, len(j.inits))
	for i := range j.inits {
		seen[j.inits[i].Metadata.ID] = struct{}{}
	}
	if len(seen) < len(j.inits) {
		return nil, edge.Refuse(dap.ProblemInvalidMessage, "a report is there twice")
	}
	return j, nil
}

// keyed says whether we hold the verification key that the job names.
func (j *job) keyed() bool { return j.task.Keys[j.req.VerificationKeyID] != nil }

// postJob creates an aggregation job, or finds the one that the same bytes created.
func (h *Helper) postJob(r *edge.Request) error {
	body, done, err := r.Body(dap.MediaAggregationJobInitReq, h.opt.Limits.JobBody)
	defer done()
	if err != nil {
		return err
	}
	j, err := h.readJob(r.Task, body)
	if err != nil {
		return err
	}
	if !j.keyed() {
		// Nothing is stored of it: once we have the key, the same request is taken.
		_, reply := j.refuse(dap.UnknownVerificationKeyID)
		answer, err := reply(nil)
		if err != nil {
			return err
		}
		digest := sha256.Sum256(body)
		r.SetLocation(dap.AggregationJobsResource, base64.RawURLEncoding.EncodeToString(digest[:]), dap.StepQuery(0))
		return r.Reply(http.StatusCreated, dap.MediaAggregationJobResp, answer)
	}
	if err := h.closing(r, body); err != nil {
		return err
	}
	// Held from before the job is stored, so that no key ends between its coming and its
	// being known.
	j.keys = h.keys.Opening(h.steady.Now())
	defer j.keys.Release()
	deferred := h.opt.Deferred == Always
	res, _, err := h.store.Create(r.Context(), store.KindAggregation, r.Task.ID, r.ChosenID(), body, deferred, nil, h.steady.Now())
	if err != nil {
		return err
	}
	// A request that an earlier life left without its bytes no worker can finish: it is
	// finished here.
	if res.State == store.Pending && res.Body == nil {
		leave, err := h.gate.Enter(r.Context())
		if err != nil {
			return err
		}
		defer leave()
		if res.Response, err = h.runJob(r.Context(), res, j, body); err != nil {
			return h.meanwhile(r, err)
		}
		res.State = store.Ready
	}
	h.wakeUp()
	return h.answerJob(r, res, http.StatusCreated)
}

// meanwhile is err, or what to answer where a job was deleted while it ran: nothing of it
// was committed.
func (h *Helper) meanwhile(r *edge.Request, err error) error {
	if errors.Is(err, store.ErrNotFound) {
		if state, failed := h.store.TaskState(r.Context(), r.Task.ID); failed == nil && !state.Retired {
			return edge.Later("the job was deleted while it ran", h.opt.Poll)
		}
	}
	return blocked(err)
}

// answerJob shows a job as it stands.
func (h *Helper) answerJob(r *edge.Request, res *store.Resource, status int) error {
	r.SetLocation(dap.AggregationJobsResource, res.ID, dap.StepQuery(res.Step))
	if res.State == store.Ready && h.engine.Rounds() > 1 {
		_, answer, err := splitRounds(res.Response)
		if err != nil {
			return err
		}
		return r.Reply(status, dap.MediaAggregationJobResp, answer)
	}
	return h.answer(r, res, status, dap.MediaAggregationJobResp)
}

// answer shows a resource as it stands: its result, its problem, or an empty body while
// it is being worked on.
func (h *Helper) answer(r *edge.Request, res *store.Resource, status int, m dap.Media) error {
	switch res.State {
	case store.Failed:
		return res.Problem
	case store.Ready:
		return r.Reply(status, m, res.Response)
	}
	if h.holds.has(res.ID) {
		return r.Empty(status, holdPoll)
	}
	return r.Empty(status, h.opt.Poll)
}

// runJob verifies a job's reports, commits those that hold and are new, and stores the
// answer with them, in one transaction; only the first of several runs of one job has an
// effect, and all return the same bytes.
//
// Step 9 of one report: from the leader's aggregation job, to the helper's batch and an
// answer that cannot change.
func (h *Helper) runJob(ctx context.Context, res *store.Resource, j *job, init []byte) ([]byte, error) {
	// A job of the same bytes was answered and deleted: its reports are replays. It is
	// not verified anew, for a report that was refused the first time might be taken now,
	// by this aggregator alone.
	commit, reply := j.refuse(dap.ReportReplayed)
	var requests [][]byte // none are kept where no step follows
	switch {
	case res.Again:
	case !j.keyed():
		commit, reply = j.refuse(dap.UnknownVerificationKeyID)
	default:
		run, err := h.begin(ctx, j)
		if err != nil {
			return nil, err
		}
		defer run.Close()
		h.opt.Observe.Doubted(run.Uncredited())
		if commit, reply = j.commit(run, nil); !commit.Final {
			requests = [][]byte{init}
		}
		commit.Life = j.keys.Life()
	}
	if err := h.opt.Failpoints.Hit(FailBeforeCommit); err != nil {
		return nil, err
	}
	if h.engine.Rounds() > 1 {
		reply = withRequests(requests, reply)
	}
	body, err := h.store.CommitJob(ctx, res, commit, reply)
	if err != nil {
		return nil, err
	}
	h.opt.Observe.Ended(aggregator.JobAggregation, aggregator.JobDone)
	if err := h.opt.Failpoints.Hit(FailAfterCommit); err != nil {
		return nil, err
	}
	return body, nil
}

// commit is what a step adds to the store, and the answer that goes with it. live are the
// reports that the step had, in the order of the answer; nil means all.
func (j *job) commit(run rounds.Job, live []int) (*store.Commit, replier) {
	if live == nil {
		live = make([]int, len(j.inits))
		for i := range live {
			live[i] = i
		}
	}
	c := &store.Commit{Task: j.task.ID, Rejected: make(map[dap.ReportError]uint64), Final: run.Final()}
	errs := slices.Clone(run.Verdicts())
	bucket := make([]int32, len(j.inits))
	batches := make(map[dap.Time]int32)
	if j.task.Mode() == dap.LeaderSelected {
		c.Batches = []store.Batch{{ID: j.batch}}
	}
	for _, i := range live {
		m := &j.inits[i].Metadata
		if code := errs[i]; code != 0 {
			c.Rejected[code]++
			continue
		}
		if !c.Final {
			continue
		}
		if j.task.Mode() == dap.TimeInterval {
			at, ok := batches[m.Time]
			if !ok {
				at = int32(len(c.Batches))
				batches[m.Time] = at
				c.Batches = append(c.Batches, store.Batch{Start: m.Time})
			}
			bucket[i] = at
		}
		c.Candidates = append(c.Candidates, store.Candidate{ID: m.ID, Time: m.Time, Batch: bucket[i], Report: int32(i)})
	}
	refused := uint64(0)
	for _, n := range c.Rejected {
		refused += n
	}
	if refused == uint64(len(live)) {
		c.Final = true // nothing is left for a later step
		return c, j.reply(run, live, errs, nil)
	}
	c.Fold = func(verdict []dap.ReportError) ([]*vdaf.AggShare, error) {
		if len(verdict) != len(c.Candidates) {
			return nil, errors.New("helper: the store judged another number of reports")
		}
		keep := make([]bool, len(j.inits))
		for k, v := range verdict {
			keep[c.Candidates[k].Report] = v == 0
		}
		return run.Fold(keep, bucket, len(c.Batches))
	}
	return c, j.reply(run, live, errs, c.Candidates)
}

// reply makes the answer of a step from the verdicts so far and those of the store.
func (j *job) reply(run rounds.Job, live []int, errs []dap.ReportError, candidates []store.Candidate) replier {
	return func(verdict []dap.ReportError) ([]byte, error) {
		for k, v := range verdict {
			errs[candidates[k].Report] = v
		}
		resps := make([]dap.VerifyResp, 0, len(live))
		for _, i := range live {
			resp := dap.VerifyResp{ID: j.inits[i].Metadata.ID}
			switch {
			case errs[i] != 0:
				resp.Type, resp.Error = dap.Reject, errs[i]
			default:
				if resp.Payload = run.Message(i); resp.Payload != nil {
					resp.Type = dap.Continue
				} else {
					resp.Type = dap.Finish
				}
			}
			resps = append(resps, resp)
		}
		return j.task.Dialect.AppendVerifyResps(nil, resps)
	}
}

// refuse is what a job adds that is refused report by report, all for one reason, and its
// answer.
func (j *job) refuse(code dap.ReportError) (*store.Commit, replier) {
	c := &store.Commit{Task: j.task.ID, Final: true, Rejected: map[dap.ReportError]uint64{code: uint64(len(j.inits))}}
	return c, func([]dap.ReportError) ([]byte, error) {
		resps := make([]dap.VerifyResp, len(j.inits))
		for i := range resps {
			resps[i] = dap.VerifyResp{ID: j.inits[i].Metadata.ID, Type: dap.Reject, Error: code}
		}
		return j.task.Dialect.AppendVerifyResps(nil, resps)
	}
}

// A replier makes the answer of a step once the store has judged its candidates.
type replier = func(verdict []dap.ReportError) ([]byte, error)

// getJob answers a poll. A poll names the step that it waits for.
func (h *Helper) getJob(r *edge.Request) error {
	res, err := h.resource(r, store.KindAggregation)
	if err != nil {
		return err
	}
	if q := r.URL.Query(); q.Has("step") {
		step, err := dap.ParseStep(q.Get("step"))
		if err != nil {
			return edge.Malformed(err)
		}
		if step != res.Step {
			return edge.Refuse(dap.ProblemStepMismatch, "the job is at another step")
		}
	}
	return h.answerJob(r, res, http.StatusOK)
}

// resource finds what the path names.
func (h *Helper) resource(r *edge.Request, kind store.Kind) (*store.Resource, error) {
	unknown := edge.NotFound("", "no such resource")
	if kind == store.KindAggregation {
		unknown = edge.NotFound(dap.ProblemUnrecognizedAggregationJob, "")
	}
	id, ok := r.ResourceID()
	if !ok {
		return nil, unknown
	}
	res, err := h.store.Resource(r.Context(), kind, r.Task.ID, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, unknown
	}
	return res, err
}

// deleteOf forgets a resource; replay and collected marks stay, and that an aggregation
// job had its answer.
func (h *Helper) deleteOf(kind store.Kind) edge.Handler {
	return func(r *edge.Request) error {
		res, err := h.resource(r, kind)
		if err != nil {
			return err
		}
		if err := h.store.Delete(r.Context(), kind, r.Task.ID, res.ID); err != nil {
			return err
		}
		h.holds.drop(res.ID)
		return r.Empty(http.StatusNoContent, 0)
	}
}
