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

// TestTraining: files of trainings are the same for everybody, and a relay has those that it
// has, below its path.
func TestTraining(t *testing.T) {
	var asked []string
	r := newRelay(t, Options{Path: "/below/", Limits: Limits{Rate: Rate{Requests: 6}}, Training: func(path string) []byte {
		asked = append(asked, path)
		if path == "r/models/m" {
			return []byte("a model")
		}
		return nil
	}})
	ask := func(r *Relay, path string, change func(*http.Request)) *httptest.ResponseRecorder {
		req := httptest.NewRequest("GET", path, nil)
		if change != nil {
			change(req)
		}
		w := httptest.NewRecorder()
		r.ServeHTTP(w, req)
		return w
	}
	for name, change := range map[string]func(*http.Request){
		"plain":       nil,
		"conditional": func(r *http.Request) { r.Header.Set("If-None-Match", "*") },
		"a part":      func(r *http.Request) { r.Header.Set("Range", "bytes=0-1") },
	} {
		w := ask(r, "/below/training/r/models/m", change)
		if w.Code != 200 || w.Body.String() != "a model" || w.Header().Get("Etag") != "" {
			t.Errorf("%s: %d, %q, %v", name, w.Code, w.Body, w.Header())
		}
	}
	if got := refusedAs(t, ask(r, "/below/training/r/models/n", nil)); got != door.Path {
		t.Errorf("one that is not there: %q", got)
	}
	if len(asked) != 4 || asked[0] != "r/models/m" || asked[3] != "r/models/n" {
		t.Errorf("%q", asked)
	}
	for _, path := range []string{"/below/training/r/models/m?device=7", "/training/r/models/m", "/below/training"} {
		if got := refusedAs(t, ask(r, path, nil)); got != door.Path {
			t.Errorf("%s: %q", path, got)
		}
	}
	if s := r.Status(); s.Trainings != 3 || r.Outcome("training") != 3 || s.Forwarded != 0 || len(asked) != 4 {
		t.Errorf("%+v, %q", s, asked)
	}
	for range 2 {
		ask(r, "/below/training/r/models/m", nil)
	}
	if got := refusedAs(t, ask(r, "/below/training/r/models/m", nil)); got != door.Rate {
		t.Errorf("past the limit of a sender: %q", got)
	}
}
