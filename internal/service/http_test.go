package service

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// start runs one part and returns a function that stops it and gives its result.
func start(t *testing.T, p Part) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	up, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- Run(ctx, 0, func() { close(up) }, p) }()
	select {
	case <-up:
	case err := <-done:
		t.Fatalf("did not start: %v", err)
	}
	return func() error { cancel(); return <-done }
}

func TestListenValidate(t *testing.T) {
	ok := []Listen{
		{Address: "127.0.0.1:0"}, {Address: "127.3.2.1:80"}, {Address: "[::1]:80"}, {Address: "localhost:80"},
		{Address: "unix:/run/x.sock"}, {Address: "0.0.0.0:80", TLSTerminatedUpstream: true},
		{Address: ":443", TLSCertificate: "c", TLSKey: "k"},
	}
	for _, l := range ok {
		if err := l.Validate(); err != nil {
			t.Errorf("%+v: %v", l, err)
		}
	}
	for _, a := range []Address{"0.0.0.0:80", ":80", "192.0.2.1:80", "leader.example:80", "[::]:80", "localhost.example:80"} {
		if err := (Listen{Address: a}).Validate(); !errors.Is(err, ErrPlainHTTP) {
			t.Errorf("%s without TLS: %v", a, err)
		}
		if err := (Local{Address: a}).Validate(); err == nil {
			t.Errorf("a local listener on %s is accepted", a)
		}
	}
	for _, l := range []Listen{
		{}, {Address: "localhost"}, {Address: "unix:"}, {Address: ":443", TLSCertificate: "c"}, {Address: ":443", TLSKey: "k"},
		{Address: "127.0.0.1:0", MaxConnections: -1}, {Address: "127.0.0.1:0", HeaderTimeout: -1},
		{Address: "127.0.0.1:0", RequestTimeout: Duration(2 * time.Hour)}, {Address: "127.0.0.1:0", SocketMode: 0o660},
	} {
		if l.Validate() == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}

func TestServerUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	// A socket file without a listener, as a killed process leaves it.
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()

	s := Server{Name: "public", Listen: Listen{Address: Address("unix:" + path), SocketMode: 0o620}, Log: quiet(),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })}
	stop := start(t, s.Part())
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	resp, err := client.Get("http://leader/")
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); string(b) != "hello" {
		t.Errorf("got %q", b)
	}
	resp.Body.Close()
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o620 && runtime.GOOS != "windows" {
		t.Errorf("the socket: %v, %v", info, err)
	}
	if err := Run(t.Context(), 0, nil, s.Part()); err == nil || !strings.Contains(err.Error(), "another process listens") {
		t.Errorf("a second server on the same socket: %v", err)
	}
	client.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Run(t.Context(), 0, nil, s.Part()); err == nil {
		t.Error("a regular file was replaced by a socket")
	}
}

