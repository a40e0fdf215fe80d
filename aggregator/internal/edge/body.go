package edge

import (
	"errors"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/starling-agg/starling/internal/buffer"
)

// A Budget bounds the bytes of request bodies that a service holds at one time. Safe for concurrent use.
type Budget struct {
	mu   sync.Mutex
	free int64
}

// NewBudget returns a budget of n bytes.
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

// chunk is the step in which a body's memory is reserved, so that a declared length reserves nothing by itself.
const chunk = 64 << 10

// ReadBody reads the whole body: at most limit bytes, paid for from the budget as they arrive, within timeout by the
// machine's clock. release gives the bytes back to the budget and must be called when they are no longer held; it is
// never nil. The body may be given back by [buffer.Put].
func (b *Budget) ReadBody(w http.ResponseWriter, r *http.Request, limit int64, timeout time.Duration) (body []byte, release func(), err error) {
	var held int64
	release = func() { b.give(held); held = 0 }
	if r.ContentLength > limit {
		return nil, release, TooLarge()
	}
	// Writers that know no deadlines (recorders in tests) are not on a network. After a failure the deadline stays: the
	// server drains what is left of a body before it answers, and must not wait for that without end.
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
	src := http.MaxBytesReader(w, r.Body, limit)
	for {
		if len(body) == cap(body) {
			// Grow to fourfold, but never past what the sender declared or may send.
			grow := max(chunk, 3*int64(len(body)))
			if left := r.ContentLength - int64(len(body)); r.ContentLength >= 0 && left < grow {
				grow = max(left, 0) + 1 // one more, to see the end
			}
			size := int64(len(body)) + min(grow, limit+1-int64(len(body)))
			grow = int64(buffer.Size(int(size))) - held
			if !b.take(grow) {
				return nil, release, Overloaded(http.StatusServiceUnavailable)
			}
			held += grow
			larger := append(buffer.Get(int(size)), body...)
			buffer.Put(body)
			body = larger
		}
		n, err := src.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		if errors.Is(err, io.EOF) {
			return body, release, nil
		}
		if err != nil {
			var tooLarge *http.MaxBytesError
			switch {
			case errors.As(err, &tooLarge):
				return nil, release, TooLarge()
			case errors.Is(err, os.ErrDeadlineExceeded):
				return nil, release, TooSlow()
			}
			return nil, release, Broken(err)
		}
	}
}
