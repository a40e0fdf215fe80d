package helper

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/agreement"
	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/lease"
	"github.com/starling-agg/starling/aggregator/internal/lost"
	"github.com/starling-agg/starling/aggregator/internal/mend"
	"github.com/starling-agg/starling/aggregator/internal/party"
	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/release"
	"github.com/starling-agg/starling/aggregator/internal/room"
	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/internal/steady"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/internal/verify"
	"github.com/starling-agg/starling/aggregator/internal/watch"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/dap"
)

// Failpoints of this package: a crash at each must lose nothing and count nothing twice.
const (
	FailBeforeCommit  = "helper.before-commit"
	FailAfterCommit   = "helper.after-commit" // committed, the leader not told
	FailBeforeRelease = "helper.before-release"
	FailAfterRelease  = "helper.after-release" // closed, the leader not told
)

// FailpointNames lists the failpoints of this package.
func FailpointNames() []string {
	return []string{FailBeforeCommit, FailAfterCommit, FailBeforeRelease, FailAfterRelease}
}

// TransactionNames lists the names of all transactions of the store.
func TransactionNames() []string { return sqlite.TransactionNames() }

// A backend is the store, as far as a helper needs one of its own.
type backend struct {
	store.Base
	store.Helper
}

// The methods that both aggregators have.
type common = party.Common

// A Helper is one helper service: [New] opens one. Beside the methods here it has those
// that both aggregators have: Handler serves DAP, Keys, Offered and Notary are about its
// HPKE keys, ConfirmClock takes the machine's clock for right, Backup writes a backup while
// it runs, and Audit lists what does not hold of its store. Safe for concurrent use.
type Helper struct {
	common
	party  *party.Party
	opt    Options
	tasks  *task.Table
	store  backend
	srv    *edge.Server
	gate   *edge.Gate
	keys   *keyset.Set
	lost   *lost.Room
	steady *steady.Clock
	data   *datakey.Set
	engine rounds.Engine
	closed atomic.Bool
	ledger watch.Ledger
	holds  holds
	rates  release.Rates
	brings *brings
	room   room.Room
	levels levels
	wake   chan struct{}
	wakeUp func()

	mending mending
	book    *agreement.Book
	permits permit.Board
}

// New opens the store and provisions the tasks. Serve [Helper.Handler], call [Helper.Run]
// for the workers, and [Helper.Close] in the end.
func New(ctx context.Context, opt Options) (*Helper, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	h := &Helper{
		opt: opt, gate: edge.NewGate(opt.Limits.Jobs, opt.Limits.Queue),
		engine: rounds.For(ctx, verify.NewPool(opt.Limits.Workers, opt.Turn)),
	}
	h.wake, h.wakeUp = lease.Signal()
	p, err := party.Open(ctx, party.Options{Options: opt.Options, Role: dap.RoleHelper, Permits: &h.permits, Closed: h.closed.Load})
	if err != nil {
		return nil, fmt.Errorf("helper: %w", err)
	}
	h.party, h.common = p, p.Common()
	h.tasks, h.store, h.steady, h.book, h.keys, h.data, h.srv = p.Tasks, backend{p.Store, p.Helper}, p.Steady, p.Book, p.Keys, p.Data, p.Server
	if len(opt.Taskprov) > 0 {
		h.brings = newBrings(opt.Taskprov)
		h.srv.Bring = h.bring
	}
	h.rates.Issuer, h.rates.Marks, h.rates.Observe, h.rates.Cohorts = opt.Issuer, h.store, &h.opt.Observe, opt.Cohorts
	h.routes()
	h.room = room.Room{FS: opt.FS, Free: max(0, opt.Limits.MinFree)}
	h.lost = &lost.Room{FS: opt.FS, Newest: h.keys.Newest, Failpoints: opt.Failpoints}
	if err := h.lost.Open(ctx, h.store, opt.Log, "runs"); err != nil {
		return nil, errors.Join(fmt.Errorf("helper: %w", err), p.CloseStore())
	}
	if p.Local != nil {
		p.Local.KeepFree(h.room.Floor())
	}
	return h, h.count(ctx)
}

