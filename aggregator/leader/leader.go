package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/agreement"
	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/lease"
	"github.com/starling-agg/starling/aggregator/internal/party"
	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/release"
	"github.com/starling-agg/starling/aggregator/internal/retire"
	"github.com/starling-agg/starling/aggregator/internal/room"
	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/internal/segment"
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
	FailBeforeLog     = "leader.before-log"  // an upload is judged, and not in the log
	FailBeforeSend    = "leader.before-send" // what is to be sent is stored
	FailAfterSend     = "leader.after-send"  // the helper has answered, nothing is committed
	FailBeforeCommit  = "leader.before-commit"
	FailAfterCommit   = "leader.after-commit" // committed, the sealed shares still there
	FailAfterFreeze   = "leader.after-freeze"
	FailAfterShare    = "leader.after-share" // the helper has closed the batch, we have not
	FailBeforeRelease = "leader.before-release"
	FailAfterRelease  = "leader.after-release"
)

// FailpointNames lists the failpoints of this package.
func FailpointNames() []string {
	return []string{
		FailBeforeLog, FailBeforeSend, FailAfterSend, FailBeforeCommit, FailAfterCommit, FailAfterFreeze, FailAfterShare,
		FailBeforeRelease, FailAfterRelease,
	}
}

// TransactionNames lists the names of all transactions of the store.
func TransactionNames() []string { return sqlite.TransactionNames() }

// The methods that both aggregators have.
type common = party.Common

// A Leader is one leader service: [New] opens one. Beside the methods here it has those
// that both aggregators have: Handler serves DAP, Keys, Offered and Notary are about its
// HPKE keys, ConfirmClock takes the machine's clock for right, Backup writes a backup while
// it runs, and Audit lists what does not hold of its store. Safe for concurrent use.
type Leader struct {
	common
	party  *party.Party
	opt    Options
	begun  time.Time
	tasks  *task.Table
	store  backend
	intake intake
	steady *steady.Clock
	srv    *edge.Server
	engine rounds.Engine
	keys   *keyset.Set
	data   *datakey.Set
	helper *peer.Client
	closed atomic.Bool
	claims atomic.Int64 // of jobs that are worked on

	jobs        chan struct{} // there may be jobs to claim
	wakeJobs    func()
	collections chan struct{} // there may be collections to drive
	wakeCollect func()

	permits  permit.Board
	book     *agreement.Book
	partners partners

	uploads    passage
	refused    refusals
	ledger     watch.Ledger
	notes      notes
	asked      askedAgain
	room       room.Room
	backlog    backlog
	unreturned unreturned
	busy       busy
	levels     levels
	rates      rates
	compared   release.Rates
	sealed     sealedTo
	held       holds
	mending    mending
	moving     sync.RWMutex // held alone while slices are named elsewhere
}

// New opens the store and what takes uploads, and provisions the tasks. Serve [Leader.Handler],
// call [Leader.Run] for the workers, and [Leader.Close] in the end.
func New(ctx context.Context, opt Options) (_ *Leader, err error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	l := &Leader{
		opt:    opt,
		engine: rounds.For(ctx, verify.NewPool(opt.Limits.Workers, opt.Turn)),
		helper: peer.NewClient(opt.Transport, opt.HelperTimeout, opt.Limits.JobBody),
	}
	l.helper.Heard = l.levels.heard
	l.jobs, l.wakeJobs = lease.Signal()
	l.collections, l.wakeCollect = lease.Signal()
	l.uploads.wake = l.wakeCollect
	l.partners.soon, l.partners.wake = lease.Signal()
	p, err := party.Open(ctx, party.Options{
		Options: opt.Options, Role: dap.RoleLeader, Permits: &l.permits, Closed: l.closed.Load, Ready: l.ready, GivenUp: l.givenUp, Waits: l.reportsWait,
	})
	if err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.CloseStore())
		}
	}()
	l.party, l.common = p, p.Common()
	l.tasks, l.store, l.steady, l.book, l.keys, l.data, l.srv = p.Tasks, backend{p.Store, p.Leader}, p.Steady, p.Book, p.Keys, p.Data, p.Server
	l.compared.Issuer, l.compared.Marks, l.compared.Observe, l.compared.Cohorts = opt.Issuer, l.store, &l.opt.Observe, opt.Cohorts
	l.routes()
	l.begun = l.steady.Now()
	l.room = room.Room{FS: opt.FS, Free: max(0, opt.Limits.MinFree), Backlog: uint64(max(0, opt.Limits.MaxBacklog))}
	if err := l.readHolds(ctx); err != nil {
		return nil, fmt.Errorf("leader: %w", err)
	}
	if err := l.openIntake(ctx); err != nil {
		return nil, err
	}
	if p.Local != nil {
		p.Local.KeepFree(l.room.Floor())
	}
	return l, l.readLevels(ctx)
}

// A backend is the store, as far as a leader needs one of its own.
type backend struct {
	store.Base
	store.Leader
}

func (l *Leader) routes() {
	l.srv.HandleHpkeConfig()
	l.srv.HandleVouched()
	l.srv.Handle("POST", "reports", nil, l.postReports)
	kept := func(h edge.Handler) edge.Handler { return edge.Kept(l.party.States, l.store, h) }
	l.srv.HandleCreation(dap.CollectionJobsResource, edge.Collector, kept(l.postCollection))
	l.srv.Handle("GET", "collection_jobs/{id}", edge.Collector, kept(l.getCollection))
	l.srv.Handle("DELETE", "collection_jobs/{id}", edge.Collector, kept(l.deleteCollection))
}

