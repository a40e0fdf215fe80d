package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/lease"
	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/release"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/internal/releases"
)

// pending are the collections that wait, of all tasks: many may wait for the end of their
// rounds, and none of them hides another.
func (l *Leader) pending(ctx context.Context) ([]*store.Resource, error) {
	return l.store.PendingResources(ctx, store.KindCollection, store.MaxPending*max(1, l.tasks.Len()))
}

// stepCollections drives each waiting collection one step, and says whether one was
// finished.
func (l *Leader) stepCollections(ctx context.Context) (bool, error) {
	if l.room.Work() != nil {
		return false, nil
	}
	pending, err := l.pending(ctx)
	if err != nil {
		return false, err
	}
	if len(pending) > 0 { // what another process was told to hold is not released here
		if err := l.readHolds(ctx); err != nil {
			return false, err
		}
	}
	finished := false
	l.sortByTime(pending)
	ahead := make(map[dap.TaskID]bool) // tasks with correlated noise of which an earlier interval waits
	for _, res := range pending {
		n := l.notes.get(res.ID)
		if ahead[res.Task] {
			n.why = "an earlier interval is being collected, and noise is drawn in the order of time"
			l.notes.put(res.ID, n)
			continue
		}
		ahead[res.Task] = l.correlated(res)
		// A time far ahead was noted by a clock that was set right since.
		if wait := n.next.Sub(l.opt.Clock.Now()); wait > 0 && (wait <= store.Longest || n.next.Equal(n.due)) {
			continue
		}
		n.behind, n.few = false, false
		done, err := l.drive(ctx, res, &n)
		if n.behind {
			ahead[res.Task] = false // what holds its batch may be of the same time, and comes first
		}
		if err != nil && l.ended(ctx, res) {
			done, err = true, nil
		}
		switch {
		case errors.Is(err, store.ErrUnknown) || ctx.Err() != nil:
			return finished, err
		case err != nil:
			n.attempts++
			n.why = err.Error()
			wait := lease.Backoff(n.attempts, l.opt.BackOff, l.opt.MaxBackOff)
			var retry *peer.Retry
			var later *deferred
			var refused *peer.Refused
			if errors.As(err, &refused) && refused.Fenced() {
				wait = min(wait, l.opt.Agree)
				l.agreeNow(res.Task)
			} else if errors.As(err, &retry) && retry.After > 0 {
				wait = max(l.opt.BackOff, retry.After)
			} else if errors.Is(err, store.ErrNoRoom) {
				n.attempts, wait = 0, l.opt.BackOff
			} else if errors.As(err, &later) {
				n.attempts, wait = 0, later.after
			}
			n.next = l.opt.Clock.Now().Add(wait)
			l.opt.Observe.Ended(aggregator.JobCollection, aggregator.JobAgain)
			l.opt.Log.Warn("collection will be tried again", "task", res.Task, "why", n.why)
		}
		if done {
			finished = true
			ahead[res.Task] = false
			l.notes.forget(res.ID)
		} else {
			l.notes.put(res.ID, n)
		}
	}
	return finished, nil
}

// ended says whether a collection, of which a step has failed, has its answer from another
// process, or is deleted.
func (l *Leader) ended(ctx context.Context, res *store.Resource) bool {
	now, err := l.store.Resource(ctx, res.Kind, res.Task, res.ID)
	return errors.Is(err, store.ErrNotFound) || err == nil && now.State != store.Pending
}

// correlated says whether a collection's noise leans on that of earlier intervals.
func (l *Leader) correlated(res *store.Resource) bool {
	t := l.tasks.Get(res.Task)
	return t != nil && t.Series != nil
}

// sortByTime puts collections with correlated noise in the order of time, among
// themselves: asked for together, none of them comes too late. A frozen one is before
// all: the helper may have released it, and nothing earlier may be released any more.
func (l *Leader) sortByTime(pending []*store.Resource) {
	type at struct {
		res   *store.Resource
		rank  int // 0 is frozen
		start dap.Time
	}
	var places []int
	var list []at
	for i, res := range pending {
		if l.correlated(res) {
			asked, err := dap.ReadCollectionJobReq(res.Body)
			if err == nil {
				rank := 1
				if res.Frozen != nil {
					rank = 0
				}
				places, list = append(places, i), append(list, at{res, rank, asked.Query.Interval.Start})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b at) int { return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.start, b.start)) })
	for i, place := range places {
		pending[place] = list[i].res
	}
}

