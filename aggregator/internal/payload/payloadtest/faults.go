package payloadtest

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/internal/disk"
)

// Fault is what may go wrong with one call.
type Fault uint8

// The faults. Within the contract are those up to Denied; a store that lies or damages
// breaks it.
const (
	None    Fault = iota
	Refused       // nothing happens, and the error says that nobody knows
	Silent        // it happens, and the error says that nobody knows
	Late          // the error says that nobody knows, and it happens before a later call, or in Calm
	Full          // nothing happens: the store is full (puts)
	Denied        // nothing happens: access is denied
	Lying         // nothing happens, and success is reported (puts and deletes)
	Damaged       // one bit is turned (reads)
)

// Faults make the calls of stores fail, by a seed. All handles that it wraps share it, as
// they share a network and a server. The zero value of Clock is the system's.
type Faults struct {
	Clock disk.Clock

	mu      sync.Mutex
	delay   time.Duration
	rng     *rand.Rand
	rates   map[Fault]float64
	next    []Fault
	delayed []func()
}

// NewFaults returns faults that do not happen yet.
func NewFaults(seed uint64) *Faults {
	return &Faults{rng: rand.New(rand.NewPCG(seed, 0x7061796c6f6164))}
}

// Slow has each put wait for so long before it happens.
func (f *Faults) Slow(delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.delay = delay
}

// Rates says how often each fault happens, as shares of all calls.
func (f *Faults) Rates(rates map[Fault]float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rates = rates
}

// Next says what happens to the next calls, one after the other, before rates count
// again.
func (f *Faults) Next(faults ...Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next = append(f.next, faults...)
}

// Calm ends all faults; what is late happens now.
func (f *Faults) Calm() {
	f.mu.Lock()
	late := f.delayed
	f.rates, f.next, f.delayed = nil, nil, nil
	f.mu.Unlock()
	for _, do := range late {
		do()
	}
}

// Wrap puts the faults between a store and whoever uses it.
func (f *Faults) Wrap(s payload.Store) payload.Store { return &faulty{s, f} }

// draw says what happens to a call, and lets some of what is late happen before.
func (f *Faults) draw() Fault {
	f.mu.Lock()
	var late []func()
	for len(f.delayed) > 0 && f.rng.IntN(4) == 0 {
		at := f.rng.IntN(len(f.delayed)) // in another order than they were asked for
		late = append(late, f.delayed[at])
		f.delayed = slices.Delete(f.delayed, at, at+1)
	}
	fault := None
	if len(f.next) > 0 {
		fault, f.next = f.next[0], f.next[1:]
	} else if len(f.rates) > 0 {
		drawn := f.rng.Float64()
		for _, candidate := range slices.Sorted(maps.Keys(f.rates)) {
			if drawn -= f.rates[candidate]; drawn < 0 {
				fault = candidate
				break
			}
		}
	}
	f.mu.Unlock()
	for _, do := range late {
		do()
	}
	return fault
}

func (f *Faults) turned(p []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(p) > 0 {
		p[f.rng.IntN(len(p))] ^= 1 << f.rng.IntN(8)
	}
}

// slow waits for the delay.
func (f *Faults) slow(ctx context.Context, what string) error {
	f.mu.Lock()
	delay := f.delay
	f.mu.Unlock()
	if delay == 0 {
		return nil
	}
	clock := f.Clock
	if clock == nil {
		clock = disk.SystemClock
	}
	timer := clock.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return payload.Ended(ctx, what)
	}
}

// change makes a call that changes something.
func (f *Faults) change(ctx context.Context, what string, do func(context.Context) error) error {
	lost := fmt.Errorf("%w: %s: injected", payload.ErrUnavailable, what)
	switch f.draw() {
	case Refused:
		return lost
	case Silent:
		_ = do(ctx) // nobody hears of it
		return lost
	case Late:
		f.mu.Lock()
		f.delayed = append(f.delayed, func() { _ = do(context.WithoutCancel(ctx)) })
		f.mu.Unlock()
		return lost
	case Denied:
		return fmt.Errorf("%w: %s: injected", payload.ErrDenied, what)
	case Full:
		return fmt.Errorf("%w: %s: injected", payload.ErrFull, what)
	case Lying:
		return nil
	}
	return do(ctx)
}

// read makes a call that changes nothing.
func (f *Faults) read(what string) (Fault, error) {
	switch fault := f.draw(); fault {
	case Refused, Silent, Late:
		return fault, fmt.Errorf("%w: %s: injected", payload.ErrUnavailable, what)
	case Denied:
		return fault, fmt.Errorf("%w: %s: injected", payload.ErrDenied, what)
	default:
		return fault, nil
	}
}

type faulty struct {
	store  payload.Store
	faults *Faults
}

// Put implements [payload.Store].
func (s *faulty) Put(ctx context.Context, name string, parts ...[]byte) error {
	if _, err := payload.CheckPut(name, parts); err != nil {
		return err
	}
	if err := s.faults.slow(ctx, "put "+name); err != nil {
		return err
	}
	parts = [][]byte{slices.Concat(parts...)} // it may happen late
	return s.faults.change(ctx, "put "+name, func(ctx context.Context) error { return s.store.Put(ctx, name, parts...) })
}

// Delete implements [payload.Store].
func (s *faulty) Delete(ctx context.Context, name string) error {
	if err := payload.CheckName(name); err != nil {
		return err
	}
	return s.faults.change(ctx, "delete "+name, func(ctx context.Context) error { return s.store.Delete(ctx, name) })
}

// ReadAt implements [payload.Store].
func (s *faulty) ReadAt(ctx context.Context, name string, p []byte, offset int64) (int, error) {
	fault, err := s.faults.read("read " + name)
	if err != nil {
		return 0, err
	}
	n, err := s.store.ReadAt(ctx, name, p, offset)
	if fault == Damaged {
		s.faults.turned(p[:n])
	}
	return n, err
}

// Size implements [payload.Store].
func (s *faulty) Size(ctx context.Context, name string) (int64, error) {
	if _, err := s.faults.read("size of " + name); err != nil {
		return 0, err
	}
	return s.store.Size(ctx, name)
}

// List implements [payload.Store].
func (s *faulty) List(ctx context.Context, prefix, after string, n int) ([]payload.Object, error) {
	if _, err := s.faults.read("list " + prefix); err != nil {
		return nil, err
	}
	return s.store.List(ctx, prefix, after, n)
}
