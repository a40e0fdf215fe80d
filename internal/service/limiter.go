package service

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Why a connection was closed before its time, or a request refused: a closed set.
const (
	shedIdle    = "idle"    // it was the longest idle when another needed its place
	shedSlow    = "slow"    // its request came in too slowly when another needed its place
	shedFull    = "full"    // nobody could make place for it
	shedAddress = "address" // its address has as many as it may
	shedPace    = "pace"    // its request came in below the least rate
)

func shedReasons() []string { return []string{shedIdle, shedSlow, shedFull, shedAddress, shedPace} }

// Under pressure.
const (
	// leastIdle is how short the time becomes that a connection may be idle.
	leastIdle = time.Second
	// hurry is by how much more a request has to keep up where its place is needed, after
	// its first second.
	hurry = 8
	// firstHead is how long a new connection keeps its place, if others can wait as long.
	firstHead = 100 * time.Millisecond
	// unasked is how long a connection without a first request is kept when the server stops.
	unasked = 500 * time.Millisecond
	// maxKnown bounds the addresses that are remembered for a valid token.
	maxKnown = 64
)

// A limiter admits the connections of a listener. Where all places are taken the longest
// idle connection makes place: one that is kept after an answer, or one that was opened a
// while ago and has sent no whole head of a request. Then a request whose body comes in
// too slowly does. One that makes progress never does: then newcomers wait, a quarter as
// many as there are places.
//
// A peer that has shown a valid token ([Known]) has places of its own beside those of
// strangers, and so have later connections from its address. Where those are taken it
// shares the others; an idle one of its own makes place only when none of them is free, for
// its owner may be about to use it.
type limiter struct {
	net.Listener
	idleTimeout time.Duration
	perAddress  int   // connections, or requests where addresses come in a header; 0: no limit
	rate        int64 // least bytes of a body in a second
	proxied     bool  // connections come from a proxy: their addresses say nothing
	forwarded   string
	shed        func(why string)

	changed chan struct{} // there is something for Accept
	done    chan struct{}
	close   sync.Once

	mu      sync.Mutex // guards all below and the state of every conn
	shared  room       // places of anybody
	reserve room       // places of who is known
	sources map[netip.Addr]*source
	known   map[netip.Addr]time.Time // when a valid token last came from there
	admits  []*conn                  // for Accept
	waits   []*conn                  // for a place, longest first
	most    int                      // of waits
	look    *time.Timer              // nil: none waits
	failed  error                    // of the listener
	closed  bool
}

// room is a number of places.
type room struct {
	places, taken int
	// idle ones before and after a first request, of *conn, the longest idle in front
	fresh, kept list.List
	bodies      list.List // of *pacedBody that are being read, the oldest in front
}

// longest is the longest idle connection that may be dropped, or nil.
func (r *room) longest(now time.Time, patient bool) *conn {
	var c *conn
	if e := r.kept.Front(); e != nil {
		c = e.Value.(*conn)
	}
	if e := r.fresh.Front(); e != nil {
		f := e.Value.(*conn)
		if (!patient || now.Sub(f.since) >= firstHead) && (c == nil || f.since.Before(c.since)) {
			return f
		}
	}
	return c
}

func (r *room) free() bool { return r.taken < r.places }

func (r *room) idle() int { return r.fresh.Len() + r.kept.Len() }

// source is an address from which there are connections, or requests behind a proxy.
type source struct {
	taken int
	idle  list.List // of *conn
}

// conn is one connection. The limiter's mutex guards its fields.
type conn struct {
	net.Conn
	l     *limiter
	from  netip.Addr
	since time.Time // it is idle, or waits
	room  *room     // nil while it waits, and in the end
	asked bool      // it has sent the head of a request
	idle  [2]*list.Element
	gone  bool
}

