package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/backup"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
)

// A commonService is what leader and helper do by the same code.
type commonService interface {
	Handler() http.Handler
	Audit(context.Context) ([]string, error)
	ConfirmClock(context.Context) (time.Time, error)
	Offered() []byte
	Notary() *keyset.Notary
	Backup(context.Context, io.Writer) error
	Registered(context.Context) ([]status.Registered, error)
	RegisteredTask(context.Context, dap.TaskID) (status.RegisteredTask, error)
	Amend(context.Context, *aggregator.Provision) (now bool, err error)
}

// An aggregatorService is a leader or a helper.
type aggregatorService interface {
	commonService
	Add(context.Context, *aggregator.Provision) (made bool, err error)
	CloseTask(ctx context.Context, task dap.TaskID, by, why string) (status.Closed, error)
	Run(context.Context) error
	Close() error
	Standing(context.Context) (*status.Status, error)
	Status(context.Context) (*status.Status, error)
	Repair(context.Context) error
	Levels() aggregator.Levels
	Readiness() service.Readiness
}

// open reads what the configuration names and opens the aggregator with its store. Its
// writes are counted, unless count is nil.
func (a *Aggregator) open(ctx context.Context, log *slog.Logger, observe aggregator.Observer, count written, turn *aggregator.Turn) (*opened, error) {
	m, err := a.read()
	if err != nil {
		return nil, err
	}
	fsys, err := a.files()
	if err != nil {
		return nil, err
	}
	if err := backup.Sweep(fsys.data); err != nil {
		return nil, errors.Join(err, fsys.Close())
	}
	o := &opened{config: a, files: fsys}
	var database *aggregator.Database
	if a.Engine == Postgres {
		database = a.Database.options()
	}
	data, record := count.through(fsys)
	if m.counts != nil {
		if o.issuer, err = a.openIssuer(ctx, m.counts, m.keep, data, log); err != nil {
			return nil, errors.Join(a.ofStore(err), fsys.Close())
		}
	}
	shared := aggregator.Options{
		Base: m.base, Database: database, Import: m.imports, Provide: a.provide, Keys: m.keys, KeySchedule: m.epochs, Signing: m.signing, FS: data, Record: record,
		Limits: a.Limits.options(), Turn: turn, Quota: a.Quota.options(), Retention: time.Duration(a.Retention), DataKeyPeriod: time.Duration(a.DataKeyPeriod), Log: log, Observe: observe,
	}
	if o.issuer != nil {
		shared.Issuer = issued{o.issuer}
		if o.issuer.followed != nil {
			shared.Cohorts = o.issuer.followed
		}
	}
	if a.Role == dap.RoleLeader {
		transport, err2 := a.Helper.transport(m.helper)
		if err2 != nil {
			return nil, errors.Join(fmt.Errorf("helper.%w", err2), o.issuer.Close(), fsys.Close())
		}
		o.leader, err = leader.New(ctx, leader.Options{Options: shared, Transport: transport, Agree: time.Duration(a.CompareEvery)})
		o.aggregatorService = o.leader
	} else {
		deferred := helper.Never
		if a.Deferred {
			deferred = helper.Always
		}
		o.aggregatorService, err = helper.New(ctx, helper.Options{Options: shared, Deferred: deferred, Taskprov: m.brings})
	}
	if err != nil {
		return nil, errors.Join(a.ofStore(a.ofImport(m, err)), o.issuer.Close(), fsys.Close())
	}
	return o, nil
}

// opened is an aggregator with its directories.
type opened struct {
	aggregatorService
	leader *leader.Leader // the service; nil at a helper
	issuer *openedIssuer  // nil where no recipe counts devices
	config *Aggregator
	files  *files
	token  string // of the operator, while it runs; else empty
}

// Close closes the directories after the aggregator in them.
func (o *opened) Close() error {
	return errors.Join(o.aggregatorService.Close(), o.issuer.Close(), o.files.Close())
}

// Listeners are listeners that are open already; nil ones are opened at the configured
// addresses.
type Listeners struct{ Public, Local, Peer net.Listener }

