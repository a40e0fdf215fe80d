package service

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// A Part is one component of a service.
type Part struct {
	// Name says which it is in errors and logs.
	Name string
	// Run starts the component, calls ready once when it works, and returns when ctx
	// ends, after it has drained what it holds: nil then, and the cause if it stops by
	// itself. ctx carries no deadline for draining; Run itself bounds what may take long.
	Run func(ctx context.Context, ready func()) error
}

// defaultDrain is how long a part may take to drain.
const defaultDrain = 20 * time.Second

// Drain errors and stops.
var (
	// ErrDrain: a part did not stop in time; it still runs.
	ErrDrain = errors.New("service: did not stop in time")
	// errEarly is a part that returned nil though nobody asked it to stop.
	errEarly = errors.New("stopped by itself")
)

// stopSignals returns a context that ends at SIGTERM or SIGINT. A second signal ends the
// process at once, as by default.
func stopSignals(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	context.AfterFunc(ctx, cancel) // gives the signals their default meaning back
	return ctx, cancel
}

// Run starts the parts in order, each once the one before is ready, calls started (if not
// nil), and stops them in reverse order when ctx ends or one of them fails. A part gets
// drain to stop (defaultDrain if 0). It returns nil after an orderly stop, else every
// part's error.
func Run(ctx context.Context, drain time.Duration, started func(), parts ...Part) error {
	if drain == 0 {
		drain = defaultDrain
	}
	type running struct {
		name   string
		cancel context.CancelFunc
		done   chan error // receives Run's result once
	}
	var up []running
	failed := make(chan int, len(parts)) // the index of each part that has returned
	var errs []error

	fail := func(i int, asked bool) {
		err := <-up[i].done
		if err == nil && !asked {
			err = errEarly
		}
		if err != nil {
			errs = append(errs, ofPart(up[i].name, err))
		}
		up[i].cancel()
		up[i].done = nil
	}

start:
	for i, p := range parts {
		if ctx.Err() != nil {
			break
		}
		// Each part ends by its own cancel, in reverse order, not all at once with ctx.
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		ready := make(chan struct{})
		r := running{p.Name, cancel, make(chan error, 1)}
		up = append(up, r)
		go func() {
			r.done <- p.Run(own, func() { close(ready) })
			failed <- i
		}()
		select {
		case <-ready:
		case <-ctx.Done():
			break start
		case j := <-failed:
			fail(j, false)
			break start
		}
	}
	if len(errs) == 0 && len(up) == len(parts) && ctx.Err() == nil {
		if started != nil {
			started()
		}
		select {
		case <-ctx.Done():
		case j := <-failed:
			fail(j, false)
		}
	}
	for i := len(up) - 1; i >= 0; i-- {
		if up[i].done == nil {
			continue
		}
		up[i].cancel()
		late := time.NewTimer(drain)
		select {
		case err := <-up[i].done:
			if err != nil {
				errs = append(errs, ofPart(up[i].name, err))
			}
		case <-late.C:
			errs = append(errs, ofPart(up[i].name, ErrDrain))
		}
		late.Stop()
	}
	return errors.Join(errs...)
}

// ofPart says which part an error is of, unless it says so itself.
func ofPart(name string, err error) error {
	if strings.HasPrefix(err.Error(), name+": ") {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}
