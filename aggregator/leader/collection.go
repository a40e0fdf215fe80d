package leader

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/releases"
)

// closedDetail says why a task is refused that a restore closed.
const closedDetail = "the server of this task was restored from a backup and takes and releases nothing more of it; its recipe is published again under another id"

// overDetail says why a view is refused that nobody asked for in time.
const overDetail = "the time in which views of this batch are released is over"

// remembers refuses a collector that has seen a release which this store has not made: it
// was put back, and what it would release now may have been released before.
func (l *Leader) remembers(r *edge.Request) error {
	text := r.Header.Get(releases.Header)
	if text == "" { // another's collector, or one that has nothing yet
		return nil
	}
	state, err := l.store.TaskState(r.Context(), r.Task.ID)
	if err != nil || state.ClosedIn != 0 { // nothing is released any more
		return err
	}
	seen, err := releases.ParseSeen(text)
	if err != nil {
		return edge.Refuse(dap.ProblemInvalidMessage, releases.Header+" is malformed")
	}
	chain, err := l.store.LedgerAt(r.Context(), r.Task.ID, seen.Length)
	switch {
	case errors.Is(err, store.ErrNotFound) || err == nil && chain != seen.Chain:
		l.opt.Log.Error("the collector has seen a release that this store has forgotten", "task", r.Task.ID, "releases", seen.Length)
		return &edge.Error{Problem: dap.Problem{
			Type: releases.ProblemForgotten, Status: http.StatusConflict,
			Detail: fmt.Sprintf("the collector has seen %d releases of this task that this leader's store does not know: it was put back, and "+
				"releases nothing to who remembers more", seen.Length),
		}}
	case err != nil:
		return err
	}
	return nil
}

// postCollection creates a collection job, or finds the one that the same bytes created
// (DAP-18 section 4.6.1). In a leader-selected task each request has the same bytes, so a
// job lives until it is deleted, and only then the same request opens the next batch.
func (l *Leader) postCollection(r *edge.Request) error {
	if err := l.remembers(r); err != nil {
		return err
	}
	body, done, err := r.Body(dap.MediaCollectionJobReq, l.opt.Limits.UploadBody)
	defer done()
	if err != nil {
		return err
	}
	req, err := dap.ReadCollectionJobReq(body)
	if err != nil {
		return edge.Malformed(err)
	}
	if err := edge.CheckCollection(r.Task, &req); err != nil {
		return err
	}
	var sel *store.Selection
	if r.Task.Mode() == dap.TimeInterval {
		sel = &store.Selection{Interval: req.Query.Interval}
	}
	res, _, err := l.store.Create(r.Context(), store.KindCollection, r.Task.ID, r.ChosenID(), body, true, sel, l.opt.Clock.Now())
	if errors.Is(err, store.ErrOverlap) {
		return edge.Refuse(dap.ProblemBatchOverlap, "the interval overlaps a batch that was collected")
	}
	if errors.Is(err, store.ErrOver) {
		return edge.Refuse(dap.ProblemBatchInvalid, overDetail)
	}
	if errors.Is(err, store.ErrFull) { // which one that is answered or deleted changes
		return edge.Overloaded(http.StatusTooManyRequests)
	}
	if err != nil {
		return err
	}
	l.wakeCollect()
	if err := l.again(r, res); err != nil {
		return err
	}
	r.SetLocation(dap.CollectionJobsResource, res.ID, "")
	return l.answer(r, res, http.StatusCreated)
}

func (l *Leader) answer(r *edge.Request, res *store.Resource, status int) error {
	switch res.State {
	case store.Failed:
		return res.Problem
	case store.Ready:
		at, err := l.store.Ledger(r.Context(), r.Task.ID)
		if err != nil {
			return err
		}
		r.W.Header().Set(releases.Header, releases.Seen{Length: at.Length, Chain: at.Chain}.String())
		return r.Reply(status, dap.MediaCollectionJobResp, res.Response)
	}
	n := l.notes.get(res.ID)
	if n.held != nil && !n.few {
		return r.Empty(status, holdPoll)
	}
	waits, err := l.waitsFor(r.Context(), r.Task, &n)
	if err != nil {
		return err
	}
	if waits != "" {
		r.W.Header().Set(releases.WaitingHeader, string(waits))
	}
	return r.Empty(status, min(max(n.due.Sub(l.opt.Clock.Now()), l.opt.Poll), holdPoll))
}

// waitsFor is what a collector is told that a collection waits for; empty where that is
// work of the servers' own.
func (l *Leader) waitsFor(ctx context.Context, t *task.Task, n *note) (releases.Waiting, error) {
	switch {
	case !n.due.IsZero():
		return releases.ForRound, nil
	case !n.few:
		return "", nil
	}
	quiet, err := l.quiet(ctx, t)
	if !quiet || err != nil {
		return "", err
	}
	return releases.ForReports, nil
}

func (l *Leader) collection(r *edge.Request) (*store.Resource, error) {
	id, ok := r.ResourceID()
	if !ok {
		return nil, edge.NotFound("", "no such collection job")
	}
	res, err := l.store.Resource(r.Context(), store.KindCollection, r.Task.ID, id)
	if errors.Is(err, store.ErrNotFound) {
		return nil, edge.NotFound("", "no such collection job")
	}
	return res, err
}

func (l *Leader) getCollection(r *edge.Request) error {
	if err := l.remembers(r); err != nil {
		return err
	}
	res, err := l.collection(r)
	if err != nil {
		return err
	}
	if err := l.again(r, res); err != nil {
		return err
	}
	return l.answer(r, res, http.StatusOK)
}

// deleteCollection forgets the job; what was collected stays collected. While the batch is
// being released the job stays: the helper may have closed the batch already. A collector
// that gives up a question for want of an answer says so by If-None-Match: *, and then a
// job that has its answer stays too.
func (l *Leader) deleteCollection(r *edge.Request) error {
	if err := l.forgo(r); err != nil {
		return err
	}
	res, err := l.collection(r)
	if err != nil {
		return err
	}
	unanswered := r.Header.Get("If-None-Match") == "*"
	if unanswered {
		err = l.store.Withdraw(r.Context(), r.Task.ID, res.ID)
	} else {
		err = l.store.Delete(r.Context(), store.KindCollection, r.Task.ID, res.ID)
	}
	if errors.Is(err, store.ErrBusy) && unanswered {
		return &edge.Error{Problem: dap.Problem{Status: http.StatusPreconditionFailed, Detail: "the job has its answer, or is about to: ask for it"}}
	}
	if errors.Is(err, store.ErrBusy) {
		return edge.Later("the batch is being released; delete the job afterwards", l.opt.Poll)
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	l.notes.forget(res.ID)
	l.asked.forget(res.ID)
	return r.Empty(http.StatusNoContent, 0)
}

// forgo remembers that nobody wants a collection whose request may still be under way,
// where the collector chose its id and so can give it up before it is there: once it came
// it would take a batch for nobody, or stand before all later ones of its task.
func (l *Leader) forgo(r *edge.Request) error {
	id, ok := r.ResourceID()
	if !ok || r.Task.Dialect.CreationMethod() != http.MethodPut || dap.CheckChosenID(id) != nil {
		return nil
	}
	err := l.store.Forgo(r.Context(), r.Task.ID, id)
	if errors.Is(err, store.ErrTaken) || errors.Is(err, store.ErrNotFound) {
		return nil // it is there, or its task is not
	}
	return err
}