func (h *Helper) routes() {
	h.srv.HandleHpkeConfig()
	h.srv.HandleVouched()
	kept := func(f edge.Handler) edge.Handler { return edge.Kept(h.party.States, h.store, f) }
	h.srv.HandleCreation(dap.AggregationJobsResource, edge.Peer, h.guarded(permit.Verify, h.roomy(h.postJob)))
	h.srv.Handle("POST", "aggregation_jobs/{id}", edge.Peer, h.guarded(permit.Verify, h.roomy(h.continueJob)))
	h.srv.Handle("GET", "aggregation_jobs/{id}", edge.Peer, h.guarded(permit.Verify, h.getJob))
	h.srv.Handle("DELETE", "aggregation_jobs/{id}", edge.Peer, kept(h.deleteOf(store.KindAggregation)))
	h.srv.HandleCreation(dap.AggregateSharesResource, edge.Peer, h.guarded(permit.Release, h.roomy(h.postShare)))
	h.srv.Handle("GET", "aggregate_shares/{id}", edge.Peer, h.guarded(permit.Release, h.getShare))
	h.srv.Handle("DELETE", "aggregate_shares/{id}", edge.Peer, kept(h.deleteOf(store.KindShare)))
	h.srv.Handle("GET", peer.ProgressPath, edge.Peer, h.progress)
	h.srv.Handle("GET", mend.Path, edge.Peer, kept(h.needs))
	h.srv.Handle("POST", mend.Path+"/ids", edge.Peer, kept(h.ids))
	h.srv.Handle("POST", mend.Path+"/give", edge.Peer, kept(h.give))
	h.srv.HandleAgreement(h.book, h.compare)
}

// roomy is f where there is room for what it begins.
func (h *Helper) roomy(f edge.Handler) edge.Handler {
	return func(r *edge.Request) error {
		if h.room.Work() != nil {
			h.opt.Observe.Turned(aggregator.ShedDisk)
			return edge.Overloaded(http.StatusServiceUnavailable)
		}
		return f(r)
	}
}

// countEvery is how often the observer is told counts of reports.
const countEvery = 5 * time.Second

// count tells the observer how far the reports are.
func (h *Helper) count(ctx context.Context) error {
	_, err := h.ledger.Tell(ctx, h.store, &h.opt.Observe)
	var files aggregator.Files
	if err == nil {
		err = h.party.ReadQuota(ctx, nil)
	}
	if err == nil {
		files, err = watch.Files(ctx, h.opt.FS, h.store, len(h.data.Missing()))
	}
	if ctx.Err() != nil {
		return err // whoever asked has gone; that says nothing of the store
	}
	h.levels.mu.Lock()
	defer h.levels.mu.Unlock()
	h.levels.err, h.levels.read = err, time.Now()
	if err == nil {
		h.levels.files = files
	}
	return err
}

// Run works on stored jobs until the context ends, and then returns nil; or until the
// store's state is unknown, and then returns that error: only a restart tells what
// happened. A helper that answers at once needs it all the same, for what an earlier life
// stored.
func (h *Helper) Run(ctx context.Context) error {
	r := lease.New(h.opt.Clock, h.opt.Log)
	r.Go("deferred jobs and retired tasks", h.opt.Idle, h.wake, h.stepJobs)
	r.Go("keys", keyset.Every, nil, h.stepKeys)
	r.Go("replay protection", mendEvery, nil, h.checkReplay)
	r.Go("needless files", party.BuryEvery, nil, h.party.Bury)
	r.Go("registry", party.FollowEvery, nil, h.party.Follow)
	r.Go("idle tasks", party.IdleEvery, nil, h.party.GiveUp)
	r.Go("data keys", datakey.Every, nil, h.party.StepDataKeys)
	r.Go("replicas", party.BeatEvery, nil, h.beat)
	r.Go("counts", countEvery, nil, func(ctx context.Context) (bool, error) { return false, h.count(ctx) })
	select {
	case <-ctx.Done():
	case <-r.Done():
	}
	r.Stop()
	return r.Err()
}

// Close refuses further requests and closes the store. Requests under way must have
// ended: shut the HTTP server down first.
func (h *Helper) Close() error {
	if h.closed.Swap(true) {
		return nil
	}
	return h.party.CloseStore()
}

// batchOfJobs is how many stored resources a pass takes, or a few times more: their
// bodies are held in memory, and a leader may make each as large as Limits.JobBody.
const batchOfJobs = 2

