package leader

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/lease"
	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/internal/verify"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/vdaf"
)

// A work is one claimed segment on its way through one aggregation job.
type work struct {
	*store.SegmentJob
	task    *task.Task
	segment *segment.Segment // reports and batch read it
	reports []dap.Report
	batch   rounds.Job
	sent    []int    // reports in the request of the current step, ascending
	job     string   // id of the helper's job, once it has answered; empty if it did not say
	said    [][]byte // the helper's answers so far, where more than one may come
	asked   [][]byte // the requests that they answer
	conduct store.Conduct
}

// stepJob claims one segment and takes it as far as it goes. A failure of the work itself is written down with the claim
// and is no error of the pass.
func (l *Leader) stepJob(ctx context.Context) (bool, error) {
	if l.room.Work() != nil {
		return false, nil // claims, too, are written
	}
	if err := l.unreturned.retry(ctx); errors.Is(err, store.ErrNoRoom) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	claimed, err := l.store.ClaimSegments(ctx, l.opt.Clock.Now(), l.opt.Lease, 1, l.permits.Without(permit.Verify)...)
	if err != nil || len(claimed) == 0 {
		return false, err
	}
	w := &work{SegmentJob: claimed[0]}
	err = l.aggregate(ctx, w)
	if w.batch != nil {
		w.batch.Close()
	}
	if w.segment != nil {
		w.segment.Close()
	}
	switch {
	case err == nil:
		l.opt.Observe.Ended(aggregator.JobAggregation, aggregator.JobDone)
		l.wakeCollect()
		return true, nil
	case errors.Is(err, store.ErrStaleLease):
		return true, nil // somebody else has it
	case errors.Is(err, store.ErrUnknown):
		return true, err
	}
	return true, l.unreturned.giveBack(ctx, func(ctx context.Context) error { return l.giveBack(ctx, w, err) })
}

// quarantine is work that can neither be finished nor repeated, whatever the helper does.
type quarantine struct {
	code dap.ReportError
	why  string
}

func (e *quarantine) Error() string { return e.why }

// parked is work that the helper has ended without verdicts: by an answer that fits no
// request (DAP-18 section 4.5.3.1), by refusing all of the job, by being at another step.
// What becomes of acknowledged reports is not the helper's to decide.
type parked struct{ why string }

func (e *parked) Error() string { return e.why }

// errMismatch is an answer that tells nothing of what the helper did.
var errMismatch = &parked{"the helper's answer names other reports than the request, or in another order"}

// keyless is the answer of a helper that does not hold the verification key of the job:
// nothing was verified, and the job is repeated until the operators agree on their keys.
type keyless struct{ key uint8 }

func (e *keyless) Error() string {
	return fmt.Sprintf("the helper does not hold verification key %d; see that both sides have the same verify_keys", e.key)
}

// giveBack sets work aside, parks it or has it claimed again later, with the reason for
// the operator.
func (l *Leader) giveBack(ctx context.Context, w *work, cause error) error {
	ctx = context.WithoutCancel(ctx) // a claim is given back also when the service stops
	now := l.opt.Clock.Now()
	var q *quarantine
	if errors.As(cause, &q) {
		err := l.store.Quarantine(ctx, w.SegmentJob, q.code, q.why)
		if errors.Is(err, store.ErrStaleLease) {
			return nil // somebody else has it, and may have finished it under our hands
		}
		if err != nil {
			return err
		}
		l.backlog.segments.Add(-int64(w.Segment.Count))
		l.opt.Log.Error("segment quarantined", "task", w.Task, "reports", w.Segment.Count, "why", q.why)
		l.opt.Observe.Ended(aggregator.JobAggregation, aggregator.JobFailed)
		l.removeFile(w)
		return nil
	}
	var p *parked
	if errors.As(cause, &p) {
		err := l.store.Park(ctx, w.SegmentJob, cause.Error(), now)
		if errors.Is(err, store.ErrStaleLease) {
			return nil
		}
		if err != nil {
			return err
		}
		l.opt.Log.Error("segment parked until the operator decides", "task", w.Task, "reports", w.Segment.Count, "why", cause.Error())
		l.opt.Observe.Ended(aggregator.JobAggregation, aggregator.JobFailed)
		l.wakeCollect() // a collection of another batch may go on
		return l.readHolds(ctx)
	}
	l.opt.Observe.Ended(aggregator.JobAggregation, aggregator.JobAgain)
	wait := lease.Backoff(w.Lease.Attempts, l.opt.BackOff, l.opt.MaxBackOff)
	var retry *peer.Retry
	var later *deferred
	if errors.As(cause, &retry) {
		l.mending.suspect(w.Task)
	}
	var refused *peer.Refused
	switch {
	case errors.As(cause, &later):
		wait = max(later.after, l.opt.Poll)
	case errors.As(cause, &refused) && refused.Fenced():
		wait = min(wait, l.opt.Agree)
		l.agreeNow(w.Task)
	case errors.As(cause, &retry) && retry.After > 0:
		wait = max(l.opt.BackOff, retry.After) // it is there, and says when it will have room
	case errors.Is(cause, store.ErrNoRoom):
		wait = l.opt.BackOff
	case errors.Is(cause, context.Canceled):
		wait = 0
	}
	l.opt.Log.Warn("aggregation job will be repeated", "task", w.Task, "reports", w.Segment.Count,
		"attempt", w.Lease.Attempts, "why", cause.Error())
	err := l.store.RetrySegment(ctx, w.SegmentJob, now.Add(wait), cause.Error())
	if errors.Is(err, store.ErrStaleLease) {
		return nil
	}
	return err
}