// drive takes a collection one step further: wait for enough verified reports, stop
// uploads, finish what was acknowledged, freeze the batch, ask the helper, release. Every
// step can be repeated after a crash. done means that it has its result or its problem.
func (l *Leader) drive(ctx context.Context, res *store.Resource, n *note) (done bool, err error) {
	t := l.tasks.Get(res.Task)
	if t == nil {
		return false, errors.New("the task is not provisioned here any more")
	}
	if state, err := l.store.TaskState(ctx, t.ID); err != nil {
		return false, err
	} else if state.ClosedIn != 0 {
		return true, l.fail(ctx, t, res, releases.ProblemClosed, closedDetail)
	}
	if wait, done, err := l.notYet(ctx, t, res, n); wait || done || err != nil {
		return done, err
	}
	// Before anything is frozen: what this leader does not know that it has released it
	// must not freeze, or it could not be told from what it has asked for.
	if err := l.permits.May(t.ID, permit.Release); err != nil {
		n.why = status.WaitsForStop() + ": " + err.Error()
		return false, nil
	}
	frozen := res.Frozen
	if frozen == nil {
		if wait, done, err := l.few(ctx, t, res, n); wait || done || err != nil {
			return done, err
		}
		if err := l.inOrder(ctx, t, res); err != nil {
			return l.outOfOrder(ctx, t, res, err)
		}
		if frozen, done, err = l.freeze(ctx, t, res, n); frozen == nil || err != nil {
			return done, err
		}
	}
	if !n.fair {
		vouched, err := l.compared.Vouched(ctx, t, frozen.Selection)
		if err != nil {
			return false, err
		}
		if _, held := release.Compare(t, frozen, vouched); held != nil {
			l.hold(t, n, held)
			return false, nil
		}
		n.fair = true
	}
	if done, err := l.keyed(ctx, t, res, frozen); done || err != nil {
		return done, err
	}
	share, err := l.askHelper(ctx, t, res, frozen, n)
	var refused *peer.Refused
	if errors.As(err, &refused) && refused.Definite() {
		// The batch stays as it is, on both sides. The collector learns why, may delete
		// the job and ask again once the operator has acted.
		l.opt.Log.Error("the helper refused a collection", "task", t.ID, "why", refused.Error())
		return true, l.fail(ctx, t, res, refused.Problem.Type, "refused by the helper")
	}
	if err != nil {
		return false, err
	}
	if err := l.opt.Failpoints.Hit(FailAfterShare); err != nil {
		return false, err
	}
	if err := l.opt.Failpoints.Hit(FailBeforeRelease); err != nil {
		return false, err
	}
	_, err = release.Once(ctx, l.store, &release.Request{
		Task: t, Role: dap.RoleLeader, Kind: store.KindCollection, Resource: res.ID,
		Asked: res.Body, Selection: frozen.Selection, Count: frozen.Count, Checksum: frozen.Checksum,
		Keys: l.data, Rates: &l.compared, Peer: n.location, Now: l.steady.Now(), Skew: l.opt.Limits.ClockSkew,
		Finish: func(own dap.HpkeCiphertext, f store.Frozen) ([]byte, error) {
			return dap.CollectionJobResp{ReportCount: f.Count, Interval: f.Span, Leader: own, Helper: share.Ciphertext}.Append(nil)
		},
	})
	if err != nil {
		n.fair = false // more credentials may have been shown meanwhile
		return l.outOfOrder(ctx, t, res, err)
	}
	l.asked.due(res.ID, l.steady.Now()) // it was, just now
	l.opt.Observe.Ended(aggregator.JobCollection, aggregator.JobDone)
	return true, l.opt.Failpoints.Hit(FailAfterRelease)
}

