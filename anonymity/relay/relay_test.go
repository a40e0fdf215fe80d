package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/internal/service"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answering is a gateway that always answers so.
func answering(status int, media, body string, header ...string) roundTrip {
	return func(r *http.Request) (*http.Response, error) {
		io.Copy(io.Discard, r.Body)
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", media)
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.WriteHeader(status)
		io.WriteString(w, body)
		return w.Result(), nil
	}
}

func newRelay(t *testing.T, o Options) *Relay {
	t.Helper()
	if o.Gateway == "" {
		o.Gateway = "https://gateway.example/in"
	}
	if o.Transport == nil {
		o.Transport = answering(200, responseMedia, "answer")
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func post(body string) *http.Request {
	r := httptest.NewRequest("POST", "/", strings.NewReader(body))
	r.Header.Set("Content-Type", requestMedia)
	return r
}

func refusedAs(t *testing.T, w *httptest.ResponseRecorder) door.Reason {
	t.Helper()
	if w.Code == 200 {
		return ""
	}
	if w.Body.Len() != door.ProblemSize {
		t.Errorf("a refusal of %d bytes", w.Body.Len())
	}
	reason, _ := door.Read(w.Body)
	return reason
}

func serve(r *Relay, req *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.ServeHTTP(w, req)
	return w
}

// TestStrips runs relay and gateway as servers: of what a device sends, the gateway gets
// the body and nothing else, on a connection that is the relay's; of what a gateway
// sends, the device gets the body and nothing else.
func TestStrips(t *testing.T) {
	var got *http.Request
	var body []byte
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", responseMedia)
		w.Header().Set("Set-Cookie", "device=7")
		w.Header().Set("Etag", "device-7")
		w.Header().Set("Server", "gateway")
		w.Write([]byte("answer"))
	}))
	defer gateway.Close()
	var log bytes.Buffer
	relay := newRelay(t, Options{Gateway: gateway.URL + "/in", Token: "the relay's token", Transport: defaultTransport(),
		Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	front := httptest.NewServer(relay)
	defer front.Close()
	r, _ := http.NewRequest("POST", front.URL, strings.NewReader("opaque"))
	for _, h := range []string{"User-Agent", "Cookie", "X-Forwarded-For", "Forwarded", "Via", "Referer", "Origin", "X-Device",
		"Accept-Language", "Accept-Encoding", "Date", "Traceparent", "Authorization", "Sec-Ch-Ua", "X-Forwarded-Host", "Priority"} {
		r.Header.Set(h, "device-7")
	}
	r.Header.Set("Content-Type", requestMedia+"; device=7")
	r.Trailer = http.Header{"X-Device": {"7"}}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); string(b) != "answer" || string(body) != "opaque" {
		t.Errorf("sent %q, answered %q", body, b)
	}
	want := http.Header{"Content-Type": {requestMedia}, "Authorization": {"Bearer the relay's token"}, "Content-Length": {"6"}}
	if fmt.Sprint(got.Header) != fmt.Sprint(want) || len(got.Trailer) != 0 || got.URL.Path != "/in" || got.Host != strings.TrimPrefix(gateway.URL, "http://") {
		t.Errorf("the gateway got %s %s %v, trailer %v", got.Host, got.URL, got.Header, got.Trailer)
	}
	for name := range resp.Header {
		if !slices.Contains([]string{"Content-Type", "Content-Length", "Cache-Control", "Date"}, name) {
			t.Errorf("the device got a header %s", name)
		}
	}
	if log.Len() != 0 {
		t.Errorf("a request was logged: %s", &log)
	}
}

// TestKeptConnectionClosed: a gateway that closes a kept connection when the next request is
// on it already costs no device its request, and hears nothing more of it.
func TestKeptConnectionClosed(t *testing.T) {
	var asked atomic.Int64
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if len(r.Header["Idempotency-Key"]) > 0 {
			t.Error("the gateway got a header that is for the relay's own transport")
		}
		if asked.Add(1) == 2 {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			c.Close()
			return
		}
		w.Header().Set("Content-Type", responseMedia)
		w.Write(body)
	}))
	defer gateway.Close()
	relay := newRelay(t, Options{Gateway: gateway.URL, Transport: defaultTransport()})
	for _, body := range []string{"first", "second"} {
		if w := serve(relay, post(body)); w.Code != 200 || w.Body.String() != body {
			t.Errorf("%s: status %d, %q", body, w.Code, w.Body)
		}
	}
	if asked.Load() != 3 {
		t.Errorf("the gateway was asked %d times", asked.Load())
	}
}

