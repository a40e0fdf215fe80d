package service

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener whose connections come from any address, by the clock of a test.
type pipes struct {
	dialled chan net.Conn
	done    chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.dialled:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	close(p.done)
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 443} }

type fromConn struct {
	net.Conn
	from net.Addr
}

func (c fromConn) RemoteAddr() net.Addr { return c.from }

// visitor is one connection of a client.
type visitor struct {
	net.Conn
	in *bufio.Reader
}

func (p *pipes) dial(from string) *visitor {
	client, server := net.Pipe()
	p.dialled <- fromConn{server, &net.TCPAddr{IP: net.ParseIP(from), Port: 9}}
	return &visitor{client, bufio.NewReader(client)}
}

// ask sends a request and returns the status of the answer; 0 where there is none.
func (v *visitor) ask(path, header string) int {
	if _, err := fmt.Fprintf(v, "GET %s HTTP/1.1\r\nHost: x\r\n%s\r\n", path, header); err != nil {
		return 0
	}
	resp, err := http.ReadResponse(v.in, nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return 0
	}
	return resp.StatusCode
}

// gone says whether the server has closed the connection.
func (v *visitor) gone() bool {
	v.SetReadDeadline(time.Now()) // the server writes nothing that was not asked for
	_, err := v.in.ReadByte()
	v.SetReadDeadline(time.Time{})
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// flooded runs a listener whose handler answers "/", reads bodies at "/read", waits at
// "/wait" until let go, and knows who says so at "/known".
type flooded struct {
	*pipes
	t       *testing.T
	waiting chan struct{} // gets a token for each request that waits
	leave   chan struct{}
	read    chan error
	metrics *Metrics
	stop    func() error
}

func flood(t *testing.T, l Listen) *flooded {
	f := &flooded{pipes: newPipes(), t: t, waiting: make(chan struct{}, 100), leave: make(chan struct{}), read: make(chan error, 100),
		metrics: NewMetrics()}
	if l.Address == "" {
		l.Address = "127.0.0.1:0"
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/{$}", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/known", func(_ http.ResponseWriter, r *http.Request) { Known(r) })
	mux.HandleFunc("/read", func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.Copy(io.Discard, r.Body)
		f.read <- err
	})
	mux.HandleFunc("/wait", func(http.ResponseWriter, *http.Request) {
		f.waiting <- struct{}{}
		<-f.leave
	})
	s := Server{Name: "public", Label: "public", Listen: l, Handler: mux, Log: quiet(), Open: f.pipes}
	s.Connections = f.metrics.Connections("public")
	ctx, cancel := context.WithCancel(context.Background())
	up, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- Run(ctx, 0, func() { close(up) }, s.Part()) }()
	select {
	case <-up:
	case err := <-done:
		t.Fatal(err)
	}
	f.stop = func() error { cancel(); return <-done }
	return f
}

// end stops the server, whoever still waits.
func (f *flooded) end() {
	close(f.leave)
	if err := f.stop(); err != nil {
		f.t.Error(err)
	}
}

// shed is how many were shed for a reason.
func (f *flooded) shed(why string) string {
	for line := range strings.Lines(scrape(f.metrics)) {
		if v, ok := strings.CutPrefix(line, `starling_connections_shed_total{listener="public",why="`+why+`"} `); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func scrape(m *Metrics) string {
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// promptly fails the test where f needs any time.
func promptly(t *testing.T, what string, f func()) {
	t.Helper()
	start := time.Now()
	f()
	if took := time.Since(start); took > 0 {
		t.Errorf("%s: after %v", what, took)
	}
}

// TestIdleFloodStopsNobody: four connections for each place, of which each is silent after
// an answer, after a part of a head or from the start, keep nobody out.
func TestIdleFloodStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flood(t, Listen{MaxConnections: 16, MaxPerAddress: -1})
		defer f.end()
		var all []*visitor
		for i := range 64 {
			v := f.dial("198.51.100.7")
			defer v.Close()
			switch i % 3 {
			case 0:
				if got := v.ask("/", ""); got != 200 {
					t.Fatalf("connection %d: status %d", i, got)
				}
			case 1:
				io.WriteString(v, "GET / HTTP/1.1\r\nHo")
			}
			all = append(all, v)
			time.Sleep(10 * time.Millisecond)
		}
		honest := f.dial("203.0.113.1")
		defer honest.Close()
		promptly(t, "an honest request", func() {
			if got := honest.ask("/", ""); got != 200 {
				t.Errorf("status %d", got)
			}
		})
		for i, v := range all {
			if got, want := v.gone(), i < 64-15; got != want {
				t.Errorf("connection %d of 64: gone %v, want %v: the longest idle goes first", i, got, want)
			}
		}
		if got := f.shed("idle"); got != "49" {
			t.Errorf("%s connections were counted, want 49", got)
		}
	})
}