// keyed says, before the helper closes anything, whether this leader has the data key of
// a frozen batch. Where that was destroyed the collection ends; where it is lost, or not
// made yet, it waits.
func (l *Leader) keyed(ctx context.Context, t *task.Task, res *store.Resource, f *store.Frozen) (done bool, _ error) {
	key, err := release.KeyOf(ctx, l.data, t, f.Span)
	var gone *datakey.GoneError
	switch {
	case err == nil:
		key.Wipe()
		return false, nil
	case errors.As(err, &gone) && !gone.Lost:
		l.opt.Log.Error("a batch has no data key", "task", t.ID, "why", gone)
		return true, l.fail(ctx, t, res, dap.ProblemBatchInvalid, gone.Error())
	}
	return false, err
}

// notYet says whether a collection has to wait for the end of its round. Until then the
// batch stays open: nothing is drained. Reports that a gateway kept while this leader was
// away come within one grace of its start, which is waited for too.
func (l *Leader) notYet(ctx context.Context, t *task.Task, res *store.Resource, n *note) (wait, done bool, _ error) {
	asked, err := dap.ReadCollectionJobReq(res.Body)
	if err != nil {
		return false, false, err
	}
	now := l.steady.Now()
	err = release.Allowed(t, store.Selection{Interval: asked.Query.Interval}, now, l.opt.Limits.ClockSkew)
	var never *aggregator.BatchError
	if errors.As(err, &never) { // it was stored before the task had this calendar
		return false, true, l.fail(ctx, t, res, dap.ProblemBatchInvalid, never.Error())
	}
	n.due = time.Time{}
	var early *release.Early
	var over *release.Over
	switch {
	case errors.As(err, &early):
		n.why, n.due = early.Error(), early.At
	case err != nil:
		return false, false, err
	case res.Frozen == nil && errors.As(release.Overdue(t, store.Selection{Interval: asked.Query.Interval}, now, l.opt.Limits.ClockSkew), &over):
		return false, true, l.fail(ctx, t, res, dap.ProblemBatchInvalid, over.Error())
	case t.Calendar != nil && t.Mode() == dap.TimeInterval && now.Before(l.begun.Add(t.Calendar.Grace)):
		n.due = l.begun.Add(t.Calendar.Grace)
		n.why = "this leader was away until lately, and reports that a gateway kept for it come until " + n.due.UTC().Format(time.RFC3339)
	default:
		return false, false, nil
	}
	n.next = n.due
	return true, false, nil
}

// inOrder asks the store, before anything is closed to reports, whether correlated noise
// may be drawn for what is asked.
func (l *Leader) inOrder(ctx context.Context, t *task.Task, res *store.Resource) error {
	asked, err := dap.ReadCollectionJobReq(res.Body)
	if err != nil {
		return err
	}
	return release.Order(ctx, l.store, t, store.Selection{Interval: asked.Query.Interval})
}

// outOfOrder ends a collection that comes too late for correlated noise, or of too long
// an interval: no later try will do better. Other errors it returns.
func (l *Leader) outOfOrder(ctx context.Context, t *task.Task, res *store.Resource, err error) (done bool, _ error) {
	var order *correlated.OrderError
	if !errors.As(err, &order) {
		return false, err
	}
	return true, l.fail(ctx, t, res, dap.ProblemBatchInvalid, strings.TrimPrefix(order.Error(), "correlated: "))
}

// holdPoll is how often a held batch is looked at, and how long the collector is told to
// wait: an operator has to act.
const holdPoll = time.Minute

// hold leaves a batch as it is and raises the alarm, once in a life: what is expected
// changes with a restart only.
func (l *Leader) hold(t *task.Task, n *note, held *release.Held) {
	if n.held == nil {
		l.opt.Log.Error("a batch is held", "task", t.ID, "why", held.Why())
		l.opt.Observe.Ended(aggregator.JobCollection, aggregator.JobHeld)
		if held.Rate != nil {
			l.compared.Note(t.ID, held.Rate)
		}
	}
	n.held, n.why, n.next = &held.Held, held.Why(), l.opt.Clock.Now().Add(holdPoll)
}

// selection is what a collection asks for: nothing yet, where the leader selects it.
func (l *Leader) selection(res *store.Resource) (sel store.Selection) {
	if asked, err := dap.ReadCollectionJobReq(res.Body); err == nil {
		sel.Interval = asked.Query.Interval
	}
	return sel
}