// aggregate takes a claimed segment through its aggregation job.
func (l *Leader) aggregate(ctx context.Context, w *work) error {
	if w.task = l.tasks[w.Task]; w.task == nil {
		return fmt.Errorf("the task is not provisioned here any more")
	}
	if err := l.begin(ctx, w); err != nil {
		return err
	}
	accepted := w.accepted()
	for step := uint16(0); len(w.sent) > 0; step++ {
		body, digest, err := w.framed(step)
		if err != nil {
			return err
		}
		answer, err := l.exchange(ctx, w, accepted, step, body, digest)
		if errors.Is(err, errAhead) {
			if err := l.yield(ctx, w); err != nil {
				return err
			}
			break
		}
		if err != nil {
			return err
		}
		if err := w.take(answer); err != nil {
			var none *keyless
			if errors.As(err, &none) {
				l.forget(ctx, w) // so that the same request is a new job, once the key is there
			}
			return err
		}
		if l.engine.Rounds() > 1 {
			w.said, w.asked = append(w.said, answer), append(w.asked, body)
		}
	}
	if err := l.commit(ctx, w); err != nil {
		return err
	}
	l.forget(ctx, w)
	return nil
}

// forget has the helper drop its answer, which we shall not ask for again. Where that fails it keeps the answer for ever,
// which costs it space and nothing else.
func (l *Leader) forget(ctx context.Context, w *work) {
	if w.job == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askPeer)
	defer cancel()
	if err := l.helper.Delete(ctx, peer.AggregationJob(w.task, w.Segment.Name), w.job); err != nil {
		l.opt.Log.Info("the helper keeps a finished aggregation job", "task", w.Task, "why", err.Error())
	}
}

// begin reads a claimed segment, opens our shares and takes the VDAF's first step on all of its reports; those that are
// refused, or aggregated already, are left out of the job. A repetition leaves out the same ones.
//
// Step 8 of one report: from a claimed segment, to the leader's message to the helper.
func (l *Leader) begin(ctx context.Context, w *work) error {
	seg, err := segment.Open(l.opt.FS, w.Segment)
	if errors.Is(err, segment.ErrCorrupt) || errors.Is(err, fs.ErrNotExist) {
		return &quarantine{dap.ReportDropped, "the segment file is damaged or gone"}
	}
	if err != nil {
		return err
	}
	w.segment = seg
	n := seg.Len()
	w.reports = make([]dap.Report, n)
	in := make([]verify.Report, n)
	ids := make([]dap.ReportID, n)
	for i := range n {
		if w.reports[i], err = dap.ReadReport(seg.Report(i)); err != nil {
			return &quarantine{dap.InvalidMessage, "the segment holds what is no report"}
		}
		in[i].Share = w.reports[i].LeaderShare()
		ids[i] = w.reports[i].Metadata.ID
	}
	w.batch, err = l.engine.Begin(ctx, verify.Params{
		Task: w.task, Role: dap.RoleLeader, KeyID: w.task.KeyID, Keys: l.keys.Keyring(),
		Now: l.steady.Latest(), Skew: l.opt.Limits.ClockSkew,
	}, in)
	if err != nil {
		return err
	}
	seen, err := l.store.Seen(ctx, w.Task, ids)
	if err != nil {
		return err
	}
	for i := range n {
		switch {
		case w.Sent != nil && bit(w.Sent.Accepted, i):
			w.sent = append(w.sent, i) // whatever is thought of it now, the helper may have it
		case w.Sent != nil && !seen[i]:
			w.batch.Refuse(i, dap.ReportDropped) // no effect where it has a verdict, as it had at the first attempt
		case seen[i]:
			w.batch.Refuse(i, dap.ReportReplayed)
		case w.batch.Verdicts()[i] == 0:
			w.sent = append(w.sent, i)
		}
	}
	return nil
}