// Parts returns the aggregator as components for [service.Run], in order: the aggregator
// with its store, then its local listener; the same of each tenant; then the public
// listeners. Stopped in reverse, the last requests are answered before a store closes.
func (a *Aggregator) Parts(log *slog.Logger, open Listeners) []service.Part {
	name := a.Role.String()
	log = log.With(slog.String("role", name))
	tenants, err := a.hosted()
	if err != nil {
		return []service.Part{broken(name, err)}
	}
	listeners := []string{"public"}
	if a.Peer.Address != "" {
		listeners = append(listeners, "peer")
	}
	turns := aggregator.NewTurns(a.processors())
	metrics := service.NewMetrics()
	connections := metrics.Connections(listeners...)
	host := a.seat(log, metrics, connections)
	if len(tenants) > 0 {
		host.turn = turns.Join()
	}
	parts := host.parts(log, metrics, open.Local)
	var seats []*seat
	at := make(map[string]http.Handler)
	for _, t := range tenants {
		log, metrics := tenantLog(log, t.Tenant), service.NewMetrics()
		s := t.seat(log, metrics, connections)
		s.turn = turns.Join()
		parts = append(parts, s.parts(log, metrics, nil)...)
		seats, at[pathOf(t.URL)] = append(seats, s), s.handler
	}
	if len(seats) > 0 {
		tenantGauges(metrics, seats)
	}
	handler := pick(host.handler, at)
	parts = append(parts, service.Server{
		Name: name + " public listener", Listen: a.Public, Log: log, Open: open.Public,
		Handler: handler, Connections: connections, Label: "public",
	}.Part())
	if a.Peer.Address != "" {
		parts = append(parts, service.Server{
			Name: name + " peer listener", Listen: a.Peer, Log: log, Open: open.Peer,
			Handler: handler, Connections: connections, Label: "peer",
		}.Part())
	}
	return parts
}

// A seat is the place of one aggregator in a process: what is there of it before it is
// open, and after it is closed.
type seat struct {
	config  *Aggregator
	running atomic.Pointer[opened]
	// requests is held by each request, which does not wait for it, and to close.
	requests sync.RWMutex
	handler  http.Handler
	base     string // path of the URL
	observe  aggregator.Observer
	count    written
	turn     *aggregator.Turn // nil where it is alone in its process
	ready    func() service.Readiness
}

// seat makes the place of an aggregator whose requests come over connections.
func (a *Aggregator) seat(log *slog.Logger, metrics *service.Metrics, connections *service.Connections) *seat {
	s := &seat{config: a, observe: observer(a.Role, metrics), count: newWritten()}
	s.count.register(metrics)
	base := ""
	if a.URL != "" {
		base = strings.TrimRight(pathOf(a.URL), "/")
	}
	s.base = base
	s.handler = service.Measure(http.HandlerFunc(s.serve), log, metrics, base, routes(a.Role))
	s.ready = func() service.Readiness {
		o, err := s.current()
		if err != nil {
			return service.Unready(service.ReasonStopping, err)
		}
		r := o.Readiness()
		r.Take.Because(service.ReasonConnections, connections.Full())
		return r
	}
	metrics.ReadinessGauge(s.ready, "take", "verify", "release")
	gauges(a.Role, metrics, a.Limits.options(), s.levels)
	quotaGauges(metrics, a.Quota.options(), s.levels)
	return s
}

func (s *seat) current() (*opened, error) {
	if o := s.running.Load(); o != nil {
		return o, nil
	}
	return nil, errNotStarted
}

func (s *seat) levels() (aggregator.Levels, bool) {
	o, err := s.current()
	if err != nil {
		return aggregator.Levels{}, false
	}
	return o.Levels(), true
}

func (s *seat) serve(w http.ResponseWriter, r *http.Request) {
	if s.requests.TryRLock() {
		defer s.requests.RUnlock()
		if o, err := s.current(); err == nil {
			if o.issuer != nil && isOrder(r, s.base) {
				o.issuer.ServeHTTP(w, r)
				return
			}
			o.Handler().ServeHTTP(w, r)
			return
		}
	}
	http.Error(w, errNotStarted.Error(), http.StatusServiceUnavailable)
}

