package relay

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/starling-agg/starling/anonymity/internal/door"
)

// TestBundle: the log's bundle is the same for everybody, whatever a request says of what its
// sender has; without a log there is no such resource.
func TestBundle(t *testing.T) {
	var bundle []byte
	r := newRelay(t, Options{Bundle: func() []byte { return bundle }, Limits: Limits{Rate: Rate{Requests: 5}}})
	ask := func(r *Relay, change func(*http.Request)) *httptest.ResponseRecorder {
		req := httptest.NewRequest("GET", "/bundle", nil)
		if change != nil {
			change(req)
		}
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		return w
	}
	if got := refusedAs(t, ask(r, nil)); got != door.Unreachable {
		t.Errorf("before it was had: %q", got)
	}
	bundle = []byte("the bundle of everybody")
	for name, change := range map[string]func(*http.Request){
		"plain": nil,
		"conditional": func(r *http.Request) {
			r.Header.Set("If-None-Match", "*")
			r.Header.Set("If-Modified-Since", "Thu, 26 Nov 2026 00:00:00 GMT")
		},
		"a part of it": func(r *http.Request) { r.Header.Set("Range", "bytes=0-3") },
	} {
		w := ask(r, change)
		if w.Code != 200 || w.Body.String() != string(bundle) || w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("Etag") != "" {
			t.Errorf("%s: %d, %q, %v", name, w.Code, w.Body, w.Header())
		}
	}
	if got := refusedAs(t, ask(r, func(r *http.Request) { r.URL.RawQuery = "device=7" })); got != door.Path {
		t.Errorf("with a query: %q", got)
	}
	if s := r.Status(); s.Bundles != 3 || r.Outcome("bundle") != 3 || s.Forwarded != 0 {
		t.Errorf("%+v", s)
	}
	ask(r, nil)
	if got := refusedAs(t, ask(r, nil)); got != door.Rate {
		t.Errorf("past the limit of a sender: %q", got)
	}
	if got := refusedAs(t, ask(newRelay(t, Options{}), nil)); got != door.Path {
		t.Errorf("a relay of no log: %q", got)
	}
}
