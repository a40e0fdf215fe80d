//go:build kms

package kms_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/aggregator/internal/wrap/wraptest"
)

// moto is the server that these tests start; test/kms/check installs it.
var moto = flag.String("moto", "", "the program moto_server")

// startMoto starts a key management service and says where it is.
func startMoto(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(*moto, "-H", "127.0.0.1", "-p", port)
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	said := make([]byte, 0, 1<<12)
	for buf := make([]byte, 1<<10); !bytes.Contains(said, []byte("Running on")); {
		n, err := out.Read(buf)
		if said = append(said, buf[:n]...); err != nil {
			t.Fatalf("%v: %s", err, said)
		}
	}
	go io.Copy(io.Discard, out)
	return "http://" + addr
}

// newKey makes a key in the service.
func newKey(t testing.TB, endpoint string) string {
	t.Helper()
	var made struct {
		KeyMetadata struct {
			KeyID string `json:"KeyId"`
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, endpoint, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-amz-json-1.1")
	req.Header.Set("X-Amz-Target", "TrentService.CreateKey")
	// It looks for the service in the scope, and at no signature.
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=starling/20260101/eu-central-1/kms/aws4_request, SignedHeaders=host, Signature=00")
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&made); err != nil || made.KeyMetadata.KeyID == "" {
		t.Fatalf("%+v, %v", made, err)
	}
	return made.KeyMetadata.KeyID
}

// TestKMS: a server that is not ours keeps the contract, and keys rotate.
func TestKMS(t *testing.T) {
	ctx, endpoint := t.Context(), startMoto(t)
	first, second := newKey(t, endpoint), newKey(t, endpoint)
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
	endpoint := startMoto(t)
	key := newKey(t, endpoint)
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