func newLimiter(open net.Listener, l Listen) *limiter {
	g := &limiter{
		Listener: open, idleTimeout: time.Duration(l.IdleTimeout), perAddress: max(l.MaxPerAddress, 0), rate: int64(l.MinRate),
		proxied: l.Proxied(), forwarded: l.ForwardedHeader, shed: func(string) {},
		changed: make(chan struct{}, 1), done: make(chan struct{}),
		sources: make(map[netip.Addr]*source), known: make(map[netip.Addr]time.Time), most: max(l.MaxConnections/4, 16),
	}
	g.shared.places, g.reserve.places = l.MaxConnections, l.ReservedConnections
	return g
}

// Accept implements [net.Listener]: it hands out whom take has admitted.
func (g *limiter) Accept() (net.Conn, error) {
	for {
		g.mu.Lock()
		switch {
		case g.closed:
			g.mu.Unlock()
			return nil, net.ErrClosed
		case len(g.admits) > 0:
			c := g.admits[0]
			g.admits = g.admits[1:]
			more := len(g.admits) > 0
			g.mu.Unlock()
			if more {
				g.wake()
			}
			return c, nil
		case g.failed != nil:
			defer g.mu.Unlock()
			return nil, g.failed
		}
		g.mu.Unlock()
		select {
		case <-g.changed:
		case <-g.done:
		}
	}
}

func (g *limiter) wake() {
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// take takes connections from the listener until it is closed.
func (g *limiter) take() {
	pause := 5 * time.Millisecond
	for {
		c, err := g.Listener.Accept()
		if err == nil {
			g.offer(c)
			pause = 5 * time.Millisecond
			continue
		}
		var no syscall.Errno
		if !errors.As(err, &no) || (no != syscall.EMFILE && no != syscall.ENFILE && no != syscall.ECONNABORTED &&
			no != syscall.ENOBUFS && no != syscall.ENOMEM) {
			g.mu.Lock()
			g.failed = err
			g.mu.Unlock()
			g.wake()
			return
		}
		// The process or the machine has no more of something that a connection takes.
		g.change(func(out *closing) {
			if no != syscall.ECONNABORTED {
				g.shared.makePlace(out, g, false)
			}
		})
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-g.done:
		}
		timer.Stop()
		pause = min(2*pause, time.Second)
	}
}

// closing are connections to be closed once the limiter is unlocked.
type closing struct{ conns []*conn }

// change changes the limiter's state, lets in who waits and has place now, and closes who
// has to go.
func (g *limiter) change(f func(out *closing)) {
	var out closing
	g.mu.Lock()
	f(&out)
	for len(g.waits) > 0 && !g.closed {
		next, others := g.waits[0], g.waits[1:]
		g.waits = others
		if !g.place(next, &out, len(others) < g.most) {
			g.waits = append([]*conn{next}, others...)
			break
		}
	}
	if len(g.waits) > 0 && g.look == nil && !g.closed { // a new connection grows old by itself
		g.look = time.AfterFunc(firstHead, func() {
			g.change(func(*closing) { g.look = nil })
		})
	}
	admitted := len(g.admits) > 0
	g.mu.Unlock()
	if admitted {
		g.wake()
	}
	for _, c := range out.conns {
		c.Conn.Close() // the server's reader ends with an error
	}
}

// drop takes a connection out of everything; it will be closed. g.mu must be held.
func (g *limiter) drop(c *conn, why string, out *closing) {
	if c.gone {
		return
	}
	g.leave(c)
	g.shed(why)
	out.conns = append(out.conns, c)
}

// leave gives up what a connection holds. g.mu must be held.
func (g *limiter) leave(c *conn) {
	if c.gone {
		return
	}
	c.gone = true
	c.busy()
	if c.room == nil {
		g.waits = slices.DeleteFunc(g.waits, func(w *conn) bool { return w == c })
		return
	}
	c.room.taken--
	if !g.proxied {
		g.release(c.from)
	}
	c.room = nil
}

