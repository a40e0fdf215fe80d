// Package lease runs the workers of an aggregator: loops that claim work under a lease,
// do it, and sleep when there is none.
//
// Leases themselves are the store's: a claim has a token that fences every later write,
// and ends by itself. So a worker that dies, hangs or loses power needs no cleaning up
// after; its work is claimed again and done by the same code.
package lease

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/internal/disk"
)

// Backoff is how long to wait after a number of failed attempts, 1 or more: it doubles
// from base up to limit, and half of it is random, so that workers which failed together
// do not come back together.
func Backoff(attempts int, base, limit time.Duration) time.Duration {
	d := base
	for i := 1; i < attempts && d < limit; i++ {
		d *= 2
	}
	d = min(d, limit)
	var b [8]byte
	rand.Read(b[:])
	half := uint64(d / 2)
	return d - time.Duration(half) + time.Duration(binary.BigEndian.Uint64(b[:])%(half+1))
}

// A Pass does what there is to do now and says whether there may be more at once.
type Pass func(ctx context.Context) (more bool, err error)

// A Runner repeats passes. Make one with New; start its loops with Go; Stop ends them.
type Runner struct {
	clock  disk.Clock
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	fatal error // the first ErrUnknown
}

// New returns a runner without loops.
func New(clock disk.Clock, log *slog.Logger) *Runner {
	ctx, cancel := context.WithCancel(context.Background())
	return &Runner{clock: clock, log: log, ctx: ctx, cancel: cancel}
}

// Go runs pass until Stop: at once while there is more, otherwise when wake is ready or
// idle has passed. A pass that fails is repeated after idle; one that leaves the store's
// state unknown ends all loops, because only a restart tells what happened.
func (r *Runner) Go(name string, idle time.Duration, wake <-chan struct{}, pass Pass) {
	r.done.Go(func() {
		for r.ctx.Err() == nil {
			more, err := pass(r.ctx)
			switch {
			case errors.Is(err, store.ErrUnknown):
				r.log.Error("worker stopped: state unknown until restart", "worker", name, "error", err)
				r.mu.Lock()
				if r.fatal == nil {
					r.fatal = err
				}
				r.mu.Unlock()
				r.cancel()
				return
			case err != nil && r.ctx.Err() == nil:
				r.log.Warn("worker pass failed", "worker", name, "error", err)
			case more:
				continue
			}
			timer := r.clock.NewTimer(idle)
			select {
			case <-wake:
			case <-timer.C():
			case <-r.ctx.Done():
			}
			timer.Stop()
		}
	})
}

// Done is closed when the loops are told to end, by Stop or by an unknown outcome.
func (r *Runner) Done() <-chan struct{} { return r.ctx.Done() }

// Err is the error that ended the loops, or nil.
func (r *Runner) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fatal
}

// Stop ends the loops and waits for passes under way; their context is cancelled.
func (r *Runner) Stop() {
	r.cancel()
	r.done.Wait()
}

// Signal makes a channel for Go and a function that makes it ready; many signals before a
// pass are one.
func Signal() (wake chan struct{}, signal func()) {
	c := make(chan struct{}, 1)
	return c, func() {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}