// live opens the aggregator and runs it until ctx ends or it fails.
func (s *seat) live(ctx context.Context, log *slog.Logger, ready func()) error {
	o, err := s.config.open(ctx, log, s.observe, s.count, s.turn)
	if err != nil {
		return err
	}
	if o.token, err = newOperatorToken(o.files.data); err != nil {
		return errors.Join(err, o.Close())
	}
	stop := func() {}
	if o.issuer != nil {
		retiring, cancel := context.WithCancel(ctx)
		defer cancel()
		go retires(retiring, o.issuer, log)
		stop = o.issuer.followed.start(retiring, cancel, log)
	}
	s.running.Store(o)
	ready()
	err = s.config.ofStore(o.Run(ctx))
	s.running.Store(nil)
	stop()
	s.requests.Lock() // those that are under way end before what they use is closed
	defer s.requests.Unlock()
	return errors.Join(err, removeOperatorToken(o.files.data), o.Close())
}

// parts are the aggregator with its store, and its local listener.
func (s *seat) parts(log *slog.Logger, metrics *service.Metrics, local net.Listener) []service.Part {
	a, name := s.config, s.config.Role.String()
	if a.Tenant != "" {
		name += " of tenant " + a.Tenant
	}
	run := func(ctx context.Context, ready func()) error { return s.live(ctx, log, ready) }
	if live := run; a.Tenant != "" {
		run = func(ctx context.Context, ready func()) error { return again(ctx, log, ready, live) }
	}
	return []service.Part{
		{Name: name, Run: run},
		service.Local{
			Name: name + " local listener", Address: a.Local.Address, Metrics: metrics, Log: log, Open: local,
			Health: service.Health{
				Ready:  s.ready,
				Status: func(ctx context.Context) (any, error) { return readStatus(ctx, s.current) },
			},
			Extra: operations(s.current),
		}.Part(),
	}
}

func readStatus(ctx context.Context, current func() (*opened, error)) (*status.Status, error) {
	s, err := current()
	if err != nil {
		return nil, err
	}
	return s.Status(ctx)
}

// routes are the patterns that the aggregators' requests are measured by.
func routes(role dap.Role) []string {
	if role == dap.RoleLeader {
		return []string{
			"GET /hpke_config", "GET /deployments/{deployment}/hpke_config", "POST /deployments/{deployment}/hpke_config",
			"POST /deployments/{deployment}/manifest", "POST /tasks/{task}/reports", "POST /tasks/{task}/collection_jobs",
			"GET /tasks/{task}/collection_jobs/{id}", "DELETE /tasks/{task}/collection_jobs/{id}",
		}
	}
	return []string{
		"GET /hpke_config", "GET /deployments/{deployment}/hpke_config", "POST /deployments/{deployment}/hpke_config",
		"POST /deployments/{deployment}/manifest", "POST /tasks/{task}/aggregation_jobs", "POST /tasks/{task}/aggregation_jobs/{id}",
		"GET /tasks/{task}/aggregation_jobs/{id}", "DELETE /tasks/{task}/aggregation_jobs/{id}",
		"POST /tasks/{task}/aggregate_shares", "GET /tasks/{task}/aggregate_shares/{id}",
		"DELETE /tasks/{task}/aggregate_shares/{id}", "GET /tasks/{task}/starling_replay", "POST /tasks/{task}/starling_replay/ids",
		"POST /tasks/{task}/starling_replay/give", "POST /starling_agreement",
		"POST /tasks/{task}/starling_ledger",
	}
}

// Audit opens the store of an aggregator that is not running and lists the violations of
// its invariants, in words.
func (a *Aggregator) Audit(ctx context.Context) (faults []string, err error) {
	faults, _, err = a.Inspect(ctx)
	return faults, err
}

// Used says whether there are directories of the aggregator: its data, or the record of
// it.
func (a *Aggregator) Used() bool {
	for _, dir := range []string{string(a.Data), a.record()} {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			return true
		}
	}
	return false
}