// TestServerDrains: a request under way at the stop gets its answer, and connections
// beyond the limit wait.
func TestServerDrains(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	addr := make(chan net.Addr, 1)
	s := Server{Name: "public", Listen: Listen{Address: "127.0.0.1:0", MaxConnections: 1}, Log: quiet(),
		Opened: func(a net.Addr) { addr <- a },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			close(entered)
			<-leave
			io.WriteString(w, "late but whole")
		})}
	stop := start(t, s.Part())
	at := (<-addr).String()
	got := make(chan string, 1)
	go func() {
		resp, err := http.Get("http://" + at + "/")
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		got <- string(b)
	}()
	<-entered
	second, err := net.Dial("tcp", at) // the kernel's queue takes it, the server does not
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	io.WriteString(second, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") // a second entry would close(entered) twice
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	close(leave)
	if b := <-got; b != "late but whole" {
		t.Errorf("got %q", b)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestServerLimits(t *testing.T) {
	dial := func(timeout time.Duration) net.Conn {
		addr := make(chan net.Addr, 1)
		s := Server{Name: "public", Listen: Listen{Address: "127.0.0.1:0", HeaderTimeout: Duration(timeout)},
			Log: quiet(), Opened: func(a net.Addr) { addr <- a }, Handler: http.NotFoundHandler()}
		stop := start(t, s.Part())
		t.Cleanup(func() { stop() })
		conn, err := net.Dial("tcp", (<-addr).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	slow := dial(20 * time.Millisecond)
	io.WriteString(slow, "GET / HTTP/1.1\r\nHos")
	if b, _ := io.ReadAll(slow); strings.Contains(string(b), "200") {
		t.Errorf("a slow head got %q", b)
	}
	big := dial(time.Minute)
	go io.WriteString(big, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", maxHeaderBytes+8192)+"\r\n\r\n")
	if line, _ := bufio.NewReader(big).ReadString('\n'); !strings.Contains(line, "431") {
		t.Errorf("a large head got %q", line)
	}
}

// TestServerTLS also renews the certificate under the running server.
func TestServerTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool := writeCertificate(t, cert, key, "first")
	c := &certificate{cert: Path(cert), key: Secret(key)}
	addr := make(chan net.Addr, 1)
	l := Listen{Address: "127.0.0.1:0", TLSCertificate: Path(cert), TLSKey: Secret(key)}
	if err := l.CheckFiles(); err != nil {
		t.Fatal(err)
	}
	s := Server{Name: "public", Listen: l, Log: quiet(), Opened: func(a net.Addr) { addr <- a },
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "sealed") })}
	stop := start(t, s.Part())
	defer stop()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	resp, err := client.Get("https://" + (<-addr).String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	client.CloseIdleConnections()

	if _, err := c.get(nil); err != nil {
		t.Fatal(err)
	}
	writeCertificate(t, cert, key, "second")
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(cert, later, later); err != nil {
		t.Fatal(err)
	}
	commonName := func() string {
		t.Helper()
		pair, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(pair.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		return leaf.Subject.CommonName
	}
	if got := commonName(); got != "first" {
		t.Errorf("looked again too soon: %s", got)
	}
	c.looked = time.Time{}
	if got := commonName(); got != "second" {
		t.Errorf("the renewed certificate is not served: %s", got)
	}
	if err := os.WriteFile(cert, []byte("half a certif"), 0o600); err != nil {
		t.Fatal(err)
	}
	c.looked = time.Time{}
	if got := commonName(); got != "second" {
		t.Errorf("a broken renewal stopped the old one: %s", got)
	}
	if err := l.CheckFiles(); err == nil {
		t.Error("CheckFiles accepts a broken certificate")
	}
}

func writeCertificate(t *testing.T, cert, key, name string) *x509.CertPool {
	t.Helper()
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &priv.PublicKey, priv)
	if err != nil {
		t.Fatal(err)
	}
	p8, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: p8}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return pool
}

// TestObserve: one event a request, with the pattern and never the path; a panic is a 500
// and not a crash.
func TestObserve(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tasks/{task}/reports", func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "four")
	})
	mux.HandleFunc("GET /boom", func(http.ResponseWriter, *http.Request) { panic("share " + testToken) })
	var buf bytes.Buffer
	m := NewMetrics()
	h := Observe(mux, NewLogger(&buf, slog.LevelInfo), m, []string{"POST /tasks/{task}/reports", "GET /boom"})

	event := func(method, path, body string, want int) map[string]any {
		t.Helper()
		buf.Reset()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
		if w.Code != want {
			t.Errorf("%s %s: status %d, want %d", method, path, w.Code, want)
		}
		out := buf.String()
		if strings.Contains(out, "192.0.2.1") || strings.Contains(out, "secret-path") || strings.Contains(out, testToken) {
			t.Errorf("the log leaks: %s", out)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var e map[string]any
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &e); err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := event("POST", "/tasks/secret-path/reports", "seven b", http.StatusCreated)
	if e["route"] != "POST /tasks/{task}/reports" || e["class"] != "2xx" || e["bytes_in"] != 7.0 || e["bytes_out"] != 4.0 {
		t.Errorf("got %v", e)
	}
	if e := event("GET", "/secret-path", "", http.StatusNotFound); e["route"] != "other" || e["class"] != "4xx" {
		t.Errorf("got %v", e)
	}
	if e := event("GET", "/boom", "", http.StatusInternalServerError); e["route"] != "GET /boom" || e["class"] != "5xx" {
		t.Errorf("got %v", e)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`starling_http_request_seconds_count{route="POST /tasks/{task}/reports"} 1`,
		`starling_http_requests_total{class="2xx",route="POST /tasks/{task}/reports"} 1`,
		`starling_http_requests_total{class="4xx",route="other"} 1`,
		`starling_http_request_bytes_total{route="POST /tasks/{task}/reports"} 7`,
		`starling_http_response_bytes_total{route="POST /tasks/{task}/reports"} 4`,
	} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
}

