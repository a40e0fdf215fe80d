// Package servicetest runs services for tests.
package servicetest

import (
	"context"
	"sync"
	"testing"

	"github.com/starling-agg/starling/internal/service"
)

// Start runs parts until stop, which stops them in order and says how they ended,
// however often it is called. It returns once all of them are up, or with what kept them
// from it.
func Start(parts ...service.Part) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	up, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- service.Run(ctx, 0, func() { close(up) }, parts...) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	select {
	case <-up:
		return stop, nil
	case err := <-done:
		cancel()
		return nil, err
	}
}

// Serve runs parts until stop is called or the test ends, which fails if they do not end
// well.
func Serve(t testing.TB, parts ...service.Part) (stop func()) {
	t.Helper()
	end, err := Start(parts...)
	if err != nil {
		t.Fatal("the services did not start: ", err)
	}
	stop = sync.OnceFunc(func() {
		t.Helper()
		if err := end(); err != nil {
			t.Error("a service failed: ", err)
		}
	})
	t.Cleanup(stop)
	return stop
}
