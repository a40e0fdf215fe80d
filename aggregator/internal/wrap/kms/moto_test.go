//go:build kms

package kms_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/aggregator/internal/wrap/kms/kmstest"
	"github.com/starling-agg/starling/aggregator/internal/wrap/wraptest"
)

// TestKMS: a server that is not ours keeps the contract, and keys rotate.
func TestKMS(t *testing.T) {
	ctx, endpoint := t.Context(), kmstest.Start(t)
	first, second := kmstest.NewKey(t, endpoint), kmstest.NewKey(t, endpoint)
	before := open(t, options(t, endpoint, first))
	wraptest.Run(t, before, 24, true)
	old, err := before.Wrap(ctx, []byte("s"), []byte("aad"))
	if err != nil {
		t.Fatal(err)
	}
	after := open(t, options(t, endpoint, second, first))
	wraptest.Run(t, after, 8, true)
	fresh, err := after.Wrap(ctx, []byte("s"), []byte("aad"))
	if err != nil || fresh.Key != second {
		t.Fatalf("wrapped with %s, %v", fresh.Key, err)
	}
	for _, box := range []wrap.Box{old, fresh} {
		if s, err := after.Unwrap(ctx, box, []byte("aad")); err != nil || string(s) != "s" {
			t.Errorf("%q, %v", s, err)
		}
	}
	if _, err := after.Unwrap(ctx, wrap.Box{Key: second, Sealed: old.Sealed}, []byte("aad")); !errors.Is(err, wrap.ErrBox) && !errors.Is(err, wrap.ErrDenied) {
		t.Errorf("a box under another key's name: %v", err)
	}
}

// TestLyingKMS: a service between that hands out the ciphertext of something else, is
// slow, or fails for a while.
func TestLyingKMS(t *testing.T) {
	endpoint := kmstest.Start(t)
	key := kmstest.NewKey(t, endpoint)
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	var do func(w http.ResponseWriter, r *http.Request)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { do(w, r) }))
	defer front.Close()
	k := open(t, options(t, front.URL, key))
	do = func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".Encrypt") {
			var request map[string]any
			if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
				t.Error(err)
			}
			request["Plaintext"] = []byte("something else")
			b, _ := json.Marshal(request)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		}
		proxy.ServeHTTP(w, r)
	}
	if _, err := k.Wrap(t.Context(), []byte("s"), nil); !errors.Is(err, wrap.ErrUnavailable) {
		t.Errorf("a secret that was not wrapped is relied on: %v", err)
	}
	failures := 2
	do = func(w http.ResponseWriter, r *http.Request) {
		if failures--; failures >= 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		proxy.ServeHTTP(w, r)
	}
	if box, err := k.Wrap(t.Context(), []byte("s"), nil); err != nil || failures >= 0 {
		t.Errorf("%v, %v", box, err)
	}
	slow := options(t, front.URL, key)
	slow.Timeout, slow.Attempts = 20*time.Millisecond, 2
	do = func(_ http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	}
	if _, err := open(t, slow).Wrap(t.Context(), []byte("s"), nil); !errors.Is(err, wrap.ErrUnavailable) {
		t.Errorf("a slow one: %v", err)
	}
}
