package ohttp

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/sealed"
)

// fakeRelay is relay and gateway in one: it opens requests and answers with what answer
// says.
type fakeRelay struct {
	ring   *Keyring
	seen   []*http.Request
	sizes  []int
	inner  []*Request
	answer func(*Request) *Response
	outer  func(w http.ResponseWriter, body []byte) bool // true if it has answered
}

func (f *fakeRelay) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	f.seen, f.sizes = append(f.seen, r), append(f.sizes, len(body))
	w := httptest.NewRecorder()
	if f.outer != nil && f.outer(w, body) {
		return w.Result(), nil
	}
	e, err := f.ring.Split(body)
	if err != nil {
		return nil, err
	}
	plain, seal, err := e.Open()
	if err != nil {
		return nil, err
	}
	m, err := ReadRequest(plain, MessageLimits{})
	if err != nil {
		return nil, err
	}
	f.inner = append(f.inner, m)
	b, err := f.answer(m).Append(nil)
	if err != nil {
		return nil, err
	}
	if b, err = seal.Seal(Pad(b, MinResponse)); err != nil {
		return nil, err
	}
	w.Header().Set("Content-Type", ResponseMedia)
	w.Write(b)
	return w.Result(), nil
}

func newTransport(t *testing.T) (*Transport, *fakeRelay, *Manifest) {
	t.Helper()
	pair := generate(t, 3, sealed.SuiteX25519)
	ring, err := NewKeyring(pair)
	if err != nil {
		t.Fatal(err)
	}
	m := testManifest(t, pair, "https://relay.example/", "https://leader.example/v1/")
	relay := &fakeRelay{ring: ring, answer: func(*Request) *Response { return &Response{Status: 200} }}
	transport, err := NewTransport(TransportOptions{Source: Pin(m), Relay: relay, Now: func() time.Time { return time.Unix(1500, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	return transport, relay, m
}

func post(t *testing.T, method, url string, body []byte) *http.Request {
	t.Helper()
	r, err := http.NewRequest(method, url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/dap-upload-req")
	return r
}

const reports = "https://leader.example/v1/tasks/t/reports"

func TestTransport(t *testing.T) {
	transport, relay, _ := newTransport(t)
	relay.answer = func(*Request) *Response {
		return &Response{Status: 429, Header: []Field{{"retry-after", "7"}, {"content-type", "text/plain"}}, Content: []byte("later")}
	}
	r := post(t, "POST", reports, []byte("a report"))
	r.Header.Set("User-Agent", "phone 7")
	r.Header.Set("Cookie", "me=1")
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); string(b) != "later" || resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "7" {
		t.Errorf("got %d %q %v", resp.StatusCode, b, resp.Header)
	}
	inner, outer := relay.inner[0], relay.seen[0]
	if inner.Method != "POST" || inner.Authority != "leader.example" || inner.Path != "/v1/tasks/t/reports" ||
		string(inner.Content) != "a report" || len(inner.Header) != 1 || inner.Header[0].Name != "content-type" {
		t.Errorf("inside: %+v", inner)
	}
	if outer.URL.String() != "https://relay.example/" || outer.Method != "POST" || outer.Header.Get("Content-Type") != RequestMedia {
		t.Errorf("outside: %s %s", outer.Method, outer.URL)
	}
	for name := range outer.Header {
		if name != "Content-Type" && name != "Accept" && name != "User-Agent" {
			t.Errorf("outside: header %s", name)
		}
	}
	if ua, set := outer.Header["User-Agent"]; !set || len(ua) != 0 {
		t.Errorf("net/http would name itself: %q", ua)
	}
}

// TestCover: a cover request is as long as the upload that it stands for, and holds
// nothing of it.
func TestCover(t *testing.T) {
	transport, relay, _ := newTransport(t)
	for _, n := range []int{0, 100, 3900, 3980, 4000, 4096, 70_000} {
		report := bytes.Repeat([]byte{7}, n)
		for _, method := range []string{"POST", MethodCover} {
			resp, err := transport.RoundTrip(post(t, method, reports, report))
			if err != nil || resp.StatusCode != 200 {
				t.Fatal(err)
			}
		}
		last := len(relay.sizes) - 1
		if relay.sizes[last] != relay.sizes[last-1] {
			t.Errorf("a report of %d bytes takes %d, its cover %d", n, relay.sizes[last-1], relay.sizes[last])
		}
		if cover := relay.inner[last]; cover.Method != MethodCover || bytes.ContainsRune(cover.Content, 7) || len(cover.Content) != n {
			t.Errorf("the cover holds %d bytes of the report", bytes.Count(cover.Content, []byte{7}))
		}
	}
}

func TestPinned(t *testing.T) {
	transport, relay, m := newTransport(t)
	r, _ := http.NewRequest("GET", m.Pinned[0].URL, nil)
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(resp.Body); !bytes.Equal(b, m.Pinned[0].Body) || resp.Header.Get("Content-Type") != m.Pinned[0].Media {
		t.Errorf("got %x", b)
	}
	if len(relay.seen) != 0 {
		t.Error("a pinned answer was asked for")
	}
}

// TestNothingGoesDirect: what cannot go through the relay goes nowhere.
func TestNothingGoesDirect(t *testing.T) {
	transport, relay, _ := newTransport(t)
	for _, c := range [][2]string{
		{"GET", "https://leader.example/v1/other"}, {"GET", reports}, {"PUT", reports}, {"DELETE", reports},
		{"POST", "https://leader.example/v2/tasks/t/reports"}, {"POST", "https://leader.example/v1"},
		{"POST", "http://leader.example/v1/tasks/t/reports"}, {"POST", "https://leader.example.evil/v1/tasks/t/reports"},
		{"POST", reports + "?device=7"}, {"POST", "https://me@leader.example/v1/tasks/t/reports"}, {"NOOP", "https://helper.example/v1/x"},
	} {
		var direct *DirectError
		if _, err := transport.RoundTrip(post(t, c[0], c[1], nil)); !errors.As(err, &direct) {
			t.Errorf("%s %s: %v", c[0], c[1], err)
		}
	}
	transport.o.Now = func() time.Time { return time.Unix(2000, 0) }
	if _, err := transport.RoundTrip(post(t, "POST", reports, nil)); !errors.Is(err, ErrManifest) {
		t.Errorf("an old manifest: %v", err)
	}
	if len(relay.seen) != 0 {
		t.Errorf("%d requests left the device", len(relay.seen))
	}
}

// TestRefusals: the reason of a refusal in the clear comes through, nothing else that a
// relay might say does, and none makes the transport send again.
func TestRefusals(t *testing.T) {
	transport, relay, _ := newTransport(t)
	for _, reason := range door.All {
		sent := len(relay.seen)
		relay.outer = func(w http.ResponseWriter, _ []byte) bool { door.Refuse(w, reason); return true }
		_, err := transport.RoundTrip(post(t, "POST", reports, nil))
		if refused := new(RefusedError); !errors.As(err, &refused) || refused.Reason != reason {
			t.Errorf("%s became %v", reason, err)
		}
		if n := len(relay.seen) - sent; n != 1 {
			t.Errorf("%s: sent %d times", reason, n)
		}
	}
	for name, outer := range map[string]func(http.ResponseWriter){
		"forged DAP problem": func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", door.ProblemMedia)
			w.WriteHeader(400)
			io.WriteString(w, `{"type":"urn:ietf:params:ppm:dap:error:reportRejected"}`)
		},
		"plain success": func(w http.ResponseWriter) { w.WriteHeader(200) },
		"redirect":      func(w http.ResponseWriter) { w.Header().Set("Location", reports); w.WriteHeader(307) },
		"endless error": func(w http.ResponseWriter) { w.WriteHeader(500); io.WriteString(w, strings.Repeat("x", 1<<20)) },
	} {
		relay.outer = func(w http.ResponseWriter, _ []byte) bool { outer(w); return true }
		_, err := transport.RoundTrip(post(t, "POST", reports, nil))
		if refused := new(RefusedError); !errors.As(err, &refused) || refused.Reason != ReasonUnreachable {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, body := range map[string][]byte{"short": make([]byte, 10), "made up": make([]byte, 1072)} {
		relay.outer = func(w http.ResponseWriter, _ []byte) bool {
			w.Header().Set("Content-Type", ResponseMedia)
			w.Write(body)
			return true
		}
		if _, err := transport.RoundTrip(post(t, "POST", reports, nil)); !errors.Is(err, ErrSealed) && !errors.Is(err, ErrTruncated) {
			t.Errorf("%s answer: %v", name, err)
		}
	}
}
