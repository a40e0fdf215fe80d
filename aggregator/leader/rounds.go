package leader

import (
	"bytes"
	"context"
	"errors"

	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

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