func TestMetricsClosedLabels(t *testing.T) {
	m := NewMetrics()
	c := m.Counter("starling_rejected_total", "Reports refused.", Label{Name: "role", Values: []string{"leader", "helper"}},
		Label{Name: "reason", Values: []string{"replayed", "expired"}})
	c.Add(3, "helper", "replayed")
	c.Add(2, "helper", "invented by a stranger")
	c.Add(1, "nobody", "expired")
	level := 4.0
	m.Gauge("starling_queue", "Waiting.", func() float64 { return level })
	level = 5
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{
		`starling_rejected_total{reason="replayed",role="helper"} 3`, `starling_rejected_total{reason="other",role="helper"} 2`,
		`starling_rejected_total{reason="expired",role="other"} 1`, `starling_rejected_total{reason="expired",role="leader"} 0`,
		`starling_queue 5`,
	} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("the metrics lack %s", line)
		}
	}
	if strings.Contains(w.Body.String(), "stranger") {
		t.Error("a label outside its set made a series")
	}
	if n := strings.Count(w.Body.String(), "starling_rejected_total{"); n != 9 {
		t.Errorf("%d series, want 9", n)
	}
}

func TestLocal(t *testing.T) {
	var takes, verifies error
	stopping, cancel := context.WithCancel(t.Context())
	l := Local{Metrics: NewMetrics(), Log: quiet(), Health: Health{
		Ready: func() Readiness {
			r := Ready(true)
			r.Take.Because(ReasonDisk, takes)
			r.Verify.Because(ReasonPeer, verifies)
			return r
		},
		Status: func(context.Context) (any, error) { return map[string]int{"tasks": 1}, nil },
	}, Extra: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "extra") })}
	h := l.handler(stopping)
	want := func(path string, status int, part string) {
		t.Helper()
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != status || !strings.Contains(w.Body.String(), part) {
			t.Errorf("%s: %d %q, want %d with %q", path, w.Code, w.Body, status, part)
		}
	}
	want("/livez", 200, "ok")
	want("/readyz", 200, "take: ok\nverify: ok\nrelease: ok\n")
	want("/statusz", 200, `"tasks": 1`)
	want("/metrics", 200, "go_goroutines")
	want("/debug/pprof/", 200, "goroutine")
	want("/anything", 200, "extra")
	verifies = errors.New("peer 192.0.2.7 unreachable")
	want("/readyz", 200, "take: ok\nverify: no: peer: peer [address] unreachable\nrelease: ok\n")
	takes = errors.New("full")
	want("/readyz", 503, "take: no: disk: full\n")
	want("/readyz?json", 503, `"code": "disk"`)
	want("/readyz?json", 503, "\"release\": {\n    \"ready\": true\n  }")
	takes, verifies = nil, nil
	cancel()
	want("/readyz", 503, "take: no: stopping")
	want("/livez", 200, "ok")
}

// TestLocalRefusesForeignNames: a browser that was led to the local listener by a name of
// somebody else's reads nothing.
func TestLocalRefusesForeignNames(t *testing.T) {
	h := askedHere(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "secret") }))
	for host, want := range map[string]int{
		"127.0.0.1:8443": 200, "127.0.0.1": 200, "[::1]:80": 200, "[::1]": 200, "localhost:9": 200, "localhost": 200,
		"evil.example": 421, "evil.example:8443": 421, "127.0.0.1.evil.example:80": 421, "localhost.evil.example": 421,
		"192.0.2.7:80": 421, "": 421, ":80": 421, "unix:80": 421, "unix:/x": 421,
	} {
		r := httptest.NewRequest("GET", "/statusz", nil)
		r.Host = host
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != want || (want != 200 && strings.Contains(w.Body.String(), "secret")) {
			t.Errorf("host %q: status %d, want %d", host, w.Code, want)
		}
	}
}

// A server that answers without reading a body must not wait for one: net/http sees to it
// as long as the body is its own.
func TestObserveAnswersBeforeTheBody(t *testing.T) {
	refuse := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestEntityTooLarge) })
	server := httptest.NewServer(Observe(refuse, NewLogger(io.Discard, slog.LevelInfo), NewMetrics(), nil))
	defer server.Close()
	for name, head := range map[string]string{
		"a large body announced": "Content-Length: 1000000000\r\n\r\n",
		"leave asked for first":  "Content-Length: 10\r\nExpect: 100-continue\r\n\r\n",
	} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.SetDeadline(time.Now().Add(time.Minute)) // where the answer does not come
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\n%s", head)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%s: status %d", name, resp.StatusCode)
		}
	}
}