// TestWorkKeepsItsPlace: a request under way is never cut off for another; who comes then
// waits, and who comes when many wait takes the place of who has waited longest.
func TestWorkKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flood(t, Listen{MaxConnections: 2, MaxPerAddress: -1})
		answers := make(chan int, 100)
		ask := func(path string) *visitor {
			v := f.dial("198.51.100.7")
			go func() { answers <- v.ask(path, ""); v.Close() }()
			synctest.Wait()
			return v
		}
		ask("/wait")
		ask("/wait")
		var later []*visitor
		for range 17 {
			later = append(later, ask("/"))
		}
		if len(answers) != 1 || <-answers != 0 { // the first of 17; 16 may wait
			t.Errorf("of those who wait somebody had an answer")
		}
		if got := f.shed("full"); got != "1" {
			t.Errorf("%s were turned away, want 1", got)
		}
		promptly(t, "the others", func() {
			f.leave <- struct{}{}
			for range 17 {
				if got := <-answers; got != 200 {
					t.Errorf("status %d", got)
				}
			}
		})
		f.end()
		for _, v := range later {
			v.Close()
		}
	})
}

// TestLessPatience: the fewer places are free, the sooner an idle connection goes.
func TestLessPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flood(t, Listen{MaxConnections: 8, MaxPerAddress: -1, IdleTimeout: Duration(time.Minute)})
		defer f.end()
		come := func(n int) (all []*visitor) {
			for range n {
				v := f.dial("198.51.100.7")
				if v.ask("/", "") != 200 {
					t.Fatal("no answer")
				}
				all = append(all, v)
				synctest.Wait() // it is idle, before the next is
			}
			return all
		}
		first := come(4)
		time.Sleep(40 * time.Second)
		second := come(1) // half of the places are free, so none goes
		if first[0].gone() {
			t.Error("an idle connection went though half of the places are free")
		}
		third := come(3) // where a quarter is free half of the time is left, until more are
		for i, v := range first {
			if got, want := v.gone(), i < 2; got != want {
				t.Errorf("connection %d after 40 s: gone %v, want %v", i, got, want)
			}
			v.Close()
		}
		for _, v := range append(second, third...) {
			if v.gone() {
				t.Error("a new connection went")
			}
			v.Close()
		}
	})
}

// TestLimitPerAddress: one address has its share and no more, a /64 is one address, and
// who showed a token has no limit.
func TestLimitPerAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flood(t, Listen{MaxConnections: 16, MaxPerAddress: 2})
		var all []*visitor
		refused := func(from, path string) bool {
			v, status := f.dial(from), make(chan int, 1)
			go func() { status <- v.ask(path, "") }()
			synctest.Wait()
			all = append(all, v)
			select {
			case s := <-status:
				return s == 0
			default:
				return false // it is under way
			}
		}
		refused("198.51.100.7", "/wait")
		refused("198.51.100.7", "/")
		idle := all[1]
		refused("198.51.100.7", "/wait") // takes the place of its own idle one
		if !idle.gone() {
			t.Error("three connections of one address, where two may be")
		}
		if !refused("198.51.100.7", "/") {
			t.Error("a third request of one address is under way")
		}
		refused("2001:db8::1", "/wait")
		refused("2001:db8::2:2", "/wait")
		if !refused("2001:db8::3:3:3", "/") {
			t.Error("a /64 has a third request under way")
		}
		if refused("2001:db8:0:1::1", "/") || refused("198.51.100.8", "/") {
			t.Error("another address is refused")
		}
		if got := f.shed("address"); got != "3" {
			t.Errorf("%s counted, want 3", got)
		}
		refused("203.0.113.1", "/known")
		for range 4 {
			if refused("203.0.113.1", "/wait") {
				t.Error("a peer with a token is limited")
			}
		}
		f.end()
		for _, v := range all {
			v.Close()
		}
	})
}

// TestPeerHasAPlace: strangers whose requests take all places leave a peer its own, where
// it has shown a token before.
func TestPeerHasAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flood(t, Listen{MaxConnections: 4, ReservedConnections: 2, MaxPerAddress: -1})
		peer := f.dial("203.0.113.1")
		if peer.ask("/known", "") != 200 {
			t.Fatal("no answer")
		}
		var all []*visitor
		for range 8 {
			v := f.dial("198.51.100.7")
			go v.ask("/wait", "")
			synctest.Wait()
			all = append(all, v)
		}
		promptly(t, "the peer's own connection", func() {
			if peer.ask("/", "") != 200 {
				t.Error("it was closed")
			}
		})
		for range 3 { // the third takes the place of the first
			again := f.dial("203.0.113.1")
			promptly(t, "another of the peer's", func() {
				if again.ask("/", "") != 200 {
					t.Error("no answer")
				}
			})
			synctest.Wait()
			all = append(all, again)
		}
		if !peer.gone() {
			t.Error("more connections of the peer than are reserved")
		}
		f.end()
		for _, v := range all {
			v.Close()
		}
	})
}