// few says whether a batch that has its minimum has to wait, for it is not of as many
// devices as the guarantee counts on. It stays open meanwhile: more may come.
func (l *Leader) few(ctx context.Context, t *task.Task, res *store.Resource, n *note) (wait, done bool, _ error) {
	if t.Rate == nil {
		return false, false, nil
	}
	sel := l.selection(res)
	verified, waiting, err := l.store.Verified(ctx, t.ID, sel.Interval)
	if err != nil || verified < t.Config.MinBatchSize {
		return false, false, err
	}
	devices, err := l.compared.Devices(ctx, t, sel)
	if err != nil {
		return false, false, err
	}
	_, held := release.Compare(t, &store.Frozen{Count: verified, Span: sel.Interval}, release.Vouched{Devices: devices})
	if held == nil || held.Verdict != status.TooFew {
		n.held = nil
		return false, false, nil
	}
	if waiting > 0 {
		n.why = fmt.Sprintf("%d acknowledged reports of the batch are still to be verified", waiting)
		l.wakeJobs()
		return true, false, nil
	}
	l.hold(t, n, held)
	n.few = true
	done, err = l.never(ctx, t, res, "the task is over, and fewer devices sent reports of the batch than its guarantee counts on")
	return true, done, err
}

// freeze fixes the batch, or notes what it waits for and returns nil.
func (l *Leader) freeze(ctx context.Context, t *task.Task, res *store.Resource, n *note) (frozen *store.Frozen, done bool, err error) {
	n.next = time.Time{}
	_, _, err = l.store.Drain(ctx, res)
	if err != nil {
		n.before = nil // the batch is open
	}
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil, true, nil // deleted meanwhile
	case errors.Is(err, store.ErrTooSmall):
		return l.tooSmall(ctx, t, res, n)
	case errors.Is(err, store.ErrBusy):
		n.why, n.behind = "another collection of the same batch is under way", true
		return nil, false, nil
	case errors.Is(err, store.ErrOverlap):
		return nil, true, l.fail(ctx, t, res, dap.ProblemBatchOverlap, "the batch was collected meanwhile")
	case errors.Is(err, store.ErrOver):
		return nil, true, l.fail(ctx, t, res, dap.ProblemBatchInvalid, overDetail)
	case err != nil:
		return nil, false, err
	}
	// No upload is judged fit for the batch any more. Those that were before may not be
	// in the log yet.
	if n.before == nil {
		n.before = l.uploads.close()
	}
	if n.before.left() > 0 {
		n.why = "uploads that came before the collection are still being written"
		return nil, false, nil
	}
	// Reports acknowledged before may still be in the log.
	if _, err := l.intake.settle(ctx); segment.Blocks(err, t.ID) {
		return nil, false, fmt.Errorf("acknowledged reports of the batch may be in a log: %w", err)
	}
	sel, waiting, err := l.store.Drain(ctx, res)
	if err != nil {
		n.before = nil
		if errors.Is(err, store.ErrTooSmall) {
			return l.tooSmall(ctx, t, res, n)
		}
		return nil, false, err
	}
	if waiting > 0 {
		n.why = fmt.Sprintf("%d acknowledged reports of the batch are still to be verified", waiting)
		if parked, err := l.parked(ctx, t); err != nil {
			return nil, false, err
		} else if parked > 0 {
			n.why += fmt.Sprintf("; %d of the task are kept until you decide", parked)
		}
		l.wakeJobs()
		return nil, false, nil
	}
	frozen, err = l.store.Freeze(ctx, res, sel)
	switch {
	case errors.Is(err, store.ErrTooSmall):
		n.before = nil // open again
		return l.tooSmall(ctx, t, res, n)
	case errors.Is(err, store.ErrBusy):
		n.why = "acknowledged reports of the batch are still to be verified"
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	n.why = "asking the helper for its share"
	return frozen, false, l.opt.Failpoints.Hit(FailAfterFreeze)
}

// parked counts the reports of a task that wait for the operator.
func (l *Leader) parked(ctx context.Context, t *task.Task) (n uint64, err error) {
	stuck, err := l.store.Stuck(ctx, t.ID)
	for _, s := range stuck {
		if s.Parked {
			n += s.Reports
		}
	}
	return n, err
}

// tooSmall leaves the collection waiting, unless no further report can come.
func (l *Leader) tooSmall(ctx context.Context, t *task.Task, res *store.Resource, n *note) (*store.Frozen, bool, error) {
	n.why, n.few = fmt.Sprintf("fewer than %d verified reports", t.Config.MinBatchSize), true
	done, err := l.never(ctx, t, res, "the task is over and the batch is below the minimum size")
	return nil, done, err
}