func bit(b []byte, i int) bool { return i/8 < len(b) && b[i/8]>>(i%8)&1 == 1 }

// accepted is the bitmap of the reports in the request.
func (w *work) accepted() []byte {
	b := make([]byte, (len(w.reports)+7)/8)
	for _, i := range w.sent {
		b[i/8] |= 1 << (i % 8)
	}
	return b
}

// request is the request of a step in a dialect. The same segment, reports and answers of
// the helper give the same bytes.
func (w *work) request(d dap.Dialect, step uint16) ([]byte, error) {
	if step > 0 {
		req := dap.AggregationJobContinueReq{Step: step}
		var err error
		for _, i := range w.sent {
			c := dap.VerifyContinue{ID: w.reports[i].Metadata.ID, Payload: w.batch.Message(i)}
			if req.Continues, err = c.Append(req.Continues); err != nil {
				return nil, err
			}
		}
		return d.AppendAggregationJobContinueReq(nil, &req)
	}
	req := dap.AggregationJobInitReq{VerificationKeyID: w.task.KeyID}
	var err error
	if w.task.Mode() == dap.LeaderSelected {
		if req.Extensions, err = req.Extensions.WithLeaderSelectedBatch(w.Batch.ID); err != nil {
			return nil, err
		}
	}
	inits := make([]dap.VerifyInit, len(w.sent))
	for k, i := range w.sent {
		inits[k] = dap.VerifyInit{ReportShare: w.reports[i].HelperShare(), Payload: w.batch.Message(i)}
	}
	if req.Inits, err = dap.AppendVerifyInits(nil, inits); err != nil {
		return nil, err
	}
	return d.AppendAggregationJobInitReq(nil, &req)
}

// framed is the request of a step as it is sent, and the digest of what it says, whoever
// frames it: an operator who has to correct a task's framing asks the helper for the same
// thing as before.
func (w *work) framed(step uint16) (body []byte, digest [sha256.Size]byte, err error) {
	if body, err = w.request(w.task.Dialect, step); err != nil {
		return nil, digest, err
	}
	if w.task.Dialect.Framing == dap.Standard {
		return body, sha256.Sum256(body), nil
	}
	plain, err := w.request(dap.Dialect{Version: w.task.Dialect.Version}, step)
	return body, sha256.Sum256(plain), err
}

// deferred is an answer that did not come in time.
type deferred struct{ after time.Duration }

func (e *deferred) Error() string { return "the helper has the job and has not finished it" }

// exchange gets the helper's answer to the request of a step: the stored one, where a later request was computed from it and
// may have been sent, or the helper's own.
func (l *Leader) exchange(ctx context.Context, w *work, accepted []byte, step uint16, body []byte, digest [32]byte) ([]byte, error) {
	if w.Sent != nil && step < w.Sent.Step {
		w.job = w.Sent.Location
		return w.Sent.Answers[step], nil
	}
	sent := &store.Sent{Accepted: accepted, Step: step, Digest: digest, Location: w.job, Answers: w.said}
	known := w.Sent != nil && w.Sent.Step == step
	if known {
		if w.Sent.Digest != sent.Digest {
			return nil, &quarantine{dap.ReportDropped, "the request cannot be built again: keys or configuration have changed"}
		}
		sent.Location = w.Sent.Location
	}
	// Verification may have used up much of the lease; asking the helper gets one of its own.
	if !known || w.Lease.Expires.Sub(l.opt.Clock.Now()) < l.opt.HelperTimeout+l.opt.Patience {
		if err := l.save(ctx, w, sent); err != nil {
			return nil, err
		}
	}
	if err := l.opt.Failpoints.Hit(FailBeforeSend); err != nil {
		return nil, err
	}
	answer, err := l.send(ctx, w, sent, body)
	var refused *peer.Refused
	if errors.As(err, &refused) && step == 0 && refused.Problem.Type == dap.ProblemStepMismatch {
		w.job = sent.Location
		return nil, errAhead
	}
	if errors.As(err, &refused) && refused.Definite() {
		return nil, &parked{refused.Error()}
	}
	if err != nil {
		return nil, err
	}
	return answer, l.opt.Failpoints.Hit(FailAfterSend)
}

