// Package party opens the parts that leader and helper both stand on: their tasks, the
// store, the clock, their agreement with one another, and their keys; and does with these
// what both do alike ([Common] has those methods).
//
// The order is the one in which it can be opened. The store is first, for it refuses to be
// another aggregator's, or one that was put back. The clock continues from the time that
// the store was last seen at. Keys come last: their schedules and the periods of data keys
// follow that clock, and the store knows whether there were any.
package party

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/agreement"
	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/objects"
	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/room"
	"github.com/starling-agg/starling/aggregator/internal/steady"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/aggregator/internal/wrap/keeper"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/body"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
)

// Options are those that leader and helper share, and what their services add.
type Options struct {
	aggregator.Options
	Role dap.Role
	// Permits say what the aggregator may do, and Closed whether it has been closed. They
	// are the caller's.
	Permits *permit.Board
	Closed  func() bool
	// Ready prepares what the service has of a task beside the party, before anybody can
	// find the task. Optional.
	Ready func(*agreement.Book, *task.Task)
	// GivenUp is called with a task that was opened and is given up, before it is opened
	// again. Optional.
	GivenUp func(*task.Task)
	// Waits says, at a leader, whether acknowledged reports of a task wait.
	Waits func(context.Context, dap.TaskID) (bool, error)
}

// A Party is what was opened. The caller closes it.
type Party struct {
	Tasks  *task.Table
	Server *edge.Server // without routes
	Store  store.Base
	Leader store.Leader  // the same, at a leader
	Helper store.Helper  // the same, at a helper
	Local  *sqlite.Store // the same, where it is the embedded engine; else nil
	// Shared is the same, where it is a database's; else nil. Objects has what is too large
	// for its rows; nil where nothing is.
	Shared  *postgres.Store
	Objects payload.Store
	// RowBytes is the least size of such an object; 0 is the intake's own.
	RowBytes int64
	States   *States
	Steady   *steady.Clock
	Quota    *room.Quota
	Book     *agreement.Book
	Keys     *keyset.Set
	Data     *datakey.Set

	vaults   vaults
	wrapping *keeper.Keeper // nil without a database
	marks    io.Closer      // nil without marks
	marked   payload.Store  // where they lie; nil without
	replica  replica
	lacking  lacking
	opt      aggregator.Options
	role     dap.Role
	ready    func(*agreement.Book, *task.Task)
	givenUp  func(*task.Task)
	adding   sync.Mutex // one Add at a time

	retiring sync.Mutex // guards retired and viewed
	viewed   time.Time  // of the last look at views whose time is over
	retired  pass

	forgetting sync.Mutex // guards forgot
	forgot     time.Time  // when marks that are needless were last looked for

	idling sync.Mutex // guards turned
	turned time.Time  // when Tasks last began a turn

	terms    sync.Map // SHA-256 of the terms that an open task was made with, by dap.TaskID; none of the options' tasks
	follower follower
	noted    summary
	failed   failures
}

// Open opens all of it, or nothing.
func Open(ctx context.Context, o Options) (_ *Party, err error) {
	base, err := edge.BasePath(o.Base)
	if err != nil {
		return nil, err
	}
	p := &Party{opt: o.Options, role: o.Role, ready: o.Ready, givenUp: o.GivenUp, Tasks: new(task.Table)}
	p.States = &States{p: p}
	life := context.WithoutCancel(ctx) // tasks are opened later, too
	p.Tasks.Open = func(id dap.TaskID) error { return p.reopen(life, id) }
	for i := range o.Tasks {
		if err := o.CheckIssuer(&o.Tasks[i]); err != nil {
			return nil, err
		}
	}
	configured, err := task.Set(o.Tasks, o.Role)
	if err != nil {
		return nil, err
	}
	p.Quota = room.NewQuota(o.Quota, o.Clock.Now)
	p.Server = &edge.Server{
		Follow: p.follow, Quota: p.Quota, Turned: o.Observe.Turned,
		Base: base, Tasks: p.Tasks, Limits: o.Limits,
		Budget: body.NewBudget(o.Limits.InFlight), Log: o.Log, Closed: o.Closed,
	}
	if err := p.openStore(ctx, &o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.CloseStore())
		}
	}()
	p.Steady, err = steady.Open(ctx, steady.Options{Keeper: p.Store, Clock: o.Clock, Absence: o.Absence, Log: o.Log})
	if err != nil {
		return nil, err
	}
	p.Book = agreement.NewBook(o.Role, p.Store, o.Permits, agreement.Closer{Close: p.closeToo, Waits: o.Waits}, o.Log)
	if err := p.openTasks(ctx, configured, o.Import); err != nil {
		return nil, err
	}
	return p, p.openKeys(ctx, &o)
}

