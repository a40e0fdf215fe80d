package door

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/starling-agg/starling/internal/buffer"
)

// A Door bounds what is inside at one time: requests, and the bytes of their bodies. It is safe for concurrent use.
type Door struct {
	// Body is the largest body in bytes, and Timeout how long a sender may take over one, by the machine's clock.
	Body    int64
	Timeout time.Duration

	mu       sync.Mutex // guards the rest
	requests int        // that may still enter
	bytes    int64      // that may still be held
}

// New returns a door for at most that many requests and bytes of bodies at one time.
func New(requests int, bytes, body int64, timeout time.Duration) *Door {
	return &Door{requests: requests, bytes: bytes, Body: body, Timeout: timeout}
}

// Enter takes a place for a request, and refuses with [Busy] where there is none. leave gives it back.
func (d *Door) Enter() (leave func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.requests == 0 {
		return nil, &Error{Busy}
	}
	d.requests--
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.requests++
	}, nil
}

func (d *Door) take(n int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n > d.bytes {
		return false
	}
	d.bytes -= n
	return true
}

func (d *Door) give(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bytes += n
}

// Check refuses what is not a POST of the given media type to the path that is there, without looking at the body.
func Check(r *http.Request, path, media string) error {
	// An absolute URL or a query would be an attempt to choose the next hop, or to carry a name along.
	if r.URL.IsAbs() || r.URL.Host != "" || r.URL.Path != path || r.URL.RawQuery != "" || r.URL.ForceQuery {
		return &Error{Path}
	}
	if r.Method != http.MethodPost {
		return &Error{Method}
	}
	if got, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || got != media {
		return &Error{Media}
	}
	return nil
}

// step is by how much at least the memory of a body grows, so that a declared length reserves nothing by itself.
const step = 8 << 10

// ReadBody reads the whole body, paid for from the door's bytes as it arrives. release gives them back and must be called
// when the body is no longer held; it is never nil. The body may be given back by [buffer.Put].
func (d *Door) ReadBody(w http.ResponseWriter, r *http.Request) (body []byte, release func(), err error) {
	var held int64
	release = func() { d.give(held); held = 0 }
	if r.ContentLength > d.Body {
		w.Header().Set("Connection", "close")
		return nil, release, &Error{Oversized}
	}
	// Writers that know no deadlines are not on a network. After a failure the deadline stays: the server drains what is
	// left of a body before it answers, and must not wait for that without end.
	control := http.NewResponseController(w)
	timed := control.SetReadDeadline(time.Now().Add(d.Timeout)) == nil
	defer func() {
		switch {
		case err != nil:
			w.Header().Set("Connection", "close")
		case timed:
			control.SetReadDeadline(time.Time{})
		}
	}()
	src := http.MaxBytesReader(w, r.Body, d.Body)
	for {
		if len(body) == cap(body) {
			grow := max(step, 3*int64(len(body)))
			if left := r.ContentLength - int64(len(body)); r.ContentLength >= 0 && left < grow {
				grow = max(left, 0) + 1 // one more, to see the end
			}
			size := int64(len(body)) + min(grow, d.Body+1-int64(len(body)))
			grow = int64(buffer.Size(int(size))) - held
			if !d.take(grow) {
				return nil, release, &Error{Busy}
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
			var large *http.MaxBytesError
			switch {
			case errors.As(err, &large):
				return nil, release, &Error{Oversized}
			case errors.Is(err, os.ErrDeadlineExceeded):
				return nil, release, &Error{Slow}
			}
			return nil, release, &Error{Broken}
		}
	}
}

// ReadAnswer reads an answer's body of at most limit bytes.
func ReadAnswer(resp *http.Response, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, &Error{Oversized}
	}
	return b, nil
}
