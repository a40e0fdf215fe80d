package deploy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/internal/logged"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// bundleOf is a bundle with such a note, which nobody has signed.
func bundleOf(t *testing.T, note string) string {
	t.Helper()
	b, err := (&tlog.Bundle{Note: []byte(note)}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestMirrorFollowsNobody: a log that leads elsewhere has the relay hand out nothing of it.
func TestMirrorFollowsNobody(t *testing.T) {
	inside := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, bundleOf(t, "of another")) }))
	defer inside.Close()
	log := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, inside.URL, http.StatusFound) }))
	defer log.Close()
	if b, err := (logged.Remote{URL: log.URL}).Bundle(t.Context()); err == nil {
		t.Errorf("%d bytes of another server", len(b))
	}
}

// TestMirror: a relay has the bundle of a log soon after either starts, goes on with the last
// one while the log is away, and asks at times that no device has a part in.
func TestMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMirror("https://log.example/", 0, slog.New(slog.DiscardHandler))
		one, two := bundleOf(t, "one"), bundleOf(t, "two")
		var mu sync.Mutex // guards what follows
		body, away := "", true
		var asked []time.Duration
		set := func(b string, a bool) {
			mu.Lock()
			defer mu.Unlock()
			body, away = b, a
		}
		begin := time.Now()
		m.remote.Client.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.String() != "https://log.example/bundle" || len(r.Header) > 0 {
				t.Errorf("%s %v", r.URL, r.Header)
			}
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, time.Since(begin))
			if away {
				return nil, errors.New("away")
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(body))}, nil
		})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.run(ctx, func() {}) }()
		check := func(at time.Duration, want string, trouble bool) {
			t.Helper()
			time.Sleep(time.Until(begin.Add(at + time.Millisecond)))
			synctest.Wait()
			if got := string(m.bundle()); got != want || (m.trouble() != nil) != trouble {
				t.Errorf("after %v: %q, %v", at, got, m.trouble())
			}
		}
		check(2*time.Second, "", true)
		set(one, false)
		check(3*time.Second, one, false)
		set(one, true)
		check(63*time.Second, one, true)
		set(two, false)
		check(123*time.Second, two, false)
		set("no bundle", false)
		check(183*time.Second, two, true)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if len(asked) != 7 {
			t.Errorf("asked at %v", asked)
		}
		var none *mirror
		if none.trouble() != nil || newMirror("", 0, nil) != nil {
			t.Error("a relay of no log has a mirror")
		}
	})
}
