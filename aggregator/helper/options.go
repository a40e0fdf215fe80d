package helper

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
)

// Deferred says when a helper answers later instead of at once.
type Deferred uint8

const (
	// Never: the answer to a request is the result. The default.
	Never Deferred = iota
	// Always: requests are stored and answered by a worker; the leader polls. For helpers behind proxies that cut long
	// requests. A request, which holds the clients' sealed shares, is erased from the database's files with its last step.
	Always
)

// Options make a helper.
type Options struct {
	// Base is the URL under which [Helper.Handler] is reached; it may have a path. Required.
	Base string
	// Tasks are the provisioned tasks. Required, at least one.
	Tasks []aggregator.Task
	// Keys are HPKE keys of the operator's own. Without KeySchedule they are what clients seal to, best first, and at least one is
	// required; with it they are taken beside the service's own keys and not offered, so that a service can pass from the one to
	// the other.
	Keys *sealed.Keyring
	// KeySchedule has the service make, offer and destroy HPKE keys by itself, in FS under "keys". Optional. Its Delay is how
	// long after the last upload the leader may come with a job.
	KeySchedule *keyset.Schedule
	// Signing has the service vouch for its HPKE keys, in lists and manifests, for
	// recipes that name signing keys. Optional.
	Signing *keyset.Signing
	// FS holds the service's files, and no one else's: on a real disk the caller has taken its lock ([disk.OSFS.Lock]).
	// Required.
	FS disk.FS
	// Record holds what must not go back when FS does, say to a backup: who the store is,
	// and how many releases it has made; and the data keys, from which noise comes. It is
	// no one else's either, and lies outside of FS, on another disk where there is one.
	// Required.
	Record disk.FS
	// DataKeyPeriod is how much time a data key is of; default a week, at least an hour.
	DataKeyPeriod time.Duration
	// Deferred says when to answer later. Default Never.
	Deferred Deferred
	// Poll is the Retry-After of deferred answers; default 1 s.
	Poll time.Duration
	// Idle is how often a worker looks for stored jobs; default 1 s. New jobs wake it.
	Idle time.Duration
	// Retention is how long a task is kept after its interval and the clock skew allowed: until then results can be asked for
	// again. After it everything but the counts and the ledger is erased, and the task takes nothing ever again. Tasks without
	// an interval are kept. Default [aggregator.DefaultRetention]; negative keeps all tasks.
	Retention time.Duration
	// Absence is how far ahead of the time that the store was last seen at the clock may be;
	// beyond it no task is retired and no key ends until a person says that the clock is
	// right. Default [steady.DefaultAbsence], negative for any.
	Absence time.Duration
	// Limits bound what requests can do. Zero fields take the defaults.
	Limits aggregator.Limits
	// Clock is the time; default the system's.
	Clock disk.Clock
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
	// Rounds is nil in production. Tests make a VDAF of several rounds with it; see package aggregatortest.
	Rounds func(one rounds.Engine) rounds.Engine
	// Log gets one event a request; default none.
	Log *slog.Logger
	// Observe is told what happens, for metrics. Optional.
	Observe aggregator.Observer
}

// Validate fills in defaults and reports what is missing.
func (o *Options) Validate() error {
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Poll == 0 {
		o.Poll = time.Second
	}
	if o.Idle == 0 {
		o.Idle = time.Second
	}
	if o.Retention == 0 {
		o.Retention = aggregator.DefaultRetention
	}
	switch {
	case len(o.Tasks) == 0:
		return errors.New("helper: no task")
	case o.KeySchedule == nil && (o.Keys == nil || len(o.Keys.Keys()) == 0):
		return errors.New("helper: no HPKE key")
	case o.FS == nil:
		return errors.New("helper: no file system")
	case o.Record == nil:
		return errors.New("helper: no file system for the record")
	case o.Deferred > Always:
		return fmt.Errorf("helper: Deferred is %d", o.Deferred)
	case o.Poll < 0 || o.Idle < 0:
		return errors.New("helper: negative duration")
	}
	if o.KeySchedule != nil {
		if err := o.KeySchedule.Validate(); err != nil {
			return fmt.Errorf("helper: %w", err)
		}
	}
	if err := o.Limits.Validate(); err != nil {
		return fmt.Errorf("helper: %w", err)
	}
	o.Limits = o.Limits.WithDefaults()
	return nil
}