// leaveFresh closes the connections that have sent no whole head of a request yet.
func (g *limiter) leaveFresh() {
	g.change(func(out *closing) {
		for _, r := range []*room{&g.shared, &g.reserve} {
			for e := r.fresh.Front(); e != nil; e = r.fresh.Front() {
				c := e.Value.(*conn)
				g.leave(c)
				out.conns = append(out.conns, c)
			}
		}
	})
}

// source finds or makes what is known of an address. g.mu must be held.
func (g *limiter) source(from netip.Addr) *source {
	s := g.sources[from]
	if s == nil {
		s = new(source)
		g.sources[from] = s
	}
	return s
}

func (g *limiter) release(from netip.Addr) {
	s := g.sources[from]
	if s.taken--; s.taken == 0 {
		delete(g.sources, from)
	}
}

// offer admits a connection, lets it wait or closes it.
func (g *limiter) offer(nc net.Conn) {
	c := &conn{Conn: nc, l: g, since: time.Now()}
	if !g.proxied {
		c.from = sourceOf(nc.RemoteAddr().String())
	}
	g.change(func(out *closing) {
		switch {
		case g.closed:
			c.gone = true
			out.conns = append(out.conns, c)
		case len(g.waits) > 0 && g.room(c) == &g.shared || !g.place(c, out, true):
			if len(g.waits) == g.most {
				first := g.waits[0]
				g.waits = g.waits[1:]
				if !g.place(first, out, false) { // it has waited longest, and most likely given up
					g.drop(first, shedFull, out)
				}
			}
			g.waits = append(g.waits, c)
		}
	})
}

// room is where a connection belongs. g.mu must be held.
func (g *limiter) room(c *conn) *room {
	if _, ok := g.known[c.from]; !ok || g.proxied {
		return &g.shared
	}
	if g.reserve.free() || !g.shared.free() && g.reserve.idle() > 0 {
		return &g.reserve
	}
	return &g.shared
}

// place admits a connection or says that it has to wait: where it is patient, for new ones
// to send something. One whose address has too many it drops. g.mu must be held.
func (g *limiter) place(c *conn, out *closing, patient bool) bool {
	if _, known := g.known[c.from]; c.from.IsValid() && g.perAddress > 0 && !known {
		if s := g.sources[c.from]; s != nil && s.taken >= g.perAddress {
			if s.idle.Len() == 0 {
				g.drop(c, shedAddress, out)
				return true
			}
			g.drop(s.idle.Front().Value.(*conn), shedAddress, out)
		}
	}
	r := g.room(c)
	if !r.free() && !r.makePlace(out, g, patient) {
		return false
	}
	now := time.Now()
	for r == &g.shared { // the fuller, the less patient
		longest := r.longest(now, true)
		if longest == nil || now.Sub(longest.since) <= r.patience(g.idleTimeout) {
			break
		}
		g.drop(longest, shedIdle, out)
	}
	r.taken++
	c.room = r
	if !g.proxied {
		g.source(c.from).taken++
	}
	c.rest(now)
	g.admits = append(g.admits, c)
	return true
}

// patience is how long a connection may be idle: as long as configured where half of the
// places are free, and less the fewer are.
func (r *room) patience(configured time.Duration) time.Duration {
	free := r.places - r.taken
	if half := r.places / 2; free < half {
		return max(min(leastIdle, configured), configured*time.Duration(free)/time.Duration(half))
	}
	return configured
}

// makePlace drops the longest idle connection, or else the oldest that sends its request
// too slowly, and says whether there was one. g.mu must be held.
func (r *room) makePlace(out *closing, g *limiter, patient bool) bool {
	now := time.Now()
	if c := r.longest(now, patient); c != nil {
		g.drop(c, shedIdle, out)
		return true
	}
	for e := r.bodies.Front(); e != nil; e = e.Next() {
		if b := e.Value.(*pacedBody); b.slow(now) {
			g.drop(b.conn, shedSlow, out)
			return true
		}
	}
	return false
}