// openStore opens the engine that the options name.
func (p *Party) openStore(ctx context.Context, o *Options) (err error) {
	if o.Database == nil {
		local, err := sqlite.Open(ctx, sqlite.Options{
			FS: o.FS, Record: o.Record, Role: o.Role, Party: o.Base,
			Clock: o.Clock, Failpoints: o.Failpoints, Logger: o.Log, Observe: o.Observe.Transaction,
		})
		if err != nil {
			return err
		}
		p.Local, p.Store, p.Leader, p.Helper = local, local, local, local
		return nil
	}
	switch _, err := o.FS.Stat(sqlite.DefaultFile); {
	case err == nil:
		return &aggregator.StoreError{Fault: aggregator.ForeignStore, Role: o.Role.String(),
			Detail: "the data directory has the store of an aggregator without a database, which no database takes over"}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	beside, err := p.openObjects(ctx, o)
	if err != nil {
		return err
	}
	if o.Database.Marks == nil {
		o.Log.Warn("not protected: " + status.NoMarks)
	} else {
		if p.marked, p.marks, err = objects.Marks(ctx, o.Database.Marks); err != nil {
			return err
		}
		defer func() {
			if err != nil && p.Store == nil {
				err = errors.Join(err, p.marks.Close())
			}
		}()
	}
	database := postgres.DatabaseOf(o.Database)
	database.Clock, database.Observe, database.Failpoints, database.Prefix = o.Clock, o.Observe.Transaction, o.Failpoints, "store"
	rows, err := postgres.Open(ctx, postgres.Options{
		Database: database, Role: o.Role, Party: o.Base, Clock: later{p}, Objects: beside, Marks: p.marked,
		Wrapper: func(ctx context.Context) (wrap.Wrapper, error) { return p.openWrapping(ctx, o.Database) },
		Keys:    func(context.Context, datakey.Book) (postgres.Keys, error) { return later{p}, nil },
	})
	if err != nil {
		if p.wrapping != nil {
			err = errors.Join(err, p.wrapping.Close())
		}
		return err
	}
	p.Shared, p.Store, p.Leader, p.Helper, p.Objects = rows, rows, rows, rows, beside
	p.replica.member = rows.Member()
	if err := p.openVaults(ctx, rows); err != nil {
		return errors.Join(err, p.CloseStore())
	}
	return nil
}

// openObjects opens the object storage of uploads, and finds out whether it keeps the
// contract of [payload]; nil where all are rows.
func (p *Party) openObjects(ctx context.Context, o *Options) (s payload.Store, err error) {
	if given, ok := payload.For(ctx); ok && o.Role == dap.RoleLeader {
		s, p.RowBytes = given.Store, given.RowBytes
	} else if o.Database.Objects == nil {
		return nil, nil
	} else if s, err = objects.Configured(o.Database.Objects); err != nil {
		return nil, err
	}
	if err := payload.Probe(ctx, s, "probe/"); err != nil {
		return nil, fmt.Errorf("object storage: %w", err)
	}
	return s, nil
}

// vaults are where keys are that replicas share; nil where they lie in directories.
type vaults struct{ hpke, data, signed vault.Vault }

// openWrapping opens the keys that wrap what the database has, and tries the newest.
func (p *Party) openWrapping(ctx context.Context, d *aggregator.Database) (wrap.Wrapper, error) {
	keys, err := keeper.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	p.wrapping = keys
	if err := keys.Try(ctx); err != nil {
		return nil, fmt.Errorf("wrapping keys: %w", err)
	}
	return keys, nil
}

func (p *Party) openVaults(ctx context.Context, rows *postgres.Store) (err error) {
	for purpose, into := range map[int]*vault.Vault{
		postgres.PurposeHPKE: &p.vaults.hpke, postgres.PurposeData: &p.vaults.data, postgres.PurposeSigned: &p.vaults.signed,
	} {
		if *into, err = rows.Vault(ctx, postgres.VaultOptions{Purpose: purpose, Wrapper: p.wrapping}); err != nil {
			return err
		}
	}
	return nil
}

// CloseStore closes what was opened, the store first. All work has ended: other replicas need
// not wait for this one. Where it cannot say so they hold it dead after a while, as one that
// was killed.
func (p *Party) CloseStore() error {
	p.leave()
	if p.vaults.hpke != nil {
		if err := p.vaults.hpke.Leave(context.Background()); err != nil {
			p.opt.Log.Warn("the others are not told that this process ends", "error", err)
		}
	}
	err := p.Store.Close()
	if p.wrapping != nil {
		err = errors.Join(err, p.wrapping.Close())
	}
	if p.marks != nil {
		err = errors.Join(err, p.marks.Close())
	}
	return err
}

// later are the parts that are opened after the store, on which they stand, and which it
// uses once it has work to do.
type later struct{ p *Party }

func (l later) At(ctx context.Context, at time.Time) (*datakey.Key, error) {
	return l.p.Data.At(ctx, at)
}
func (l later) By(serial uint64) (*datakey.Key, error) { return l.p.Data.By(serial) }
func (l later) NewTimer(d time.Duration) disk.Timer    { return l.p.opt.Clock.NewTimer(d) }

// Now is the steady time, and the machine's before that is known.
func (l later) Now() time.Time {
	if l.p.Steady == nil {
		return l.p.opt.Clock.Now()
	}
	return l.p.Steady.Now()
}

// openKeys opens the keys, which the tasks that there are say more of than the options.
func (p *Party) openKeys(ctx context.Context, o *Options) (err error) {
	known, err := p.Store.KeysWereMade(ctx)
	if err != nil {
		return err
	}
	signing := o.Signing
	if signing == nil {
		for _, t := range p.Tasks.Opened() {
			if t.Deployment == nil {
				continue
			}
			state, err := p.Store.TaskState(ctx, t.ID)
			if err != nil {
				return err
			}
			if state == (store.TaskState{}) {
				return &aggregator.TaskError{Fault: aggregator.TaskUnsigned, Task: t.ID, Detail: noSigner(p.role)}
			}
		}
	} else {
		all := *signing
		for _, t := range p.Tasks.Opened() {
			if t.Deployment == nil {
				continue
			}
			if err := all.Fits(t.Deployment); err != nil {
				return fmt.Errorf("task %v: %w", t.ID, err)
			}
			all.Deployments = keyset.Joined(all.Deployments, t.Deployment)
		}
		signing = &all
	}
	p.Keys, err = keyset.New(ctx, p.schedule(o.KeySchedule, signing), keyset.Options{
		Vault: p.vaults.hpke, FS: o.FS, Known: known, Configured: o.Keys, Clock: p.Steady, Failpoints: o.Failpoints, Log: o.Log,
	})
	if err == nil && o.KeySchedule != nil {
		err = p.Store.NoteKeys(ctx)
	}
	if err != nil {
		return err
	}
	p.Data, err = datakey.Open(ctx, datakey.Options{
		Vault: p.vaults.data, FS: o.Record, Book: p.Store, Period: o.DataKeyPeriod, Keep: o.Retention, Clock: p.Steady, Failpoints: o.Failpoints, Log: o.Log,
	})
	if err != nil {
		return err
	}
	p.Server.Keys = p.Keys
	if signing != nil {
		shared := *signing
		if p.vaults.signed != nil {
			shared.Record = p.vaults.signed
		}
		p.Server.Notary, err = keyset.NewNotary(p.Keys, shared, o.Record)
	}
	return err
}

// preference is the order in which suites are offered: devices of recipes that name none
// take the first.
var preference = []sealed.Suite{sealed.SuiteX25519, sealed.SuiteXWing}

// schedule is the configured one, with the suites of the store's tasks, and promises that
// reach as far as what is signed.
func (p *Party) schedule(by *keyset.Schedule, signing *keyset.Signing) *keyset.Schedule {
	if by == nil {
		return nil
	}
	all := *by
	if len(p.noted.kems) > 0 {
		all.Suites = nil
		for _, suite := range preference {
			if p.noted.kems[suite.KEM] || slices.Contains(by.Suites, suite) {
				all.Suites = append(all.Suites, suite)
			}
		}
	}
	if signing != nil {
		all.Promise = max(all.Promise, signing.PromiseFor(cmp.Or(all.Overlap, keyset.DefaultOverlap)))
	}
	return &all
}