// TestPointedElsewhere: neither a device nor the gateway chooses where the relay goes.
func TestPointedElsewhere(t *testing.T) {
	var mu sync.Mutex
	var went []string
	record := roundTrip(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		went = append(went, r.URL.String()+" "+r.Host)
		mu.Unlock()
		return answering(307, "", "", "Location", "https://elsewhere.example/")(r)
	})
	relay := newRelay(t, Options{Transport: record})
	front := httptest.NewServer(relay)
	defer front.Close()
	host := strings.TrimPrefix(front.URL, "http://")
	for name, head := range map[string]string{
		"absolute URL": "POST http://elsewhere.example/ HTTP/1.1\r\nHost: elsewhere.example\r\n",
		"query":        "POST /?gateway=https://elsewhere.example HTTP/1.1\r\nHost: " + host + "\r\n",
		"empty query":  "POST /? HTTP/1.1\r\nHost: " + host + "\r\n",
		"path":         "POST /https://elsewhere.example HTTP/1.1\r\nHost: " + host + "\r\n",
		"proxy":        "CONNECT elsewhere.example:443 HTTP/1.1\r\nHost: elsewhere.example:443\r\n",
	} {
		resp := raw(t, host, head+"Content-Type: "+requestMedia+"\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx")
		if got, _ := door.Read(resp.Body); got != door.Path {
			t.Errorf("%s: status %d, %q", name, resp.StatusCode, got)
		}
	}
	if len(went) != 0 {
		t.Errorf("the relay went to %q", went)
	}
	resp := raw(t, host, "POST / HTTP/1.1\r\nHost: elsewhere.example\r\nX-Forwarded-Host: elsewhere.example\r\nContent-Type: "+
		requestMedia+"\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx")
	if got, _ := door.Read(resp.Body); got != door.Unreachable {
		t.Errorf("a redirect: status %d, %q", resp.StatusCode, got)
	}
	if want := []string{"https://gateway.example/in gateway.example"}; !slices.Equal(went, want) {
		t.Errorf("the relay went to %q", went)
	}
}