// never ends a collection whose batch has too few reports, if no further one can come.
func (l *Leader) never(ctx context.Context, t *task.Task, res *store.Resource, detail string) (done bool, _ error) {
	state, err := l.store.TaskState(ctx, t.ID)
	if err != nil {
		return false, err
	}
	if state.Closed.IsZero() && !t.Over(l.steady.Now(), l.opt.Limits.ClockSkew) {
		return false, nil
	}
	if quiet, err := l.quiet(ctx, t); !quiet || err != nil {
		return false, err
	}
	counts, err := l.store.Counts(ctx, t.ID)
	if err != nil {
		return false, err
	}
	if counts.Rejected[dap.ReportDropped] > 0 { // how many is not told: it would say how many there were
		detail += "; reports of the task were dropped, and its leader's operator knows why"
	}
	return true, l.fail(ctx, t, res, dap.ProblemInvalidBatchSize, detail)
}

// quiet says whether no acknowledged report of a task is still to be verified.
func (l *Leader) quiet(ctx context.Context, t *task.Task) (bool, error) {
	if s := l.intake.unnamed(); s.InFlight > 0 || s.Unsorted > 0 {
		return false, nil
	}
	counts, err := l.store.Counts(ctx, t.ID)
	return err == nil && counts.Waiting == 0, err
}

func (l *Leader) fail(ctx context.Context, t *task.Task, res *store.Resource, typ dap.ProblemType, detail string) error {
	err := l.store.Fail(ctx, res, &dap.Problem{Type: typ, Status: 400, TaskID: &t.ID, Detail: detail})
	if errors.Is(err, store.ErrNotFound) {
		return nil // deleted meanwhile
	}
	if err == nil {
		l.opt.Observe.Ended(aggregator.JobCollection, aggregator.JobFailed)
	}
	return err
}

// askHelper gets the helper's share of a frozen batch. The request is a function of what
// is frozen, so repetitions are byte-identical, and the helper answers them all with the
// share that it released first.
func (l *Leader) askHelper(ctx context.Context, t *task.Task, res *store.Resource, f *store.Frozen, n *note) (*dap.AggregateShare, error) {
	asked, err := dap.ReadCollectionJobReq(res.Body)
	if err != nil {
		return nil, err
	}
	req := dap.AggregateShareReq{CollectionJobReq: asked, ReportCount: f.Count, Checksum: f.Checksum}
	req.BatchSelector.Mode = t.Mode()
	if t.Mode() == dap.TimeInterval {
		req.BatchSelector.Interval = f.Selection.Interval
	} else {
		req.BatchSelector.BatchID = f.Selection.ID
	}
	body, err := req.Append(nil)
	if err != nil {
		return nil, err
	}
	reply, err := l.helper.Ask(ctx, peer.AggregateShare(t, res.ID), n.location, body)
	if err != nil {
		return nil, err
	}
	n.location = reply.ID
	if reply.Body == nil {
		return nil, &deferred{max(reply.RetryAfter, l.opt.Poll)}
	}
	share, err := dap.ReadAggregateShare(reply.Body)
	if err != nil {
		return nil, &peer.Retry{Err: errors.New("the helper's share is malformed")}
	}
	return &share, nil
}

// A note is what is known, in this life of the process, of a collection that waits.
type note struct {
	behind   bool // another collection holds some of its batch
	few      bool // its time is over, and too few reports of it are verified
	why      string
	attempts int
	next     time.Time // not before
	before   *crossing // uploads judged before the batch was drained; nil while it is open
	due      time.Time // of a round that is not over; zero where it is
	location string    // of the helper's share
	held     *status.Held
	fair     bool // frozen, it was compared with what was to come, and is not held
}

// notes are by resource id. Safe for concurrent use.
type notes struct {
	mu sync.Mutex
	m  map[string]note
}

func (n *notes) get(id string) note {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.m[id]
}

func (n *notes) put(id string, v note) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.m == nil {
		n.m = make(map[string]note)
	}
	n.m[id] = v
}

func (n *notes) forget(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.m, id)
}