// send asks the helper and waits for the answer.
func (l *Leader) send(ctx context.Context, w *work, sent *store.Sent, body []byte) ([]byte, error) {
	resource := peer.AggregationJob(w.task, w.Segment.Name)
	var reply *peer.Reply
	var err error
	if sent.Step == 0 {
		reply, err = l.helper.Ask(ctx, resource, sent.Location, body)
	} else if reply, err = l.advance(ctx, w, sent, body); err != nil {
		return nil, err
	}
	until := l.opt.Clock.Now().Add(l.opt.Patience)
	for err == nil && reply.Body == nil {
		if sent.Location != reply.ID {
			sent.Location = reply.ID
			if err := l.save(ctx, w, sent); err != nil {
				return nil, err
			}
		}
		wait := max(reply.RetryAfter, l.opt.Poll)
		if l.opt.Clock.Now().Add(wait).After(until) {
			return nil, &deferred{wait}
		}
		if err := l.sleep(ctx, wait); err != nil {
			return nil, err
		}
		reply, err = l.helper.Poll(ctx, resource, reply.ID, sent.Step)
	}
	if err != nil {
		return nil, err
	}
	w.job = reply.ID
	if sent.Step == 0 && reply.Step > 0 {
		return nil, errAhead
	}
	return reply.Body, nil
}

// errAhead: the job that the first request makes is at a later step. A client has sent the same reports twice, alone, so that another
// segment makes the same job, and went on with it.
var errAhead = errors.New("the helper's job is at a later step")

// yield leaves the job to the other segment: this one waits until that has come to its end, and finds its reports aggregated then.
func (l *Leader) yield(ctx context.Context, w *work) error {
	id := w.job
	w.job = "" // not ours to delete
	shared, err := l.store.Shared(ctx, w.SegmentJob, id)
	if err != nil {
		return err
	}
	if shared {
		return &peer.Retry{Err: errors.New("the job of another segment, of the same reports, is not over")}
	}
	ids := make([]dap.ReportID, len(w.sent))
	for k, i := range w.sent {
		ids[k] = w.reports[i].Metadata.ID
	}
	seen, err := l.store.Seen(ctx, w.Task, ids)
	if err != nil {
		return err
	}
	for k, i := range w.sent {
		if !seen[k] {
			return &parked{"the helper is out of step: it has gone on with the job, and we have not"}
		}
		w.batch.Refuse(i, dap.ReportReplayed)
	}
	w.sent = nil
	return nil
}

// advance posts a later step. A helper that has lost the job, or steps of it, is told it again from the beginning; where it then
// says anything else than it did, the two sides can agree no more.
func (l *Leader) advance(ctx context.Context, w *work, sent *store.Sent, body []byte) (*peer.Reply, error) {
	resource := peer.AggregationJob(w.task, w.Segment.Name)
	if sent.Location == "" {
		return nil, &parked{"the helper answered without a usable Location: the job has no name to continue by"}
	}
	reply, err := l.helper.Continue(ctx, resource, sent.Location, body)
	var refused *peer.Refused
	if !errors.As(err, &refused) || !refused.Behind() {
		return reply, err
	}
	id := ""
	for step, request := range w.asked {
		if step == 0 {
			reply, err = l.helper.Create(ctx, resource, request)
		} else {
			reply, err = l.helper.Continue(ctx, resource, id, request)
		}
		switch {
		case err != nil:
			return nil, err
		case reply.Body == nil:
			return nil, &deferred{max(reply.RetryAfter, l.opt.Poll)}
		case !bytes.Equal(reply.Body, w.said[step]):
			return nil, &parked{"the helper is out of step and answers otherwise than it did"}
		}
		id = reply.ID
	}
	if sent.Location != id {
		sent.Location = id
		if err := l.save(ctx, w, sent); err != nil {
			return nil, err
		}
	}
	return l.helper.Continue(ctx, resource, id, body)
}

