package leader

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/rounds"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
)

// Options make a leader.
type Options struct {
	// Base is the URL under which [Leader.Handler] is reached; it may have a path. Required.
	Base string
	// Tasks are the provisioned tasks. Required, at least one.
	Tasks []aggregator.Task
	// Keys are HPKE keys of the operator's own. Without KeySchedule they are what clients seal to, best first, and at least one is
	// required; with it they are taken beside the service's own keys and not offered, so that a service can pass from the one to
	// the other.
	Keys *sealed.Keyring
	// KeySchedule has the service make, offer and destroy HPKE keys by itself, in FS under "keys". Optional. Its Delay has to be zero: a leader
	// knows what it has not folded.
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
	// Transport carries requests to helpers; default [http.DefaultTransport].
	Transport http.RoundTripper
	// HelperTimeout bounds one request to a helper, answer included; default 60 s.
	HelperTimeout time.Duration
	// Patience is how long a worker keeps a verified job in memory while the helper defers its answer; after that the job
	// is given back and computed again. Default 20 s; negative gives it back at once.
	Patience time.Duration
	// Lease is how long a claimed job belongs to its worker, once for the verification of one segment and once more for
	// asking the helper; default 5 minutes. It has to cover HelperTimeout and Patience.
	Lease time.Duration
	// Latency is how long an acknowledged report may wait for company before it is cut into a segment; default 250 ms.
	Latency time.Duration
	// SegmentReports and SegmentBytes bound one segment, and with it one aggregation job; defaults 4096 and 12 MiB (4 MiB where
	// reports have 256 KiB or more).
	SegmentReports, SegmentBytes int
	// Agree is how often the leader compares with its helpers what they hold and have
	// released; default 1 minute.
	Agree time.Duration
	// Idle is how often workers look for work that nobody announced: jobs to repeat, leases run out. Default 1 s.
	Idle time.Duration
	// Poll is the Retry-After of collection jobs that are not ready; default 1 s.
	Poll time.Duration
	// BackOff is the first pause after a failed attempt, doubled up to MaxBackOff; defaults 1 s and 5 minutes.
	BackOff, MaxBackOff time.Duration
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
	// Log gets one event a request and one a failed attempt; default none.
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
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&o.HelperTimeout, 60 * time.Second}, {&o.Patience, 20 * time.Second}, {&o.Lease, 5 * time.Minute},
		{&o.Latency, 250 * time.Millisecond}, {&o.Idle, time.Second}, {&o.Poll, time.Second},
		{&o.Agree, time.Minute}, {&o.BackOff, time.Second}, {&o.MaxBackOff, 5 * time.Minute}, {&o.Retention, aggregator.DefaultRetention},
	} {
		if *d.v == 0 {
			*d.v = d.d
		}
	}
	switch {
	case len(o.Tasks) == 0:
		return errors.New("leader: no task")
	case o.KeySchedule == nil && (o.Keys == nil || len(o.Keys.Keys()) == 0):
		return errors.New("leader: no HPKE key")
	case o.KeySchedule != nil && o.KeySchedule.Delay != 0:
		return errors.New("leader: KeySchedule.Delay is for helpers")
	case o.FS == nil:
		return errors.New("leader: no file system")
	case o.Record == nil:
		return errors.New("leader: no file system for the record")
	case o.HelperTimeout < 0 || o.Lease < 0 || o.Latency < 0 || o.Idle < 0 || o.Agree < 0 || o.Poll < 0 || o.BackOff < 0 || o.MaxBackOff < 0:
		return errors.New("leader: negative duration")
	case o.Lease < o.HelperTimeout+o.Patience:
		return errors.New("leader: Lease is shorter than HelperTimeout and Patience together")
	}
	if o.KeySchedule != nil {
		if err := o.KeySchedule.Validate(); err != nil {
			return fmt.Errorf("leader: %w", err)
		}
	}
	var err error
	if o.Limits, err = o.Limits.ForTasks(o.Tasks); err != nil {
		return fmt.Errorf("leader: %w", err)
	}
	if err := o.Limits.Validate(); err != nil {
		return fmt.Errorf("leader: %w", err)
	}
	o.Limits = o.Limits.WithDefaults()
	return nil
}