// Step does one pass over the stored jobs and looks after the keys, and says whether it
// did any work. [Helper.Run] does the same at its own pace; a simulation calls Step by
// itself.
func (h *Helper) Step(ctx context.Context) (bool, error) {
	if _, err := h.checkReplay(ctx); err != nil {
		return false, err
	}
	worked, err := h.stepJobs(ctx)
	if err != nil {
		return worked, err
	}
	return h.party.End(ctx, worked, h.stepKeys)
}

func (h *Helper) stepJobs(ctx context.Context) (bool, error) {
	if h.room.Work() != nil {
		return false, nil
	}
	worked := false
	for _, kind := range []store.Kind{store.KindAggregation, store.KindShare} {
		stored, err := h.stored(ctx, kind)
		if err != nil {
			return worked, err
		}
		for _, res := range stored {
			err := h.finish(ctx, res)
			var held *release.Held
			switch {
			case errors.As(err, &held):
				h.hold(res, held)
				continue
			case notYet(err): // the clock was put back this moment, see stored; or a data key has to be
				continue
			case errors.Is(err, store.ErrDamaged):
				h.postpone(res)
				continue
			case errors.Is(err, store.ErrCutOff): // the next attempt has the keys that there are then
				continue
			case errors.Is(err, store.ErrNotFound): // deleted meanwhile
			case err != nil:
				return worked, err
			}
			worked = true
		}
	}
	erased, err := h.party.Retire(ctx)
	return worked || erased, err
}

// stored lists the oldest resources that wait for a worker. Those without a body do not:
// the request that made one is working on it, or died with the process and will be sent
// again. Nor do those that are held, or early again, or whose task waits. However many
// there are, they do not hide the others.
func (h *Helper) stored(ctx context.Context, kind store.Kind) ([]*store.Resource, error) {
	for n := batchOfJobs; ; n *= 4 {
		pending, err := h.store.PendingResources(ctx, kind, n)
		if err != nil {
			return nil, err
		}
		full := len(pending) == n
		acts := permit.Verify
		if kind == store.KindShare {
			acts = permit.Release
		}
		pending = slices.DeleteFunc(pending, func(r *store.Resource) bool {
			return r.Body == nil || h.holds.has(r.ID) || h.tooEarly(r) || h.postponed(ctx, r) || h.waits(r.Task, acts)
		})
		if len(pending) > 0 || !full {
			return pending, nil
		}
	}
}

// tooEarly says whether a share that was due when it was asked for is not due now: the
// clock was put back, or more skew is allowed since.
func (h *Helper) tooEarly(r *store.Resource) bool {
	t := h.tasks.Get(r.Task)
	if t == nil || r.Kind != store.KindShare {
		return false
	}
	_, sel, err := readShareReq(t, r.Body)
	if err != nil {
		return false // for its worker to fail it
	}
	return errors.As(release.Allowed(t, sel, h.steady.Now(), h.opt.Limits.ClockSkew), new(*release.Early))
}

// finish works on one stored resource, to its result or to its problem.
func (h *Helper) finish(ctx context.Context, res *store.Resource) error {
	t := h.tasks.Get(res.Task)
	if t == nil {
		return fmt.Errorf("helper: a stored job belongs to task %v, which is not provisioned", res.Task)
	}
	leave, err := h.gate.Enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if res.Kind == store.KindAggregation {
		var j *job
		if j, err = h.readJob(t, res.Body); err == nil {
			// It is worth what it was worth when it came, however long it had to wait here.
			j.keys = h.keys.Opening(res.Created)
			_, err = h.runJob(ctx, res, j, res.Body)
			j.keys.Release()
		}
	} else {
		var req *dap.AggregateShareReq
		var sel store.Selection
		if req, sel, err = readShareReq(t, res.Body); err == nil {
			_, err = h.release(ctx, res, t, req, sel)
		}
		if p := refusal(err); p != nil {
			err = p
		}
	}
	var e *edge.Error
	if errors.As(err, &e) {
		if res.Kind == store.KindAggregation {
			h.opt.Observe.Ended(aggregator.JobAggregation, aggregator.JobFailed)
		}
		p := e.Problem
		p.TaskID = &t.ID
		return h.store.Fail(ctx, res, &p)
	}
	return err
}
