package leader

import (
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// ask sends the helper the request of a step and takes in the answer.
func (l *Leader) ask(ctx context.Context, w *work, step uint16) error {
	body, digest, err := w.framed(step)
	if err != nil {
		return err
	}
	answer, err := l.exchange(ctx, w, step, body, digest)
	var later *laterStep
	if errors.As(err, &later) {
		return l.yield(ctx, w, later)
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
		w.past = append(w.past, exchange{body, answer})
	}
	return nil
}

// request is the request of a step in a dialect. The same slices, reports and answers of
// the helper give the same bytes.
func (w *work) request(d dap.Dialect, step uint16) ([]byte, error) {
	if step > 0 {
		return w.continuation(d, step)
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

// exchange gets the helper's answer to the request of a step: the stored one, where a
// later request was computed from it and may have been sent, or the helper's own.
func (l *Leader) exchange(ctx context.Context, w *work, step uint16, body []byte, digest [32]byte) ([]byte, error) {
	if w.Sent != nil && step < w.Sent.Step {
		w.helpers = w.Sent.Location
		return w.Sent.Answers[step], nil
	}
	sent := &store.Sent{Accepted: w.accepted, Step: step, Digest: digest, Location: w.helpers, Answers: w.answers()}
	known := w.Sent != nil && w.Sent.Step == step
	if known {
		if w.Sent.Digest != sent.Digest {
			return nil, &quarantine{dap.ReportDropped, "the request cannot be built again: keys or configuration have changed"}
		}
		sent.Location = w.Sent.Location
	}
	// Verification may have used up much of the lease; asking the helper gets one of its
	// own, unless it is renewed anyway.
	if !known || !l.renews() && w.Lease.Expires.Sub(l.opt.Clock.Now()) < l.opt.HelperTimeout+l.opt.Patience {
		if err := l.save(ctx, w, sent); err != nil {
			return nil, err
		}
	}
	if err := l.opt.Failpoints.Hit(FailBeforeSend); err != nil {
		return nil, err
	}
	answer, err := l.send(ctx, w, sent, body)
	if isAhead(err, step) {
		w.helpers = sent.Location
		return nil, new(laterStep)
	}
	var refused *peer.Refused
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
	resource := peer.AggregationJob(w.task, w.name())
	reply, err := l.post(ctx, w, sent, body)
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
	w.helpers = reply.ID
	if sent.Step == 0 && reply.Step > 0 {
		return nil, &laterStep{said: reply.Body}
	}
	return reply.Body, nil
}

func (l *Leader) save(ctx context.Context, w *work, sent *store.Sent) error {
	s := *sent
	if err := l.store.SaveSent(ctx, w.Job, &s, l.opt.Clock.Now().Add(l.opt.Lease)); err != nil {
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
// request is repeated. The reports left in w.sent go into the next request.
func (w *work) take(body []byte) error {
	if w.conduct.Asked == 0 { // the first step has all of them
		w.conduct.Asked = uint64(len(w.sent))
	}
	limits := dap.DefaultLimits()
	// too many are a mismatch, and the body is bounded
	limits.MaxReports = max(limits.MaxReports, len(w.sent)+1)
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

// forget has the helper drop its answer, which we shall not ask for again. Where that
// fails it keeps the answer for ever, which costs it space and nothing else.
func (l *Leader) forget(ctx context.Context, w *work) {
	if w.helpers == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askPeer)
	defer cancel()
	if err := l.helper.Delete(ctx, peer.AggregationJob(w.task, w.name()), w.helpers); err != nil {
		l.opt.Log.Info("the helper keeps a finished aggregation job", "task", w.Task, "why", err.Error())
	}
}
