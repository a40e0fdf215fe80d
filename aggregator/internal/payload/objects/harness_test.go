package objects_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/starling-agg/starling/aggregator/internal/payload/objects"
	"github.com/starling-agg/starling/internal/service"
)

const (
	user   = "starling"
	secret = "Kaeru-tobikomu"
)

// profile writes a file of credentials.
func profile(t testing.TB, user, secret string) service.Secret {
	t.Helper()
	name := filepath.Join(t.TempDir(), "credentials")
	rewrite(t, service.Secret(name), user, secret)
	return service.Secret(name)
}

func rewrite(t testing.TB, name service.Secret, user, secret string) {
	t.Helper()
	text := fmt.Sprintf("; by hand\n[other]\naws_access_key_id = x\n\n[ default ]\naws_access_key_id=%s\n  aws_secret_access_key = %s\nregion = nowhere\n", user, secret)
	temp := string(name) + ".new"
	if err := errors.Join(os.WriteFile(temp, []byte(text), 0o600), os.Rename(temp, string(name))); err != nil {
		t.Fatal(err)
	}
}

// fake is an S3 server in this process, with what may go wrong on the way to it.
type fake struct {
	*httptest.Server
	real http.Handler

	mu       sync.Mutex
	next     []mishap
	always   mishap
	requests []string
}

// mishap stands between a request and the server.
type mishap func(w http.ResponseWriter, r *http.Request, real http.Handler)

func newFake(t testing.TB) *fake {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("reports"); err != nil {
		t.Fatal(err)
	}
	f := &fake{real: gofakes3.New(backend).Server()}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Server.Close)
	return f
}

// ServeHTTP implements [http.Handler].
func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	do := f.always
	if len(f.next) > 0 {
		do, f.next = f.next[0], f.next[1:]
	}
	f.requests = append(f.requests, r.Method)
	f.mu.Unlock()
	if do == nil {
		f.real.ServeHTTP(w, r)
		return
	}
	do(w, r, f.real)
}

// mishaps says what happens to the next requests; nil is nothing.
func (f *fake) mishaps(next ...mishap) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.next, f.requests = next, nil
}

// asked is how many requests came since mishaps.
func (f *fake) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.requests)
}

func (f *fake) options(t testing.TB) objects.Options {
	return objects.Options{
		Endpoint: f.URL, Region: "us-east-1", Bucket: "reports", PathStyle: true, Credentials: profile(t, user, secret), Pause: time.Microsecond,
	}
}

func open(t testing.TB, opt objects.Options) *objects.Store {
	t.Helper()
	s, err := objects.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// answer is an answer of the server's own instead of the real one.
func answer(status int, code string) mishap {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>injected</Message></Error>", code)
	}
}

// lost breaks the connection before the server has heard anything.
func lost(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) }

// unheard breaks the connection when the server has done what was asked.
func unheard(_ http.ResponseWriter, r *http.Request, real http.Handler) {
	real.ServeHTTP(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// hanging answers nothing until the client gives up.
func hanging(_ http.ResponseWriter, r *http.Request, _ http.Handler) {
	_, _ = io.Copy(io.Discard, r.Body) // or the server does not see the client go
	<-r.Context().Done()
}

// edited answers what the server would, otherwise.
func edited(edit func(*httptest.ResponseRecorder)) mishap {
	return func(w http.ResponseWriter, r *http.Request, real http.Handler) {
		rec := httptest.NewRecorder()
		real.ServeHTTP(rec, r)
		edit(rec)
		for key, values := range rec.Header() {
			w.Header()[key] = values
		}
		w.WriteHeader(rec.Code)
		_, _ = io.Copy(w, rec.Body) // the client may not want all of it
	}
}

// half sends half of a body, of which it says the whole length.
var half = edited(func(rec *httptest.ResponseRecorder) {
	rec.Header().Set("Content-Length", fmt.Sprint(rec.Body.Len()))
	rec.Body.Truncate(rec.Body.Len() / 2)
})

// unconditional forgets the condition of a put.
func unconditional(w http.ResponseWriter, r *http.Request, real http.Handler) {
	r.Header.Del("If-None-Match")
	real.ServeHTTP(w, r)
}