// TestPeerHasMore: a peer with more connections than are reserved keeps all of them, idle
// or not, while places of strangers are free. A pool of connections is idle only until its
// owner asks again, and whoever closes one then has lost a request.
func TestPeerHasMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flood(t, Listen{MaxConnections: 32, ReservedConnections: 2, MaxPerAddress: -1})
		var pool []*visitor
		for i := range 12 {
			v := f.dial("203.0.113.1")
			if v.ask("/known", "") != 200 {
				t.Fatal("no answer")
			}
			pool = append(pool, v)
			if i == 6 {
				time.Sleep(2 * leastIdle)
			}
		}
		time.Sleep(2 * leastIdle)
		for i, v := range pool {
			if v.ask("/", "") != 200 {
				t.Errorf("connection %d was closed", i)
			}
		}
		if got := f.shed(shedIdle); got != "0" {
			t.Errorf("%s idle connections were closed", got)
		}
		f.end()
		for _, v := range pool {
			v.Close()
		}
	})
}

// TestStopsWithoutTheUnused: a connection on which nothing was ever asked keeps no server
// from stopping, and a request under way does.
func TestStopsWithoutTheUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flood(t, Listen{MaxConnections: 8})
		unused, waits := f.dial("203.0.113.1"), f.dial("203.0.113.1")
		answered := make(chan int, 1)
		go func() { answered <- waits.ask("/wait", "") }()
		synctest.Wait()
		const request = 2 * time.Second
		time.AfterFunc(request, func() { close(f.leave) })
		begin := time.Now()
		if err := f.stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < request || took > request+unasked {
			t.Errorf("stopped after %v, with a request of %v", took, request)
		}
		if status := <-answered; status != 200 {
			t.Errorf("the request under way got status %d", status)
		}
		if !unused.gone() {
			t.Error("the unused connection is still open")
		}
		unused.Close()
		waits.Close()
	})
}

// TestSlowBodies: a body below the least rate ends, one above it does not; and where its
// place is needed, a body has to hurry.
func TestSlowBodies(t *testing.T) {
	var senders sync.WaitGroup
	send := func(v *visitor, bytes int, every time.Duration, times int) {
		fmt.Fprintf(v, "POST /read HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", bytes*times)
		senders.Go(func() {
			for range times {
				if _, err := v.Write(make([]byte, bytes)); err != nil {
					return
				}
				time.Sleep(every)
			}
		})
		go io.Copy(io.Discard, v.in)
	}
	synctest.Test(t, func(t *testing.T) {
		f := flood(t, Listen{MaxConnections: 2, MaxPerAddress: -1})
		defer f.end()
		slow, fast := f.dial("198.51.100.7"), f.dial("198.51.100.7")
		defer slow.Close()
		defer fast.Close()
		start := time.Now()
		send(slow, 1, time.Second, 30)
		if err := <-f.read; !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) > 6*time.Second {
			t.Errorf("a byte a second: %v after %v", err, time.Since(start))
		}
		start = time.Now()
		send(fast, 1100, time.Second, 30)
		if err := <-f.read; err != nil || time.Since(start) < 29*time.Second {
			t.Errorf("1100 bytes a second: %v after %v", err, time.Since(start))
		}
		if got := f.shed("pace"); got != "1" {
			t.Errorf("%s counted, want 1", got)
		}
		senders.Wait()
	})
	synctest.Test(t, func(t *testing.T) {
		f := flood(t, Listen{MaxConnections: 2, MaxPerAddress: -1})
		defer senders.Wait()
		defer f.end()
		for range 2 {
			v := f.dial("198.51.100.7")
			defer v.Close()
			send(v, 1100, time.Second, 30)
		}
		time.Sleep(2500 * time.Millisecond)
		honest := f.dial("203.0.113.1")
		defer honest.Close()
		promptly(t, "an honest request among slow ones", func() {
			if got := honest.ask("/", ""); got != 200 {
				t.Errorf("status %d", got)
			}
		})
		if got := f.shed("slow"); got != "1" {
			t.Errorf("%s made place, want 1", got)
		}
	})
}

// TestBehindAProxy: the header that the proxy writes tells senders apart, its last entry
// alone.
func TestBehindAProxy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := flood(t, Listen{Address: "192.0.2.1:80", TLSTerminatedUpstream: true, ForwardedHeader: "X-Forwarded-For", MaxPerAddress: 2})
		var all []*visitor
		come := func(header, path string) int {
			v := f.dial("192.0.2.9")
			all = append(all, v)
			got := make(chan int, 1)
			go func() { got <- v.ask(path, "X-Forwarded-For: "+header+"\r\n") }()
			synctest.Wait()
			select {
			case status := <-got:
				return status
			default:
				return 0
			}
		}
		come("198.51.100.7", "/wait")
		come("203.0.113.1, 198.51.100.7", "/wait")
		for header, want := range map[string]int{
			"198.51.100.7": 429, "203.0.113.1, 198.51.100.7": 429, "203.0.113.1": 200, "198.51.100.7, 203.0.113.1": 200,
		} {
			if got := come(header, "/"); got != want {
				t.Errorf("%q: status %d, want %d", header, got, want)
			}
		}
		come("203.0.113.1", "/known")
		for range 3 {
			come("203.0.113.1", "/wait")
		}
		if got := come("203.0.113.1", "/"); got != 200 {
			t.Errorf("a peer with a token: status %d", got)
		}
		f.end()
		for _, v := range all {
			v.Close()
		}
	})
}
