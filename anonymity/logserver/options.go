package logserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/endpoint"
)

// A Judge says what follows from an entry whose owners have signed it, and refuses every
// other with an error that its sender may read. It looks at no clock and must say the
// same each time. It must be safe for concurrent use.
type Judge func(e tlog.Entry) (tlog.Claim, error)

// Options make a log.
type Options struct {
	// Key signs checkpoints; its name is the log's origin. Required.
	Key *tlog.Secret
	// Policy is the one that devices have: it must name the key, and the address of each
	// witness that the log is to ask. Required.
	Policy *tlog.Policy
	// Judge says which entries may be in the log. Required.
	Judge Judge
	// FS has the entries, Record the last checkpoint that was shown. Required, and used by
	// one process at a time.
	FS, Record disk.FS
	// Interval is the least time between two checkpoints; default 5 s.
	Interval time.Duration
	// Republish is after how long a checkpoint is signed again though nothing is new, so
	// that devices see that the log lives; default 1 h.
	Republish time.Duration
	// Period is that in which the same entries hold; default 1 h. It begins at multiples.
	Period time.Duration
	// Ahead is how long before its time an entry is in the bundle; default 48 h.
	Ahead time.Duration
	// Limits bound what can be sent.
	Limits Limits
	// Transport carries requests to witnesses; default one of its own.
	Transport http.RoundTripper
	// Now is the clock; default time.Now.
	Now func() time.Time
	// Log is told of what goes wrong; default none.
	Log *slog.Logger
	// Failpoints is nil in production.
	Failpoints *disk.Failpoints
}

// Limits bound what a log holds and what strangers can make it do. Zero fields take the
// defaults.
type Limits struct {
	// Entries is how many the log takes in its life; default 262,144.
	Entries int
	// Bytes is how long all of them may be together; default 1 GiB.
	Bytes int64
	// PerHour is how many are taken in an hour, from all owners; default 600. One owner may
	// add half of what the others have left.
	PerHour int
	// Requests to add are worked on at one time; default 16.
	Requests int
}

const (
	maxInterval = time.Hour
	minPeriod   = time.Second
	maxPeriod   = 24 * time.Hour
	maxAhead    = 90 * 24 * time.Hour
	maxBytes    = 1 << 30
)

// WithDefaults fills in the zero fields.
func (l Limits) WithDefaults() Limits {
	for _, f := range []struct {
		v *int
		d int
	}{{&l.Entries, 1 << 18}, {&l.PerHour, 600}, {&l.Requests, 16}} {
		if *f.v == 0 {
			*f.v = f.d
		}
	}
	if l.Bytes == 0 {
		l.Bytes = maxBytes
	}
	return l
}

// Validate says what is wrong with limits.
func (l Limits) Validate() error {
	if l.Entries < 0 || l.Bytes < 0 || l.PerHour < 0 || l.Requests < 0 {
		return errors.New("logserver: limits: negative")
	}
	if l.Bytes > maxBytes {
		return fmt.Errorf("logserver: limits: more than %d bytes", maxBytes)
	}
	return nil
}

// Validate fills in defaults and says what is missing or cannot be.
func (o *Options) Validate() error {
	for _, f := range []struct {
		v *time.Duration
		d time.Duration
	}{{&o.Interval, 5 * time.Second}, {&o.Republish, time.Hour}, {&o.Period, time.Hour}, {&o.Ahead, 48 * time.Hour}} {
		if *f.v == 0 {
			*f.v = f.d
		}
	}
	switch {
	case o.Key == nil || o.Policy == nil || o.Judge == nil || o.FS == nil || o.Record == nil:
		return errors.New("logserver: no key, policy, judge or directory")
	case o.Interval < 0 || o.Interval > maxInterval:
		return fmt.Errorf("logserver: Interval: from 0 to %v", maxInterval)
	case o.Republish < o.Interval || o.Republish > tlog.MaxAge/2:
		return fmt.Errorf("logserver: Republish: from the interval to %v, or devices take the log for dead", tlog.MaxAge/2)
	case o.Period < minPeriod || o.Period > maxPeriod || o.Period%time.Second != 0:
		return fmt.Errorf("logserver: Period: whole seconds from %v to %v", minPeriod, maxPeriod)
	case o.Ahead < 0 || o.Ahead > maxAhead:
		return fmt.Errorf("logserver: Ahead: from 0 to %v", maxAhead)
	}
	if err := CheckPolicy(o.Policy, o.Key.Key()); err != nil {
		return err
	}
	if err := o.Limits.Validate(); err != nil {
		return err
	}
	o.Limits = o.Limits.WithDefaults()
	if o.Transport == nil {
		o.Transport = &http.Transport{TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 90 * time.Second, ForceAttemptHTTP2: true, DisableCompression: true}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// ErrPolicy: a log cannot work by a policy.
var ErrPolicy = errors.New("logserver: the policy does not fit the log")

// CheckPolicy says with [ErrPolicy] why a log with a key cannot work by a policy: it does
// not name the key, or an address is none. A witness without an address is not asked.
func CheckPolicy(p *tlog.Policy, key *tlog.Key) error {
	if !slices.ContainsFunc(p.Logs(), func(l tlog.Party) bool { return l.Key.String() == key.String() }) {
		return fmt.Errorf("%w: it does not name the log's key %s", ErrPolicy, key)
	}
	for _, w := range p.Witnesses() {
		if w.URL == "" {
			continue
		}
		if err := endpoint.CheckPeer(w.URL); err != nil {
			return fmt.Errorf("%w: witness %s: %w", ErrPolicy, w.Name, err)
		}
	}
	return nil
}
