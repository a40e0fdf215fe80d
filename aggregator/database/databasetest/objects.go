//go:build unix

package databasetest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/payload/payloadtest"
)

// A Wrong is what goes wrong with one call of object storage.
type Wrong = payloadtest.Fault

// Wrongs.
const (
	Refused = payloadtest.Refused
	Silent  = payloadtest.Silent
	Late    = payloadtest.Late
	Full    = payloadtest.Full
	Denied  = payloadtest.Denied
	Lying   = payloadtest.Lying
)

// Objects are object storage in memory that all leaders of a test share, and in which things
// go wrong. It knows which of its own words were lies.
type Objects struct {
	mem    *payloadtest.Mem
	faults *payloadtest.Faults

	mu   sync.Mutex // guards the rest
	lies [][]byte
	puts int
}

// NewObjects makes an empty store. What goes wrong follows from seed.
func NewObjects(seed uint64) *Objects {
	return &Objects{mem: payloadtest.NewMem(), faults: payloadtest.NewFaults(seed)}
}

// In returns a context in which leaders with a database put here what has rowBytes or more.
func (o *Objects) In(ctx context.Context, rowBytes int64) context.Context {
	return payload.With(ctx, payload.Given{Store: told{o.faults.Wrap(o.mem), o}, RowBytes: rowBytes})
}

// Go has calls go wrong from now on, each at its rate, and puts wait for delay before.
func (o *Objects) Go(wrong map[Wrong]float64, delay time.Duration) {
	o.faults.Slow(delay)
	o.faults.Rates(wrong)
}

// Calm ends all that goes wrong; what is late happens now.
func (o *Objects) Calm() {
	o.faults.Slow(0)
	o.faults.Calm()
}

// Puts is how many objects leaders were told that they are kept.
func (o *Objects) Puts() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.puts
}

// Lies are the contents of those among them that were not.
func (o *Objects) Lies() [][]byte {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.lies)
}

// told hears what leaders are told.
type told struct {
	payload.Store
	o *Objects
}

// Put implements [payload.Store].
func (t told) Put(ctx context.Context, name string, parts ...[]byte) error {
	content := slices.Concat(parts...)
	err := t.Store.Put(ctx, name, content)
	if err != nil {
		return err
	}
	_, kept := t.o.mem.Size(context.WithoutCancel(ctx), name)
	t.o.mu.Lock()
	defer t.o.mu.Unlock()
	t.o.puts++
	if errors.Is(kept, payload.ErrNotFound) {
		t.o.lies = append(t.o.lies, content)
	}
	return nil
}