// rest says that a connection is idle. The limiter's mutex must be held.
func (c *conn) rest(now time.Time) {
	c.since = now
	if c.asked {
		c.idle[0] = c.room.kept.PushBack(c)
	} else {
		c.idle[0] = c.room.fresh.PushBack(c)
	}
	if !c.l.proxied {
		c.idle[1] = c.l.source(c.from).idle.PushBack(c)
	}
}

// busy says that it is not. The limiter's mutex must be held.
func (c *conn) busy() {
	if c.idle[0] != nil {
		c.room.kept.Remove(c.idle[0]) // nothing where it is in the other
		c.room.fresh.Remove(c.idle[0])
	}
	if c.idle[1] != nil {
		c.l.sources[c.from].idle.Remove(c.idle[1])
	}
	c.idle = [2]*list.Element{}
}

// Close implements [net.Conn].
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.l.change(func(*closing) { c.l.leave(c) })
	return err
}

// state is [http.Server.ConnState]. A connection is active from when the head of a request
// is read.
func (g *limiter) state(nc net.Conn, s http.ConnState) {
	c := connOf(nc)
	if c == nil || s != http.StateActive && s != http.StateIdle {
		return
	}
	g.change(func(*closing) {
		if c.gone {
			return
		}
		c.asked = true
		if s == http.StateIdle && c.idle[0] == nil {
			c.rest(time.Now())
		} else if s == http.StateActive {
			c.busy()
		}
	})
}

func connOf(nc net.Conn) *conn {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, _ := nc.(*conn)
	return c
}

// Close implements [net.Listener]: nobody is admitted any more.
func (g *limiter) Close() error {
	g.close.Do(func() { close(g.done) })
	g.change(func(out *closing) {
		g.closed = true
		if g.look != nil {
			g.look.Stop()
			g.look = nil
		}
		out.conns = slices.Concat(g.admits, g.waits)
		g.admits, g.waits = nil, nil
		for _, c := range out.conns {
			g.leave(c)
		}
	})
	return g.Listener.Close()
}

// connKey is what a request's context has its connection under.
type connKey struct{}

// context is [http.Server.ConnContext].
func (g *limiter) context(ctx context.Context, nc net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, connOf(nc))
}

// Known tells the listener of a request that it bore a valid token: there is place for its
// connection, and for later ones from its address, beside that of strangers
// ([Listen.ReservedConnections]), and no limit on that address. It does nothing for
// requests that came another way.
func Known(r *http.Request) {
	if c, _ := r.Context().Value(connKey{}).(*conn); c != nil {
		c.l.know(c, c.l.senderOf(r, c))
	}
}

// senderOf is the address that counts for a request, or none.
func (g *limiter) senderOf(r *http.Request, c *conn) netip.Addr {
	switch {
	case !g.proxied:
		return c.from
	case g.forwarded != "":
		return sourceOf(SenderOf(r, g.forwarded))
	}
	return netip.Addr{}
}

func (g *limiter) know(c *conn, from netip.Addr) {
	if !from.IsValid() {
		return
	}
	g.change(func(*closing) {
		now := time.Now()
		if _, ok := g.known[from]; !ok && len(g.known) == maxKnown {
			oldest := from
			for a, at := range g.known {
				if oldest == from || at.Before(g.known[oldest]) {
					oldest = a
				}
			}
			delete(g.known, oldest)
		}
		g.known[from] = now
		r := &g.reserve
		if g.proxied || c.gone || c.room != &g.shared || !r.free() {
			return
		}
		c.busy()
		c.room.taken--
		r.taken++
		c.room = r
	})
}

// numbers are how many connections are open, idle among them, and wait, for metrics.
func (g *limiter) numbers() (open, idle, waiting, places int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.shared.taken + g.reserve.taken, g.shared.idle() + g.reserve.idle(), len(g.waits), g.shared.places
}

// full says that all places of strangers are taken by requests that make progress, and
// that some wait.
func (g *limiter) full() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waits) > 0 && g.shared.idle() == 0
}
