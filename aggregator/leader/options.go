package leader

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
)

// Options make a leader.
type Options struct {
	aggregator.Options

	// Transport carries requests to helpers; default [http.DefaultTransport].
	Transport http.RoundTripper
	// HelperTimeout bounds one request to a helper, answer included; default 60 s.
	HelperTimeout time.Duration
	// Patience is how long a worker keeps a verified job in memory while the helper defers
	// its answer; after that the job is given back and computed again. Default 20 s;
	// negative gives it back at once.
	Patience time.Duration
	// Lease is how long a claimed job belongs to its worker, once for the verification of
	// one job and once more for asking the helper; default 5 minutes, and it has to cover
	// HelperTimeout and Patience. With a Database a worker renews its claims for as long as
	// it lives, and Lease, default 20 s, is how long the jobs of one that died wait.
	Lease time.Duration
	// Latency is how long an acknowledged report may wait for company before its log is
	// sorted; default 250 ms.
	Latency time.Duration
	// MaxJobReports and MaxJobBytes bound one aggregation job; defaults 4096 and 6 MiB (4 MiB
	// where reports have 256 KiB or more).
	MaxJobReports, MaxJobBytes int
	// Agree is how often the leader compares with its helpers what they hold and have
	// released; default 1 minute.
	Agree time.Duration
	// BackOff is the first pause after a failed attempt, doubled up to MaxBackOff;
	// defaults 1 s and 5 minutes.
	BackOff, MaxBackOff time.Duration
}

// Validate fills in defaults and reports what is missing.
func (o *Options) Validate() error {
	if o.Transport == nil {
		o.Transport = http.DefaultTransport
	}
	lease, shortest := 5*time.Minute, cmp.Or(o.HelperTimeout, 60*time.Second)+cmp.Or(o.Patience, 20*time.Second)
	if o.Database != nil {
		lease, shortest = 20*time.Second, time.Second
	}
	for _, d := range []struct {
		v *time.Duration
		d time.Duration
	}{
		{&o.HelperTimeout, 60 * time.Second}, {&o.Patience, 20 * time.Second}, {&o.Lease, lease},
		{&o.Latency, 250 * time.Millisecond}, {&o.Agree, time.Minute}, {&o.BackOff, time.Second}, {&o.MaxBackOff, 5 * time.Minute},
	} {
		if *d.v == 0 {
			*d.v = d.d
		}
	}
	switch {
	case o.KeySchedule != nil && o.KeySchedule.Delay != 0:
		return errors.New("leader: KeySchedule.Delay is for helpers")
	case o.HelperTimeout < 0 || o.Lease < 0 || o.Latency < 0 || o.Agree < 0 || o.BackOff < 0 || o.MaxBackOff < 0:
		return errors.New("leader: negative duration")
	case o.Lease < shortest:
		return fmt.Errorf("leader: Lease is %v, want %v or more", o.Lease, shortest)
	}
	var err error
	if o.Limits, err = o.Limits.ForTasks(o.Tasks); err == nil {
		err = o.Options.Validate()
	}
	if err != nil {
		return fmt.Errorf("leader: %w", err)
	}
	return nil
}

// most is what one job takes.
func (o *Options) most() store.Most {
	return store.Most{
		Bytes:   int64(cmp.Or(o.MaxJobBytes, segment.DefaultBytes)),
		Reports: cmp.Or(o.MaxJobReports, segment.DefaultReports),
	}
}