func TestRefuses(t *testing.T) {
	relay := newRelay(t, Options{Limits: Limits{Body: 10, InFlight: 12}})
	long := post(strings.Repeat("x", 11))
	undeclared := post(strings.Repeat("x", 11))
	undeclared.ContentLength = -1
	broken := post("")
	broken.Body, broken.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("x"), failing{})), 5
	get, media := post("x"), post("x")
	get.Method = "GET"
	media.Header.Set("Content-Type", "text/plain")
	for want, req := range map[door.Reason]*http.Request{
		door.Oversized: long, door.Broken: broken, door.Method: get, door.Media: media,
	} {
		if w := serve(relay, req); refusedAs(t, w) != want {
			t.Errorf("want %s, got status %d", want, w.Code)
		}
	}
	if w := serve(relay, undeclared); refusedAs(t, w) != door.Oversized {
		t.Errorf("undeclared length: status %d", w.Code)
	}
	if w := serve(relay, post("xxxxxxxxxx")); w.Code != 200 || w.Body.String() != "answer" {
		t.Errorf("after all that: status %d", w.Code)
	}
	if s := relay.Status(); s.Forwarded != 1 || s.Refused["oversized"] != 2 {
		t.Errorf("status %+v", s)
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

// TestGatewayAnswers: a device gets an encapsulated answer or a reason from the closed
// set, whatever the gateway says.
func TestGatewayAnswers(t *testing.T) {
	replayed := string(door.Document(door.Replayed))
	for name, c := range map[string]struct {
		gateway roundTrip
		want    door.Reason
	}{
		"refusal":          {answering(409, door.ProblemMedia, replayed, "Set-Cookie", "device=7"), door.Replayed},
		"refusal and more": {answering(409, door.ProblemMedia, `{"type":"urn:starling:ohttp:replayed","device":7}`), door.Replayed},
		"other problem":    {answering(400, door.ProblemMedia, `{"type":"urn:device:7"}`), door.Unreachable},
		"web page":         {answering(200, "text/html", "hello"), door.Unreachable},
		"too long":         {answering(200, responseMedia, strings.Repeat("x", 2000)), door.Unreachable},
		"no content":       {answering(204, responseMedia, ""), door.Unreachable},
		"away":             {func(*http.Request) (*http.Response, error) { return nil, errors.New("no route to host") }, door.Unreachable},
	} {
		relay := newRelay(t, Options{Transport: c.gateway, Limits: Limits{Answer: 1000}})
		w := serve(relay, post("x"))
		if got := refusedAs(t, w); got != c.want || w.Code != c.want.Status() {
			t.Errorf("%s: %q, status %d", name, got, w.Code)
		}
		if len(w.Header()) != 2 {
			t.Errorf("%s: header %v", name, w.Header())
		}
	}
}

// TestBusy: beyond its limits the relay refuses at once.
func TestBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := make(chan struct{})
		relay := newRelay(t, Options{Limits: Limits{Requests: 2}, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			<-free
			return answering(200, responseMedia, "answer")(r)
		})})
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() {
				if w := serve(relay, post("x")); w.Code != 200 {
					t.Errorf("status %d", w.Code)
				}
			})
		}
		synctest.Wait()
		if w := serve(relay, post("x")); refusedAs(t, w) != door.Busy {
			t.Errorf("a third: status %d", w.Code)
		}
		close(free)
		all.Wait()
		if w := serve(relay, post("x")); w.Code != 200 {
			t.Errorf("afterwards: status %d", w.Code)
		}
	})
}

// TestGatewayTimeout: a gateway that never answers is given up.
func TestGatewayTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay := newRelay(t, Options{Limits: Limits{AnswerTimeout: time.Minute}, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})})
		begin := time.Now()
		if w := serve(relay, post("x")); refusedAs(t, w) != door.Unreachable || time.Since(begin) != time.Minute {
			t.Errorf("status %d after %v", w.Code, time.Since(begin))
		}
	})
}

// keyed has a relay count its first interval under a given key: under one that it drew two
// networks of a test would share one of its 4,096 counters in some runs.
func keyed(r *Relay, now time.Time) {
	r.rate.key, r.rate.until = [32]byte{1}, now.Add(r.rate.interval)
}

func TestRate(t *testing.T) {
	now := time.Unix(1000, 0)
	relay := newRelay(t, Options{Limits: Limits{Rate: Rate{Requests: 3, Interval: time.Minute}}, Now: func() time.Time { return now }})
	keyed(relay, now)
	from := func(address string) door.Reason {
		r := post("x")
		r.RemoteAddr = address
		return refusedAs(t, serve(relay, r))
	}
	for i := range 5 { // neighbours share a counter, whichever port or host
		want := door.Reason("")
		if i >= 3 {
			want = door.Rate
		}
		if got := from(fmt.Sprintf("192.0.2.%d:%d", i, 1000+i)); got != want {
			t.Errorf("request %d: %q", i, got)
		}
		if got := from(fmt.Sprintf("[2001:db8:7:%x::1]:%d", i, i)); got != want {
			t.Errorf("IPv6 request %d: %q", i, got)
		}
	}
	now = now.Add(time.Minute)
	if got := from("192.0.2.9:1"); got != "" {
		t.Errorf("a minute later: %q", got)
	}
	r := relay.rate
	key := r.key
	now = now.Add(time.Minute)
	from("192.0.2.9:1")
	if r.key == key {
		t.Error("the key outlived its interval")
	}
}

