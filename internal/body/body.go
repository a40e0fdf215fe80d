// Package body reads the bodies of requests from strangers: within a size, a time, and a
// budget of memory that all requests of a service share.
//
// A sender pays for what has arrived, never for what it has declared, and one that sends
// too much, too slowly or not to the end holds a connection and nothing else. The answer
// to such a request is its service's business.
package body

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/starling-agg/starling/internal/buffer"
)

// Errors of [Budget.Read]. A body that ends early, or whose connection breaks, fails with
// another.
var (
	// ErrLarge: the body is larger than its limit.
	ErrLarge = errors.New("body: larger than the limit")
	// ErrSlow: the body was not there in time.
	ErrSlow = errors.New("body: too slow")
	// ErrFull: as many bytes are held as may be at one time.
	ErrFull = errors.New("body: too many bytes at one time")
)

// A Budget bounds the bytes of bodies that a service holds at one time. Safe for
// concurrent use.
type Budget struct {
	mu   sync.Mutex
	free int64 // guarded by mu
}

// NewBudget makes a budget of n bytes.
func NewBudget(n int64) *Budget { return &Budget{free: n} }

// take reserves n bytes, or says that they are not there.
func (b *Budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > b.free {
		return false
	}
	b.free -= n
	return true
}

// give gives n bytes back.
func (b *Budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.free += n
}

// Free is how many bytes are left.
func (b *Budget) Free() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.free
}

// step is by how many bytes at least the memory of a body grows.
const step = 8 << 10

// Read reads the whole body of a request: at most limit bytes, within timeout by the
// machine's clock, paid for from the budget as they arrive. release gives them back and
// must be called when the body is no longer held; it is never nil. The body itself may be
// given back by [buffer.Put]. After a failure the connection takes no further request.
func (b *Budget) Read(w http.ResponseWriter, r *http.Request, limit int64, timeout time.Duration) (body []byte, release func(), err error) {
	var held int64
	release = func() { b.give(held); held = 0 }
	// Writers that know no deadlines (recorders in tests) are not on a network. After a
	// failure the deadline stays: the server drains what is left of a body before it
	// answers, and must not wait for that without end.
	control := http.NewResponseController(w)
	timed := control.SetReadDeadline(time.Now().Add(timeout)) == nil
	defer func() {
		switch {
		case err != nil:
			w.Header().Set("Connection", "close")
		case timed:
			control.SetReadDeadline(time.Time{})
		}
	}()
	if r.ContentLength > limit {
		return nil, release, ErrLarge
	}
	if r.ContentLength >= 0 {
		limit = r.ContentLength
	}
	src := http.MaxBytesReader(w, r.Body, limit)
	var end [1]byte
	for {
		if size := grown(int64(len(body)), limit); len(body) == cap(body) && size > int64(len(body)) {
			more := int64(buffer.Size(int(size))) - held
			if !b.take(more) {
				return nil, release, ErrFull
			}
			held += more
			larger := append(buffer.Get(int(size)), body...)
			buffer.Put(body)
			body = larger
		}
		room := body[len(body):cap(body)]
		if len(room) == 0 {
			room = end[:] // all that may come is there; src hands out no more
		}
		n, err := src.Read(room)
		body = body[:len(body)+n]
		if err != nil {
			if errors.Is(err, io.EOF) {
				return body, release, nil
			}
			return nil, release, failure(err)
		}
	}
}

// grown is the size to which a full body of n bytes grows: fourfold, and not past the
// most that may come. A declared length reserves nothing by itself.
func grown(n, most int64) int64 { return min(max(n+step, 4*n), most) }

// failure is why the rest of a body could not be read.
func failure(err error) error {
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return ErrLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return ErrSlow
	}
	return err
}