// Inspect is Audit, and says how its HPKE keys stand and what else is wrong with it.
func (a *Aggregator) Inspect(ctx context.Context) (faults []string, standing *status.Status, err error) {
	if !a.Used() {
		return nil, nil, fmt.Errorf("data: %s: %w", a.Data, fs.ErrNotExist)
	}
	err = a.with(ctx, slog.New(slog.DiscardHandler), func(s *opened) error {
		if faults, err = s.Audit(ctx); err == nil {
			standing, err = s.Standing(ctx)
		}
		return err
	})
	return faults, standing, err
}

// StoppedStatus is the status of an aggregator that is not running, from its store.
func (a *Aggregator) StoppedStatus(ctx context.Context) (s *status.Status, err error) {
	err = a.withStore(ctx, slog.New(slog.DiscardHandler), func(o *opened) error {
		s, err = o.Status(ctx)
		return err
	})
	return s, err
}

// HoldTask opens the store of a leader that is not running and holds tasks; see
// [leader.Leader.HoldTask].
func (a *Aggregator) HoldTask(ctx context.Context, why string, tasks ...dap.TaskID) (n int, err error) {
	err = a.withLeader(ctx, func(l *leader.Leader) error {
		n, err = l.HoldTask(ctx, why, tasks...)
		return err
	})
	return n, err
}

// Resume opens the store of a leader that is not running and lets tasks go on; see
// [leader.Leader.Resume].
func (a *Aggregator) Resume(ctx context.Context, drop bool, tasks ...dap.TaskID) (held int, reports uint64, err error) {
	err = a.withLeader(ctx, func(l *leader.Leader) error {
		held, reports, err = l.Resume(ctx, drop, tasks...)
		return err
	})
	return held, reports, err
}

// ConfirmClock opens the store of an aggregator that is not running and has it take the
// machine's clock for right.
func (a *Aggregator) ConfirmClock(ctx context.Context) (t time.Time, err error) {
	err = a.withStore(ctx, slog.New(slog.DiscardHandler), func(s *opened) error {
		t, err = s.ConfirmClock(ctx)
		return err
	})
	return t, err
}

// Repair opens the store of an aggregator that is not running and mends what it can of
// its replay protection; see [leader.Leader.Repair].
func (a *Aggregator) Repair(ctx context.Context) (standing *status.Status, err error) {
	err = a.withStore(ctx, slog.New(slog.DiscardHandler), func(s *opened) error {
		if err = s.Repair(ctx); err == nil {
			standing, err = s.Status(ctx)
		}
		return err
	})
	return standing, err
}

// TakeBack opens the store of a leader that is not running and puts lost reports in
// again; see [leader.Leader.TakeBack]. log is told of files that stay where they are.
func (a *Aggregator) TakeBack(ctx context.Context, log *slog.Logger) (files int, reports uint64, err error) {
	if a.Role != dap.RoleLeader {
		return 0, 0, errors.New("only a leader keeps acknowledged reports; a helper's lost files come back by themselves when a row names them")
	}
	err = a.withStore(ctx, log, func(s *opened) error {
		files, reports, err = s.leader.TakeBack(ctx)
		return err
	})
	return files, reports, err
}

// withLeader opens the store of a leader that is not running, and closes it after f.
func (a *Aggregator) withLeader(ctx context.Context, f func(*leader.Leader) error) error {
	if a.Role != dap.RoleLeader {
		return errNotLeader
	}
	return a.withStore(ctx, slog.New(slog.DiscardHandler), func(s *opened) error { return f(s.leader) })
}

// withStore opens the store of an aggregator that is not running, and closes it after f.
// It makes none where there is none.
func (a *Aggregator) withStore(ctx context.Context, log *slog.Logger, f func(*opened) error) error {
	if _, err := os.Stat(string(a.Data)); err != nil {
		return fmt.Errorf("data: %w", err)
	}
	return a.with(ctx, log, f)
}

// with opens an aggregator that is not running, and closes it after f.
func (a *Aggregator) with(ctx context.Context, log *slog.Logger, f func(*opened) error) (err error) {
	s, err := a.open(ctx, log, aggregator.Observer{}, nil, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(s)
}
