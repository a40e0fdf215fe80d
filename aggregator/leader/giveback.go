package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/lease"
	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
)

// quarantine is work that can neither be finished nor repeated, whatever the helper does.
type quarantine struct {
	code dap.ReportError
	why  string
}

func (e *quarantine) Error() string { return e.why }

// parked is work that the helper has ended without verdicts: by an answer that fits no
// request (DAP-18 section 4.5.3.1), by refusing all of the job, by being at another step.
// The helper does not decide over acknowledged reports.
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

// deferred is an answer that did not come in time.
type deferred struct{ after time.Duration }

func (e *deferred) Error() string { return "the helper has the job and has not finished it" }

// giveBack sets work aside, parks it or has it claimed again later, with the reason for
// the operator.
func (l *Leader) giveBack(ctx context.Context, w *work, cause error) error {
	ctx = context.WithoutCancel(ctx) // a claim is given back also when the service stops
	now := l.opt.Clock.Now()
	var q *quarantine
	if errors.As(cause, &q) {
		err := l.store.QuarantineJob(ctx, w.Job, q.code, q.why)
		if errors.Is(err, store.ErrStaleLease) {
			return nil // somebody else has it, and may have finished it under our hands
		}
		if err != nil {
			return err
		}
		l.backlog.named.Add(-int64(w.Reports()))
		l.opt.Log.Error("job quarantined", "task", w.Task, "reports", w.Reports(), "why", q.why)
		l.opt.Observe.Ended(aggregator.JobAggregation, aggregator.JobFailed)
		return nil
	}
	var p *parked
	if errors.As(cause, &p) {
		err := l.store.ParkJob(ctx, w.Job, cause.Error(), now)
		if errors.Is(err, store.ErrStaleLease) {
			return nil
		}
		if err != nil {
			return err
		}
		l.opt.Log.Error("job parked until the operator decides", "task", w.Task, "reports", w.Reports(), "why", cause.Error())
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
	case errors.As(cause, &refused) && (refused.Fenced() || refused.Closed()):
		wait = min(wait, l.opt.Agree)
		l.agreeNow(w.Task)
	case errors.As(cause, &retry) && retry.After > 0:
		wait = max(l.opt.BackOff, retry.After) // it is there, and says when it will have room
	case errors.Is(cause, store.ErrNoRoom):
		wait = l.opt.BackOff
	case l.party.Lacks(w.Task, cause): // another process may have the key, and this one claims none of these
		wait = 0
	case errors.Is(cause, context.Canceled):
		wait = 0
	}
	l.opt.Log.Warn("aggregation job will be repeated", "task", w.Task, "reports", w.Reports(),
		"attempt", w.Lease.Attempts, "why", cause.Error())
	err := l.store.RetryJob(ctx, w.Job, now.Add(wait), cause.Error())
	if errors.Is(err, store.ErrStaleLease) {
		return nil
	}
	return err
}