// flushEvery is how often counts of refused uploads are written down, and counts of
// reports told to the observer.
const flushEvery = 5 * time.Second

// Run sorts, aggregates and collects until the context ends, and then returns nil; or
// until the state of the store or of what takes uploads is unknown, and then returns that error:
// only a restart tells what happened.
func (l *Leader) Run(ctx context.Context) error {
	r := lease.New(l.opt.Clock, l.opt.Log)
	r.Go("agreement", min(l.opt.Idle, l.opt.Agree), l.partners.soon, l.agree)
	l.intake.start(r)
	for range l.opt.Limits.Jobs {
		r.Go("aggregation jobs", l.opt.Idle, l.jobs, l.stepJob)
	}
	r.Go("collection jobs", l.opt.Idle, l.collections, l.stepCollections)
	r.Go("files that are mostly done", leftoverEvery, nil, l.stepLeftover)
	r.Go("retired tasks", retire.Every, nil, l.party.Retire)
	r.Go("keys", keyset.Every, nil, l.stepKeys)
	r.Go("replay protection", l.opt.Idle, nil, l.stepMend)
	r.Go("needless files", party.BuryEvery, nil, l.party.Bury)
	r.Go("registry", party.FollowEvery, nil, l.party.Follow)
	r.Go("idle tasks", party.IdleEvery, nil, l.party.GiveUp)
	r.Go("data keys", datakey.Every, nil, l.party.StepDataKeys)
	r.Go("helper", probeEvery, nil, l.probe)
	r.Go("replicas", party.BeatEvery, nil, l.beat)
	r.Go("counts", flushEvery, nil, func(ctx context.Context) (bool, error) { return false, l.count(ctx) })
	select {
	case <-ctx.Done():
	case <-r.Done():
	}
	r.Stop()
	return r.Err()
}

// count writes down how many uploads were refused, and tells the observer how far the
// reports are.
func (l *Leader) count(ctx context.Context) error {
	// counted later
	if err := l.refused.flush(ctx, l.store); err != nil && !errors.Is(err, store.ErrNoRoom) {
		return err
	}
	return l.readLevels(ctx)
}

// Step compares itself with its helpers where it is time to, sorts the inbox, works on
// every job that can be claimed, writes again files that are mostly done, drives every collection once and looks after the keys, and
// says whether it did any work. [Leader.Run] does the same at its own pace; a simulation
// calls Step by itself.
func (l *Leader) Step(ctx context.Context) (bool, error) {
	if _, err := l.stepMend(ctx); err != nil {
		return false, err
	}
	if _, err := l.agree(ctx); err != nil {
		return false, err
	}
	worked, err := l.intake.settle(ctx)
	if errors.Is(err, store.ErrUnknown) || ctx.Err() != nil {
		return worked, err
	}
	if err != nil { // a log alone keeps nothing else waiting
		l.opt.Log.Error("sorting the inbox failed", "error", segment.Brief(err))
	}
	for {
		more, err := l.stepJob(ctx)
		if err != nil {
			return worked, err
		}
		if !more {
			break
		}
		worked = true
	}
	for {
		more, err := l.stepLeftover(ctx)
		if err != nil {
			return worked, err
		}
		if !more {
			break
		}
		worked = true
	}
	more, err := l.stepCollections(ctx)
	if worked = worked || more; err != nil {
		return worked, err
	}
	erased, err := l.party.Retire(ctx)
	if worked = worked || erased; err != nil {
		return worked, err
	}
	return l.party.End(ctx, worked, l.stepKeys)
}

// Close refuses further requests, lets uploads under way become durable, and closes the
// store. Requests under way must have ended: shut the HTTP server down first. Run must
// have returned.
func (l *Leader) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	return errors.Join(l.intake.close(), l.refused.flush(context.Background(), l.store), l.party.CloseStore())
}

// refusals counts reports refused at upload between two writes, so that a flood of bad
// reports costs no transaction each.
type refusals struct {
	mu     sync.Mutex
	counts map[dap.TaskID]map[dap.ReportError]uint64
}

func (c *refusals) add(t dap.TaskID, refused []dap.ReportUploadStatus) {
	m := make(map[dap.ReportError]uint64)
	for _, r := range refused {
		m[r.Error]++
	}
	c.addAll(t, m)
}

func (c *refusals) addAll(t dap.TaskID, m map[dap.ReportError]uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[dap.TaskID]map[dap.ReportError]uint64)
	}
	if c.counts[t] == nil {
		c.counts[t] = make(map[dap.ReportError]uint64)
	}
	for code, n := range m {
		c.counts[t][code] += n
	}
}

// flush writes the counts down. Counts that could not be written go with the next flush,
// unless the outcome is unknown: then they may have been written, and the store takes
// nothing more.
func (c *refusals) flush(ctx context.Context, s store.Leader) error {
	c.mu.Lock()
	counts := c.counts
	c.counts = nil
	c.mu.Unlock()
	var errs []error
	for t, m := range counts {
		if err := s.AddRefused(ctx, t, m); err != nil {
			errs = append(errs, err)
			if !errors.Is(err, store.ErrUnknown) {
				c.addAll(t, m)
			}
		}
	}
	return errors.Join(errs...)
}
