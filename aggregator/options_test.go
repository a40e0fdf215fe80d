package aggregator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/helper"
	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/leader"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// TestOptionsRefused: leader and helper refuse the same options for the same reason, and
// open nothing.
func TestOptionsRefused(t *testing.T) {
	p := newPair(t, setup{})
	refusals := func(o aggregator.Options) (both [2]string) {
		l, err := leader.New(context.Background(), leader.Options{Options: o})
		if err == nil {
			l.Close()
			return both
		}
		both[0] = err.Error()
		o.Base = p.helperURL
		h, err := helper.New(context.Background(), helper.Options{Options: o})
		if err == nil {
			h.Close()
			return both
		}
		both[1] = err.Error()
		return both
	}
	for says, change := range map[string]func(*aggregator.Options){
		"no task":                        func(o *aggregator.Options) { o.Tasks = nil },
		"no HPKE key":                    func(o *aggregator.Options) { o.Keys = nil },
		"no file system":                 func(o *aggregator.Options) { o.FS = nil },
		"no file system for the record":  func(o *aggregator.Options) { o.Record = nil },
		"negative duration":              func(o *aggregator.Options) { o.Idle = -1 },
		"limits: negative":               func(o *aggregator.Options) { o.Limits.Jobs = -1 },
		"limits: InFlight is smaller":    func(o *aggregator.Options) { o.Limits.InFlight = 1 },
		"keyset: a new key every 1s":     func(o *aggregator.Options) { o.KeySchedule = &keyset.Schedule{Period: time.Second} },
		"no noise is given; noise.Zero ": func(o *aggregator.Options) { o.Tasks = withNoise(o.Tasks, nil) },
	} {
		o := p.leaderOpt.Options
		o.FS, o.Record = disktest.NewMem(1), disktest.NewMem(2)
		change(&o)
		got := refusals(o)
		leaders, ok1 := strings.CutPrefix(got[0], "leader: ")
		helpers, ok2 := strings.CutPrefix(got[1], "helper: ")
		if !ok1 || !ok2 || leaders != helpers || !strings.Contains(leaders, says) {
			t.Errorf("%s: the leader says %q, the helper %q", says, got[0], got[1])
		}
	}
}
