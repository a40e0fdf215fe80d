package helper

import (
	"fmt"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/party"
	"github.com/starling-agg/starling/aggregator/internal/watch"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
)

// levels is how the store was when it was read last. Safe for concurrent use.
type levels struct {
	mu    sync.Mutex
	files aggregator.Files
	err   error
	read  time.Time // by the machine's clock
}

// Levels are how full the helper is.
func (h *Helper) Levels() aggregator.Levels {
	out := aggregator.Levels{Used: h.party.Quota.Used(), InFlight: h.opt.Limits.InFlight - h.srv.Budget.Free(), DiskFree: -1, Held: h.holds.number(),
		KeyAge: edge.KeyAge(h.Keys(), h.opt.Clock.Now())}
	h.rates.Measure(&out)
	if free, known := disk.Free(h.opt.FS); known {
		out.DiskFree = free
	}
	h.levels.mu.Lock()
	defer h.levels.mu.Unlock()
	out.Files = h.levels.files
	watch.Held(&out, &h.permits)
	if out.Store = h.levels.err; out.Store == nil && time.Since(h.levels.read) > party.Stale {
		out.Store = fmt.Errorf("the store has not answered for %v", time.Since(h.levels.read).Round(time.Second))
	}
	return out
}

// Readiness is what the helper can do at the moment: it takes jobs, verifies them at once,
// and releases shares.
func (h *Helper) Readiness() service.Readiness {
	r, now := service.Ready(true), h.Levels()
	for _, a := range []*service.Ability{&r.Take, r.Verify, &r.Release} {
		a.Because(service.ReasonStore, now.Store)
		a.Because(service.ReasonDisk, h.room.Work())
	}
	r.Release.Because(service.ReasonStore, h.party.MarksUnreached())
	if now.Held > 0 {
		r.Release.Because(service.ReasonHeld, fmt.Errorf("%d batches are held, for too many reports or too few: starling why", now.Held))
	}
	return r
}
