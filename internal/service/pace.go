package service

import (
	"container/list"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// firstBytes is how long a sender may take over a body before its rate counts.
const firstBytes = 5 * time.Second

// handler serves requests with next: bodies have to come in at the least rate, and behind
// a proxy that names senders each has a limit of requests under way. Those above get what
// busy answers.
func (g *limiter) handler(next http.Handler, total time.Duration, busy http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, _ := r.Context().Value(connKey{}).(*conn)
		if c == nil {
			next.ServeHTTP(w, r)
			return
		}
		if g.proxied && g.perAddress > 0 && g.forwarded != "" {
			from := g.senderOf(r, c)
			if !g.enter(from) {
				w.Header().Set("Retry-After", "1")
				busy(w, r)
				return
			}
			defer g.exit(from)
		}
		if r.Body == nil || r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		b := &pacedBody{ReadCloser: r.Body, conn: c, control: http.NewResponseController(w)}
		b.asked = time.Now().Add(total)
		defer b.end()
		r = r.WithContext(r.Context()) // a copy: net/http looks at the body of its own request
		r.Body = b
		next.ServeHTTP(&pacedWriter{w, b}, r)
	})
}

// enter counts a request of an address, unless there are too many under way.
func (g *limiter) enter(from netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.source(from)
	if _, known := g.known[from]; !known && s.taken >= g.perAddress {
		g.shed(shedAddress)
		return false
	}
	s.taken++
	return true
}

func (g *limiter) exit(from netip.Addr) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.release(from)
}

// A pacedBody ends with [os.ErrDeadlineExceeded] where it comes in too slowly.
type pacedBody struct {
	io.ReadCloser
	conn    *conn
	control *http.ResponseController
	n       atomic.Int64

	place *list.Element // in the room's bodies; the limiter's mutex guards it, and the next
	start time.Time     // of reading

	mu    sync.Mutex // guards the rest
	asked time.Time  // the deadline without us; zero: none
	ended bool
}

// due is when the next byte has to be there.
func (b *pacedBody) due() time.Time {
	seconds := float64(b.n.Load()) / float64(b.conn.l.rate)
	return b.start.Add(firstBytes + time.Duration(seconds*float64(time.Second)))
}

// slow says whether so little has come that another may have its place.
func (b *pacedBody) slow(now time.Time) bool {
	late := now.Sub(b.start) - time.Second
	return late > 0 && float64(b.n.Load()) < late.Seconds()*float64(hurry*b.conn.l.rate)
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.start.IsZero() {
		b.begin()
	}
	due := b.due()
	b.mu.Lock()
	ours := b.asked.IsZero() || due.Before(b.asked)
	if ours {
		b.control.SetReadDeadline(due)
	} else {
		b.control.SetReadDeadline(b.asked)
	}
	b.mu.Unlock()
	n, err := b.ReadCloser.Read(p)
	b.n.Add(int64(n))
	if err != nil {
		if ours && errors.Is(err, os.ErrDeadlineExceeded) {
			b.conn.l.shed(shedPace)
		}
		b.end()
	}
	// after a failure the server drains the body, and must not wait long
	if errors.Is(err, io.EOF) {
		b.mu.Lock()
		b.control.SetReadDeadline(b.asked)
		b.mu.Unlock()
	}
	return n, err
}

func (b *pacedBody) begin() {
	g := b.conn.l
	b.start = time.Now()
	g.change(func(*closing) {
		if b.conn.room != nil {
			b.place = b.conn.room.bodies.PushBack(b)
		}
	})
}

// end is called when the body is read, or will not be.
func (b *pacedBody) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended {
		return
	}
	b.ended = true
	g := b.conn.l
	g.mu.Lock()
	defer g.mu.Unlock()
	if b.place != nil {
		// Remove does nothing in a list that the element is not in.
		g.shared.bodies.Remove(b.place)
		g.reserve.bodies.Remove(b.place)
		b.place = nil
	}
}

// pacedWriter keeps the deadlines that a handler sets.
type pacedWriter struct {
	http.ResponseWriter
	body *pacedBody
}

// SetReadDeadline is for [http.ResponseController].
func (w *pacedWriter) SetReadDeadline(t time.Time) error {
	b := w.body
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = t
	return b.control.SetReadDeadline(t)
}

// Unwrap is for [http.ResponseController].
func (w *pacedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
