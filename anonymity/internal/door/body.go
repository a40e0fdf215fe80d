package door

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"github.com/starling-agg/starling/internal/body"
)

// A Door bounds what is inside at one time: requests, and the bytes of their bodies. Safe
// for concurrent use.
type Door struct {
	bytes   *body.Budget
	largest int64         // body
	timeout time.Duration // of one body

	mu       sync.Mutex
	requests int // that may still enter; guarded by mu
}

// New returns a door for at most a number of requests and of bytes of bodies at one time,
// each body of at most that size, and there within the timeout by the machine's clock.
func New(requests int, bytes, largest int64, timeout time.Duration) *Door {
	return &Door{requests: requests, bytes: body.NewBudget(bytes), largest: largest, timeout: timeout}
}

// Enter takes a place for a request, and refuses with [Busy] where there is none. leave
// gives it back.
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

// Check refuses what is not a POST of the given media type to the path that is there,
// without looking at the body.
func Check(r *http.Request, path, media string) error {
	// An absolute URL or a query would be an attempt to choose the next hop, or to carry
	// a name along.
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

// ReadBody reads the whole body as [body.Budget.Read] does, and refuses with a reason.
func (d *Door) ReadBody(w http.ResponseWriter, r *http.Request) (b []byte, release func(), err error) {
	b, release, err = d.bytes.Read(w, r, d.largest, d.timeout)
	switch {
	case err == nil:
	case errors.Is(err, body.ErrLarge):
		err = &Error{Oversized}
	case errors.Is(err, body.ErrSlow):
		err = &Error{Slow}
	case errors.Is(err, body.ErrFull):
		err = &Error{Busy}
	default:
		err = &Error{Broken}
	}
	return b, release, err
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
