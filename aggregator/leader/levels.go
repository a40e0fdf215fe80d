package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/edge"
	"github.com/starling-agg/starling/aggregator/internal/party"
	"github.com/starling-agg/starling/aggregator/internal/peer"
	"github.com/starling-agg/starling/aggregator/internal/room"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/watch"
	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
)

// levels is what was read lately of the store and of the helper. Safe for concurrent use.
type levels struct {
	mu    sync.Mutex
	store store.Levels
	held  int
	files aggregator.Files
	err   error     // of the last reading
	read  time.Time // of the last reading, by the machine's clock
	peer  error     // why the helper did not answer last
	asked time.Time // when it was last asked, by the machine's clock
}

// readLevels reads the store's counts, tells the observer of them, and keeps what gauges
// and readiness want.
func (l *Leader) readLevels(ctx context.Context) error {
	waiting, err := l.ledger.Tell(ctx, l.store, &l.opt.Observe)
	var now store.Levels
	if err == nil {
		l.backlog.named.Store(int64(waiting))
		now, err = l.store.Levels(ctx)
	}
	if err == nil {
		err = l.party.ReadQuota(ctx, l.unsorted)
	}
	held := 0
	if err == nil {
		var waits map[dap.TaskID]pendings
		waits, err = l.waits(ctx)
		for _, p := range waits {
			held += len(p.held)
		}
	}
	var files aggregator.Files
	if err == nil {
		files, err = watch.Files(ctx, l.opt.FS, l.store, len(l.data.Missing()))
	}
	if ctx.Err() != nil {
		return err // whoever asked has gone; that says nothing of the store
	}
	v := &l.levels
	v.mu.Lock()
	defer v.mu.Unlock()
	v.err, v.read = err, time.Now()
	if err == nil {
		v.store, v.held, v.files = now, held, files
	}
	return err
}

// unsorted are the acknowledged bytes that no row names.
func (l *Leader) unsorted() int64 { return l.intake.unnamed().Unsorted }

// heard keeps whether the helper has answered.
func (v *levels) heard(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked, v.peer = time.Now(), nil
	var silent *peer.Retry
	if errors.As(err, &silent) {
		v.peer = silent
	}
}

// probeEvery is how long nothing may be heard of the helper before it is asked how it is.
const probeEvery = 10 * time.Second

// probe asks the helper of some task for its progress, where nothing else was asked lately.
func (l *Leader) probe(ctx context.Context) (bool, error) {
	v := &l.levels
	v.mu.Lock()
	recent := time.Since(v.asked) < probeEvery
	v.mu.Unlock()
	if recent {
		return false, nil
	}
	for _, t := range l.tasks.Opened() {
		if gone, err := l.party.Retired(ctx, t.ID); err != nil {
			return false, err
		} else if gone {
			continue
		}
		ask, cancel := context.WithTimeout(ctx, askPeer)
		defer cancel()
		var p status.Peer
		l.helper.Progress(ask, t, &p) // heard hears of it
		break
	}
	return false, nil
}

// Levels are how full the leader is.
func (l *Leader) Levels() aggregator.Levels {
	in := l.intake.unnamed()
	v := &l.levels
	v.mu.Lock()
	defer v.mu.Unlock()
	out := aggregator.Levels{
		Backlog: l.waiting(), InboxBytes: in.Unsorted, InFlight: l.opt.Limits.InFlight - l.srv.Budget.Free() + in.InFlight, DiskFree: -1,
		Failing: v.store.Failing, Parked: v.store.Parked, SetAside: v.store.SetAside, Held: v.held,
		KeyAge: edge.KeyAge(l.Keys(), l.opt.Clock.Now()), Peer: v.peer, Store: v.err, Files: v.files,
		Used: l.party.Quota.Used(),
	}
	l.compared.Measure(&out)
	watch.Held(&out, &l.permits)
	if v.err == nil && time.Since(v.read) > party.Stale {
		out.Store = fmt.Errorf("the store has not answered for %v", time.Since(v.read).Round(time.Second))
	}
	if err := l.intake.broken(); err != nil {
		out.Store = fmt.Errorf("uploads fail until a restart: %w", err)
	}
	if free, known := disk.Free(l.opt.FS); known {
		out.DiskFree = free
	}
	oldest := in.Oldest
	if s := v.store.Oldest; !s.IsZero() && (oldest.IsZero() || s.Before(oldest)) {
		oldest = s
	}
	if out.Backlog > 0 && !oldest.IsZero() {
		out.Oldest = max(0, l.opt.Clock.Now().Sub(oldest))
	}
	return out
}

// Readiness is what the leader can do at the moment. Without its helper it still takes
// uploads.
func (l *Leader) Readiness() service.Readiness {
	r, now := service.Ready(true), l.Levels()
	for _, a := range []*service.Ability{&r.Take, r.Verify, &r.Release} {
		a.Because(service.ReasonStore, now.Store)
	}
	r.Verify.Because(service.ReasonStore, l.intake.behind())
	switch err := l.takes(now.Backlog); {
	case err == nil:
	case errors.Is(err, room.ErrStored):
		r.Take.Because(service.ReasonQuota, err)
	case errors.Is(err, room.ErrBacklog):
		r.Take.Because(service.ReasonBacklog, err)
	default:
		r.Take.Because(service.ReasonDisk, err)
	}
	for _, a := range []*service.Ability{r.Verify, &r.Release} {
		a.Because(service.ReasonDisk, l.room.Work())
		a.Because(service.ReasonPeer, now.Peer)
	}
	r.Release.Because(service.ReasonStore, l.party.MarksUnreached())
	if now.Parked > 0 {
		r.Verify.Because(service.ReasonHeld, fmt.Errorf("%d acknowledged reports are kept until you decide: starling resume", now.Parked))
	}
	if now.Held > 0 {
		r.Release.Because(service.ReasonHeld, fmt.Errorf("%d batches are held, for too many reports or too few: starling why", now.Held))
	}
	return r
}
