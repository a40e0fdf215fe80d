package edge

import (
	"context"
	"net/http"
)

// A Gate lets a bounded number of callers work and a bounded number wait; all others are
// told to come later.
type Gate struct {
	slots chan struct{}
	queue chan struct{}
}

// NewGate returns a gate for a number of working and one of waiting callers.
func NewGate(working, waiting int) *Gate {
	return &Gate{make(chan struct{}, working), make(chan struct{}, working+waiting)}
}

// Enter returns when the caller may work; leave must then be called. It fails with 429
// where too many wait already, and with the context's error.
func (g *Gate) Enter(ctx context.Context) (leave func(), err error) {
	select {
	case g.queue <- struct{}{}:
	default:
		return nil, Overloaded(http.StatusTooManyRequests)
	}
	select {
	case g.slots <- struct{}{}:
		return func() { <-g.slots; <-g.queue }, nil
	case <-ctx.Done():
		<-g.queue
		return nil, ctx.Err()
	}
}

// Working is how many callers work now.
func (g *Gate) Working() int { return len(g.slots) }
