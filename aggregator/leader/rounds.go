package leader

import (
	"bytes"
	"context"
	"errors"

	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// Prio3 and PINE take one round: what is here is for VDAFs of several. With them leader and
// helper keep what they have said to each other until the job is over; see package rounds.

// An exchange is a request and its answer.
type exchange struct{ asked, said []byte }

// answers are the helper's so far.
func (w *work) answers() [][]byte {
	var all [][]byte
	for _, x := range w.past {
		all = append(all, x.said)
	}
	return all
}

// continuation is the request of a step after the first.
func (w *work) continuation(d dap.Dialect, step uint16) ([]byte, error) {
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

// A laterStep error: the job that the first request makes is at a later step. A client has
// sent the same reports twice, alone, so that another job here makes the same one
// there, and went on with it.
type laterStep struct {
	said []byte // the helper's answer to the last step; nil where it was not told
	// again is the job that was made once more, to be deleted: the other segment's was,
	// when it was over.
	again string
}

func (*laterStep) Error() string { return "the helper's job is at a later step" }

// isAhead says whether the helper has refused a first request with that.
func isAhead(err error, step uint16) bool {
	var refused *peer.Refused
	return step == 0 && errors.As(err, &refused) && refused.Problem.Type == dap.ProblemStepMismatch
}

// yield leaves the job to the other one here: this one waits until that has come to its
// end, and finds its reports aggregated then, or refused.
func (l *Leader) yield(ctx context.Context, w *work, at *laterStep) error {
	id := w.helpers
	w.helpers = "" // not ours to delete
	shared, err := l.store.Shared(ctx, w.Job, id)
	if err != nil {
		return err
	}
	if shared {
		return &peer.Retry{Err: errors.New("the job of another, of the same reports, is not over")}
	}
	ids := make([]dap.ReportID, len(w.sent))
	for k, i := range w.sent {
		ids[k] = w.reports[i].Metadata.ID
	}
	seen, err := l.store.Seen(ctx, w.Task, ids)
	if err != nil {
		return err
	}
	counted := at.counted(w.task.Dialect, len(ids))
	for k, i := range w.sent {
		// A report that the helper has counted and this leader has not was not refused:
		// the two are apart.
		if !seen[k] && counted(ids[k]) {
			return &parked{"the helper is out of step: it has gone on with the job, and we have not"}
		}
		w.batch.Refuse(i, dap.ReportReplayed)
	}
	w.sent, w.helpers = nil, at.again
	return nil
}

// counted says of each report of the job whether the helper has aggregated it. A report
// that the helper would go on with is not, and nobody goes on with it. Where it was not
// told all may be.
func (s *laterStep) counted(d dap.Dialect, reports int) func(dap.ReportID) bool {
	finished, told := make(map[dap.ReportID]bool), false
	for resp, err := range d.VerifyResps(s.said, &dap.Limits{MaxReports: reports, MaxPayload: dap.DefaultLimits().MaxPayload}) {
		if err != nil {
			told = false
			break
		}
		finished[resp.ID], told = resp.Type == dap.Finish, true
	}
	return func(id dap.ReportID) bool { return finished[id] || !told }
}

// post sends the request of a step. The first makes the job.
func (l *Leader) post(ctx context.Context, w *work, sent *store.Sent, body []byte) (*peer.Reply, error) {
	if sent.Step > 0 {
		return l.advance(ctx, w, sent, body)
	}
	return l.helper.Ask(ctx, peer.AggregationJob(w.task, w.name()), sent.Location, body)
}

// advance posts a later step. A helper that has lost the job, or steps of it, is told it
// again from the beginning; where it then says anything else than it did, the two sides
// can agree no more.
func (l *Leader) advance(ctx context.Context, w *work, sent *store.Sent, body []byte) (*peer.Reply, error) {
	resource := peer.AggregationJob(w.task, w.name())
	if sent.Location == "" {
		return nil, &parked{"the helper answered without a usable Location: the job has no name to continue by"}
	}
	reply, err := l.helper.Continue(ctx, resource, sent.Location, body)
	var refused *peer.Refused
	if !errors.As(err, &refused) || !refused.Behind() {
		return reply, err
	}
	id := ""
	for step, x := range w.past {
		if step == 0 {
			reply, err = l.helper.Create(ctx, resource, x.asked)
		} else {
			reply, err = l.helper.Continue(ctx, resource, id, x.asked)
		}
		switch {
		case err != nil:
			return nil, err
		case reply.Body == nil:
			return nil, &deferred{max(reply.RetryAfter, l.opt.Poll)}
		case !bytes.Equal(reply.Body, x.said):
			w.helpers = sent.Location
			return nil, &laterStep{again: reply.ID}
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
