package helper

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/sealed"
)

// ahead is the machine's clock, put forward.
type ahead struct{ by atomic.Int64 }

func (c *ahead) Now() time.Time                      { return time.Now().Add(time.Duration(c.by.Load())) }
func (c *ahead) NewTimer(d time.Duration) disk.Timer { return disk.SystemClock.NewTimer(d) }

// TestUnfinishedJobsKeepKeys: a job that came before a key's end, and that is stored or
// between two rounds, keeps the key; a job that comes later finds it gone even so, and
// cannot keep it.
func TestUnfinishedJobsKeepKeys(t *testing.T) {
	for name, c := range map[string]struct {
		deferred Deferred
		two      bool
	}{
		"one round, stored":         {deferred: Always},
		"two rounds":                {two: true},
		"two rounds, stored":        {deferred: Always, two: true},
		"two rounds, first is done": {deferred: Always, two: true},
	} {
		t.Run(name, func(t *testing.T) {
			clock := new(ahead)
			r := newRigWith(t, func(o *Options) {
				o.Keys, o.Clock, o.Deferred = nil, clock, c.deferred
				o.KeySchedule = &keyset.Schedule{Period: time.Hour, MaxAge: time.Hour, Delay: time.Hour}
			})
			if !c.two {
				r.h.engine = r.h.engine.(twoRounds).Engine
			}
			r.key = r.h.keys.Keyring().Keys()[0]
			keys := func() {
				t.Helper()
				check[bool](t)(r.h.stepKeys(t.Context()))
			}
			key := func() status.Key {
				for _, k := range r.h.keys.Status() {
					if k.ID == r.key.ID() {
						return k
					}
				}
				return status.Key{}
			}
			clock.by.Store(int64(time.Hour))
			keys()
			loc, ids := r.start(3)
			if strings.HasSuffix(name, "done") {
				check[bool](t)(r.h.stepJobs(t.Context()))
			}
			clock.by.Store(int64(5 * time.Hour)) // the end was after 4
			keys()
			if k := key(); k.State != status.KeyRetiring || k.Why != "1 aggregation jobs that came before its end are unfinished" {
				t.Fatalf("%+v", k)
			}
			r.h.opt.Deferred = Never
			late, _ := r.request(2)
			for _, resp := range r.resps(r.post(late)) {
				if resp.Type != dap.Reject || resp.Error != dap.HpkeUnknownConfigID {
					t.Errorf("a report that came after the end: %v %v", resp.Type, resp.Error)
				}
			}
			keys()
			if k := key(); k.State != status.KeyRetiring {
				t.Fatalf("%+v", k)
			}
			check[bool](t)(r.h.stepJobs(t.Context()))
			if c.two {
				keys()
				if k := key(); k.State != status.KeyRetiring {
					t.Fatalf("between two rounds: %+v", k)
				}
				at, _, _ := strings.Cut(loc, "?")
				if w := r.next(at, 1, word, ids...); w.Code != 200 || len(r.resps(w)) != 3 {
					t.Fatalf("step 1: status %d %s", w.Code, w.Body)
				}
			}
			s := check[*statusOf](t)(r.status())
			if s.aggregated != 3 || s.rejected[dap.HpkeUnknownConfigID.String()] != 2 {
				t.Errorf("%+v", s)
			}
			keys()
			if k := key(); k.State != status.KeyDestroyed {
				t.Errorf("%+v", k)
			}
			if _, err := r.h.keys.Keyring().Open(r.key.ID(), nil, nil, nil, nil); err == nil || !strings.Contains(err.Error(), sealed.ErrUnknownKey.Error()) {
				t.Errorf("the key ring still has it: %v", err)
			}
		})
	}
}