func (l *Leader) save(ctx context.Context, w *work, sent *store.Sent) error {
	s := *sent
	if err := l.store.SaveSent(ctx, w.SegmentJob, &s, l.opt.Clock.Now().Add(l.opt.Lease)); err != nil {
		return err
	}
	w.Sent = &s
	return nil
}

func (l *Leader) sleep(ctx context.Context, d time.Duration) error {
	timer := l.opt.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C():
		return nil
	}
}

// take takes in the helper's answer: exactly the reports of the request, in its order,
// else it is errMismatch. One that cannot be read may have been cut on its way, so the
// request is repeated. What is left in w.sent goes into the next request.
func (w *work) take(body []byte) error {
	if w.conduct.Asked == 0 { // the first step has all of them
		w.conduct.Asked = uint64(len(w.sent))
	}
	limits := dap.DefaultLimits()
	limits.MaxReports = max(limits.MaxReports, len(w.sent)+1) // too many are a mismatch, and the body is bounded
	resps, err := dap.Collect(w.task.Dialect.VerifyResps(body, limits))
	if err != nil {
		return &peer.Retry{Err: errors.New("the answer is malformed")}
	}
	if len(resps) != len(w.sent) {
		return errMismatch
	}
	said := make([]rounds.Said, len(w.reports))
	for k, i := range w.sent {
		resp := &resps[k]
		if resp.ID != w.reports[i].Metadata.ID {
			return errMismatch
		}
		switch resp.Type {
		case dap.Reject:
			if resp.Error == dap.UnknownVerificationKeyID {
				return &keyless{w.task.KeyID}
			}
			w.batch.Refuse(i, resp.Error)
			if peersOwn(resp.Error) {
				w.conduct.Refused++
			}
		case dap.Continue:
			said[i] = rounds.Said{Kind: rounds.Message, Payload: resp.Payload}
		case dap.Finish:
			said[i] = rounds.Said{Kind: rounds.Finished}
		}
	}
	if err := w.batch.Take(said); err != nil {
		return err
	}
	w.sent = slices.DeleteFunc(w.sent, func(i int) bool {
		return w.batch.Verdicts()[i] != 0 || w.batch.Message(i) == nil
	})
	return nil
}

// commit adds what both aggregators verified to its batch, once, and removes the segment's file, in that order.
//
// Step 10 of one report: from the helper's answer, to the leader's batch, its sealed shares gone.
func (l *Leader) commit(ctx context.Context, w *work) error {
	w.conduct.Now = l.opt.Clock.Now()
	c := &store.Commit{Task: w.Task, Batches: []store.Batch{w.Batch}, Rejected: make(map[dap.ReportError]uint64), Conduct: &w.conduct}
	for i, code := range w.batch.Verdicts() {
		if code != 0 {
			c.Rejected[code]++
		} else {
			m := &w.reports[i].Metadata
			c.Candidates = append(c.Candidates, store.Candidate{ID: m.ID, Time: m.Time, Report: int32(i)})
		}
	}
	c.Fold = func(verdict []dap.ReportError) ([]*vdaf.AggShare, error) {
		keep := make([]bool, len(w.reports))
		for k, v := range verdict {
			keep[c.Candidates[k].Report] = v == 0
		}
		return w.batch.Fold(keep, nil, 1)
	}
	if err := l.opt.Failpoints.Hit(FailBeforeCommit); err != nil {
		return err
	}
	if err := l.store.CommitSegment(ctx, w.SegmentJob, c); err != nil {
		return err
	}
	l.backlog.segments.Add(-int64(len(w.reports)))
	l.rates.add(w.Task, uint64(len(w.reports)), l.opt.Clock.Now())
	if err := l.opt.Failpoints.Hit(FailAfterCommit); err != nil {
		return fmt.Errorf("%w: %w", store.ErrStaleLease, err) // committed: nothing to give back
	}
	l.removeFile(w)
	if w.conduct.Refused > 0 {
		return l.readHolds(ctx)
	}
	return nil
}

// removeFile removes the sealed shares of a segment that is finished or set aside.
func (l *Leader) removeFile(w *work) {
	if err := segment.Remove(l.opt.FS, w.Segment.Name); err != nil {
		l.opt.Log.Warn("a finished segment's file stays until the next start", "error", err)
	}
}
