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
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/agreement"
	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/permit"
	"github.com/starling-agg/starling/aggregator/internal/steady"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/task"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/body"
)

// Options are those that leader and helper share, and what their services add.
type Options struct {
	aggregator.Options
	Role dap.Role
	// Permits say what the aggregator may do, and Closed whether it has been closed. They
	// are the caller's.
	Permits *permit.Board
	Closed  func() bool
}

// A Party is what was opened. The caller closes the store.
type Party struct {
	Tasks  *task.Table
	Server *edge.Server // without routes
	Store  store.Engine
	Local  *sqlite.Store // the same: where it is the embedded engine
	Steady *steady.Clock
	Book   *agreement.Book
	Keys   *keyset.Set
	Data   *datakey.Set

	opt    aggregator.Options
	role   dap.Role
	adding sync.Mutex // one Add at a time
}

// Open opens all of it, or nothing.
func Open(ctx context.Context, o Options) (_ *Party, err error) {
	base, err := edge.BasePath(o.Base)
	if err != nil {
		return nil, err
	}
	p := &Party{opt: o.Options, role: o.Role}
	if p.Tasks, err = task.Set(o.Tasks, o.Role); err != nil {
		return nil, err
	}
	p.Server = &edge.Server{
		Base: base, Tasks: p.Tasks, Limits: o.Limits,
		Budget: body.NewBudget(o.Limits.InFlight), Log: o.Log, Closed: o.Closed,
	}
	p.Local, err = sqlite.Open(ctx, sqlite.Options{
		FS: o.FS, Record: o.Record, Role: o.Role, Party: o.Base,
		Clock: o.Clock, Failpoints: o.Failpoints, Logger: o.Log, Observe: o.Observe.Transaction,
	})
	if err != nil {
		return nil, err
	}
	p.Store = p.Local
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Store.Close())
		}
	}()
	for _, t := range p.Tasks.All() {
		if err := p.Store.PutTask(ctx, t.Stored(o.Limits.ClockSkew)); err != nil {
			return nil, fmt.Errorf("provision: %w", err)
		}
	}
	if err := p.recall(ctx, o.Provide); err != nil {
		return nil, err
	}
	p.Steady, err = steady.Open(ctx, steady.Options{Keeper: p.Store, Clock: o.Clock, Absence: o.Absence, Log: o.Log})
	if err != nil {
		return nil, err
	}
	if p.Book, err = agreement.NewBook(ctx, o.Role, p.Tasks, p.Store, o.Permits, o.Log); err != nil {
		return nil, err
	}
	return p, p.openKeys(ctx, &o)
}

func (p *Party) openKeys(ctx context.Context, o *Options) (err error) {
	known, err := p.Store.KeysWereMade(ctx)
	if err != nil {
		return err
	}
	p.Keys, err = keyset.New(ctx, o.KeySchedule, keyset.Options{
		FS: o.FS, Known: known, Configured: o.Keys, Clock: p.Steady, Failpoints: o.Failpoints, Log: o.Log,
	})
	if err == nil && o.KeySchedule != nil {
		err = p.Store.NoteKeys(ctx)
	}
	if err != nil {
		return err
	}
	p.Data, err = datakey.Open(ctx, datakey.Options{
		FS: o.Record, Book: p.Store, Period: o.DataKeyPeriod, Keep: o.Retention, Clock: p.Steady, Failpoints: o.Failpoints, Log: o.Log,
	})
	if err != nil {
		return err
	}
	p.Server.Keys = p.Keys
	if o.Signing != nil {
		p.Server.Notary, err = keyset.NewNotary(p.Keys, *o.Signing, o.Record)
	}
	return err
}