// TestRateByDefault: who says nothing of rates has a limit.
func TestRateByDefault(t *testing.T) {
	now := time.Unix(1000, 0)
	relay := newRelay(t, Options{Now: func() time.Time { return now }})
	refused := 0
	for range 2 * defaultRate {
		if refusedAs(t, serve(relay, post("x"))) == door.Rate {
			refused++
		}
	}
	if refused != defaultRate {
		t.Errorf("%d of %d requests were refused", refused, 2*defaultRate)
	}
	relay = newRelay(t, Options{Limits: Limits{Rate: Rate{Requests: -1}}, Now: func() time.Time { return now }})
	for range 2 * defaultRate {
		if got := refusedAs(t, serve(relay, post("x"))); got != "" {
			t.Fatalf("with the limit off: %q", got)
		}
	}
}

// TestRateBehindProxy: the sender is whom the proxy wrote last; what a device writes
// itself moves it nowhere.
func TestRateBehindProxy(t *testing.T) {
	now := time.Unix(1000, 0)
	var logged bytes.Buffer
	told := 0
	sender := func(r *http.Request) string { return service.SenderOf(r, "X-Forwarded-For") }
	relay := newRelay(t, Options{SenderOf: sender, Limits: Limits{Rate: Rate{Requests: 2}}, Now: func() time.Time { return now },
		Log: slog.New(slog.NewTextHandler(&logged, nil)), Unplaced: func() { told++ }})
	keyed(relay, now)
	from := func(forwarded ...string) door.Reason {
		r := post("x")
		r.RemoteAddr = "198.51.100.1:443" // the proxy's
		r.Header["X-Forwarded-For"] = forwarded
		return refusedAs(t, serve(relay, r))
	}
	for i, c := range []struct {
		header []string
		want   door.Reason
	}{
		{[]string{"192.0.2.7"}, ""}, {[]string{"203.0.113.1, 192.0.2.8"}, ""}, {[]string{"203.0.113.2,192.0.2.9"}, door.Rate},
		{[]string{"203.0.113.3", "192.0.2.9"}, door.Rate}, {[]string{"203.0.113.1"}, ""}, {[]string{"2001:db8::1"}, ""},
		{nil, ""}, {[]string{"unknown"}, ""}, {[]string{""}, door.Rate}, // who hides is one part of the network
	} {
		if got := from(c.header...); got != c.want {
			t.Errorf("request %d, %q: %q, want %q", i, c.header, got, c.want)
		}
		if hidden := i >= 6; (relay.Status().Unplaced > 0) != hidden {
			t.Errorf("request %d: %d without an address", i, relay.Status().Unplaced)
		}
	}
	// That is loud, once, and counted: a proxy that writes nothing has all share one
	// limit.
	if n := strings.Count(logged.String(), "level=WARN"); n != 1 || relay.Status().Unplaced != 3 || told != 3 || strings.Contains(logged.String(), "unknown") {
		t.Errorf("%d without an address, told %d, log %q", relay.Status().Unplaced, told, logged.String())
	}
}

func TestOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {Gateway: "gateway.example"}, {Gateway: "https://gateway.example/?x"}, {Gateway: "https://me@gateway.example/"},
		{Gateway: "https://gateway.example/", Path: "x"}, {Gateway: "https://gateway.example/", Limits: Limits{Body: -1}},
		{Gateway: "https://gateway.example/", Limits: Limits{InFlight: 1}}, {Gateway: "https://gateway.example/", Limits: Limits{Rate: Rate{Interval: -1}}},
	} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v accepted", o)
		}
	}
}

func TestNetwork(t *testing.T) {
	of := func(remote string) [16]byte {
		prefix, _ := network(remote)
		return prefix
	}
	for a, b := range map[string]string{
		"192.0.2.7:1": "192.0.2.255:9", "[::ffff:192.0.2.7]:1": "192.0.2.1:2", "[fe80::1%eth0]:1": "[fe80::9]:1", "@": "",
	} {
		if of(a) != of(b) {
			t.Errorf("%s and %s are different parts of the network", a, b)
		}
	}
	if of("192.0.2.7:1") == of("192.0.3.7:1") || of("[2001:db8:1::]:1") == of("[2001:db8:2::]:1") {
		t.Error("all the network is one part")
	}
}
