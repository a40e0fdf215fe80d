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
func (a *Aggregator) open(ctx context.Context, log *slog.Logger, observe aggregator.Observer, count written) (*opened, error) {
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
	shared := aggregator.Options{
		Base: m.base, Database: database, Import: m.imports, Provide: a.provide, Keys: m.keys, KeySchedule: m.epochs, Signing: m.signing, FS: data, Record: record,
		Limits: a.Limits.options(), Retention: time.Duration(a.Retention), DataKeyPeriod: time.Duration(a.DataKeyPeriod), Log: log, Observe: observe,
	}
	if a.Role == dap.RoleLeader {
		transport, err2 := a.Helper.transport(m.helper)
		if err2 != nil {
			return nil, errors.Join(fmt.Errorf("helper.%w", err2), fsys.Close())
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
		return nil, errors.Join(a.ofStore(a.ofImport(m, err)), fsys.Close())
	}
	return o, nil
}

// opened is an aggregator with its directories.
type opened struct {
	aggregatorService
	leader *leader.Leader // the service; nil at a helper
	config *Aggregator
	files  *files
	token  string // of the operator, while it runs; else empty
}

// Close closes the directories after the aggregator in them.
func (o *opened) Close() error { return errors.Join(o.aggregatorService.Close(), o.files.Close()) }

// Listeners are listeners that are open already; nil ones are opened at the configured
// addresses.
type Listeners struct{ Public, Local, Peer net.Listener }

// Parts returns the aggregator as components for [service.Run], in order: the aggregator
// with its store, then the local listener, then the public one. Stopped in reverse, the
// last requests are answered before the store closes.
func (a *Aggregator) Parts(log *slog.Logger, open Listeners) []service.Part {
	name := a.Role.String()
	log = log.With(slog.String("role", name))
	metrics := service.NewMetrics()
	observe := observer(a.Role, metrics)
	count := newWritten()
	count.register(metrics)
	var running atomic.Pointer[opened]
	current := func() (*opened, error) {
		if s := running.Load(); s != nil {
			return s, nil
		}
		return nil, errors.New("not started")
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		s, err := current()
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		s.Handler().ServeHTTP(w, r)
	}
	measured := service.Measure(http.HandlerFunc(handler), log, metrics, routes(a.Role))
	listeners := []string{"public"}
	if a.Peer.Address != "" {
		listeners = append(listeners, "peer")
	}
	connections := metrics.Connections(listeners...)
	ready := func() service.Readiness {
		s, err := current()
		if err != nil {
			return service.Unready(service.ReasonStopping, err)
		}
		r := s.Readiness()
		r.Take.Because(service.ReasonConnections, connections.Full())
		return r
	}
	metrics.ReadinessGauge(ready, "take", "verify", "release")
	gauges(a.Role, metrics, a.Limits.options(), func() (aggregator.Levels, bool) {
		s, err := current()
		if err != nil {
			return aggregator.Levels{}, false
		}
		return s.Levels(), true
	})
	parts := []service.Part{
		{Name: name, Run: func(ctx context.Context, ready func()) error {
			s, err := a.open(ctx, log, observe, count)
			if err != nil {
				return err
			}
			if s.token, err = newOperatorToken(s.files.data); err != nil {
				return errors.Join(err, s.Close())
			}
			running.Store(s)
			ready()
			return errors.Join(a.ofStore(s.Run(ctx)), removeOperatorToken(s.files.data), s.Close())
		}},
		service.Local{
			Name: name + " local listener", Address: a.Local.Address, Metrics: metrics, Log: log, Open: open.Local,
			Health: service.Health{
				Ready: ready,
				Status: func(ctx context.Context) (any, error) {
					return readStatus(ctx, current)
				},
			},
			Extra: operations(current),
		}.Part(),
		service.Server{
			Name: name + " public listener", Listen: a.Public, Log: log, Open: open.Public,
			Handler: measured, Connections: connections, Label: "public",
		}.Part(),
	}
	if a.Peer.Address != "" {
		parts = append(parts, service.Server{
			Name: name + " peer listener", Listen: a.Peer, Log: log, Open: open.Peer,
			Handler: measured, Connections: connections, Label: "peer",
		}.Part())
	}
	return parts
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
	s, err := a.open(ctx, log, aggregator.Observer{}, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return f(s)
}
