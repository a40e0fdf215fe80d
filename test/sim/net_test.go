package sim

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var (
	errRefused = errors.New("sim: connection refused")
	errReset   = errors.New("sim: connection reset")
	errTimeout = errors.New("sim: timeout")
)

// A message is a request on its way, or kept to be sent again.
type message struct {
	to     *node
	method string
	url    *url.URL
	header http.Header
	body   []byte
}

// name is the message in few words.
func (m *message) name() string {
	parts := strings.Split(m.url.Path, "/")
	last := parts[len(parts)-1]
	if len(parts) > 5 {
		last = parts[4] + "/" + last[:min(4, len(last))]
	}
	return m.method + " " + last
}

// compares says whether a message is of the exchange in which leader and helper compare
// themselves, which is no resource of DAP's.
func compares(m *message) bool { return strings.Contains(m.url.Path, "/starling_") }

// An answer is what a server said.
type answer struct {
	status int
	header http.Header
	body   []byte
	by     *life
	began  int // turn of the oracle in which the request came
}

// network carries messages between the parties, badly while faults is set.
type network struct {
	w      *world
	faults atomic.Bool
	mu     sync.Mutex // guards the rest, where workers run
	rng    *rand.Rand
	pass   atomic.Bool             // the checker speaks: no fault, no record
	forge  func(*message, *answer) // of tests of the oracle: changes answers
	// of tests of the oracle: leader and helper do not compare themselves
	apart bool
	held  []*message
	kept  []*message
}

const maxKept = 200

// port is where one party enters the network. life is nil for client and collector.
type port struct {
	*network
	life *life
}

// Do implements the Doer of client and collector.
func (p *port) Do(r *http.Request) (*http.Response, error) { return p.RoundTrip(r) }

// RoundTrip implements [http.RoundTripper].
func (p *port) RoundTrip(r *http.Request) (*http.Response, error) {
	m := &message{to: p.w.nodeOf(r.URL.Host), method: r.Method, url: r.URL, header: r.Header.Clone()}
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		r.Body.Close()
		if err != nil {
			return nil, err
		}
		m.body = b
	}
	if p.life != nil && !p.life.alive.Load() {
		return nil, errPower
	}
	a, err := p.carry(m)
	switch {
	case p.life != nil && !p.life.alive.Load():
		return nil, errPower // nobody is there to hear the answer
	case err != nil:
		return nil, err
	case r.Context().Err() != nil && p.roll(2) == 0:
		return nil, r.Context().Err() // otherwise it came in time, and the reader of it was slow
	}
	return a.response(r), nil
}

func (a *answer) response(r *http.Request) *http.Response {
	return &http.Response{
		StatusCode: a.status, Header: a.header, Body: io.NopCloser(bytes.NewReader(a.body)),
		ContentLength: int64(len(a.body)), Request: r, ProtoMajor: 1, ProtoMinor: 1,
	}
}

// carry takes a message to its server and brings the answer back, if all goes well.
func (n *network) carry(m *message) (*answer, error) {
	if n.pass.Load() {
		return n.deliver(m)
	}
	n.keep(m)
	if !n.faults.Load() {
		a, err := n.deliver(m)
		n.w.work(m)
		return a, err
	}
	n.w.interleave()
	fate := n.roll(100)
	switch {
	case fate < 5:
		n.w.logf("net: lost %s", m.name())
		return nil, errReset
	case fate < 10:
		n.w.logf("net: held %s", m.name())
		n.mu.Lock()
		n.held = append(n.held, m)
		n.mu.Unlock()
		return nil, errTimeout
	case fate < 12:
		n.w.logf("net: a proxy answers %s", m.name())
		return &answer{status: http.StatusBadGateway, header: http.Header{"Content-Type": {"text/html"}}, body: []byte("<html>")}, nil
	}
	a, err := n.deliver(m)
	if err != nil {
		return nil, err
	}
	n.w.interleave()
	if n.roll(2) == 0 {
		n.w.work(m)
	}
	switch {
	case fate < 18:
		n.w.logf("net: lost the answer to %s", m.name())
		return nil, errReset
	case fate < 23:
		n.w.logf("net: %s twice", m.name())
		again, err := n.deliver(m)
		if err == nil && n.roll(2) == 0 {
			return again, nil
		}
	case fate < 26:
		n.w.logf("net: the answer to %s is cut", m.name())
		if len(a.body) > 0 {
			return nil, io.ErrUnexpectedEOF
		}
	case fate < 28:
		n.w.logf("net: the answer to %s is late", m.name())
		time.Sleep(time.Duration(n.roll(int(2 * lease))))
		n.w.interleave()
	}
	return a, nil
}

// roll draws from [0, n).
func (n *network) roll(limit int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rng.IntN(limit)
}

// keep remembers a message, to be sent again.
func (n *network) keep(m *message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(n.kept, m)
	if len(n.kept) > maxKept {
		n.kept = n.kept[1:]
	}
}

// take takes a message that was held, or returns nil.
func (n *network) take() *message {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.held) == 0 {
		return nil
	}
	i := n.rng.IntN(len(n.held))
	m := n.held[i]
	n.held = slices.Delete(n.held, i, i+1)
	return m
}

// recall is some message of the past, or nil.
func (n *network) recall() *message {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.kept) == 0 {
		return nil
	}
	return n.kept[n.rng.IntN(len(n.kept))]
}

// deliver hands a message to whatever life its server has now. The oracle sees every
// answer, also those that get lost.
func (n *network) deliver(m *message) (*answer, error) {
	l := n.w.serving(m.to)
	if l == nil {
		return nil, errRefused
	}
	l.requests.Add(1)
	defer l.requests.Done()
	if n.apart {
		if compares(m) {
			return &answer{status: http.StatusNotFound, header: http.Header{}}, nil
		}
		m.header = m.header.Clone()
		m.header.Del("Starling-Agreement")
	}
	req := httptest.NewRequest(m.method, m.url.String(), bytes.NewReader(m.body))
	req.Header = m.header.Clone()
	n.w.oracle.sawDrop(m, false) // others may see what it does before its answer comes
	began := n.w.oracle.next()
	rec := httptest.NewRecorder()
	l.Handler().ServeHTTP(rec, req)
	if !l.alive.Load() {
		n.w.oracle.unanswered(m)
		return nil, errReset
	}
	a := &answer{status: rec.Code, header: rec.Header(), body: rec.Body.Bytes(), by: l, began: began}
	if n.forge != nil {
		n.forge(m, a)
	}
	n.w.oracle.saw(m, a)
	return a, nil
}
