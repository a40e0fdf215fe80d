package kms_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/aggregator/internal/wrap/kms"
	"github.com/starling-agg/starling/aggregator/internal/wrap/kms/kmstest"
	"github.com/starling-agg/starling/internal/service"
)

func options(t testing.TB, endpoint string, keys ...string) kms.Options {
	t.Helper()
	return kms.Options{Endpoint: endpoint, Region: "eu-central-1", Keys: keys, Credentials: service.Secret(kmstest.Credentials(t)), Pause: time.Nanosecond}
}

func open(t testing.TB, opt kms.Options) *kms.Service {
	t.Helper()
	k, err := kms.Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestRefusals: what a service answers instead of an answer, and how often it is asked.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   error
		asked  int
	}{
		{500, ``, wrap.ErrUnavailable, 4},
		{503, `<html>`, wrap.ErrUnavailable, 4},
		{302, ``, wrap.ErrUnavailable, 4}, // it is not followed
		{200, `not json`, wrap.ErrUnavailable, 4},
		{200, `{}`, wrap.ErrBox, 1},
		{200, `{"Plaintext":"` + strings.Repeat("AAAA", wrap.MaxSecret) + `"}`, wrap.ErrBox, 1},
		{200, `{"Plaintext":"` + strings.Repeat("AAAA", 64<<10) + `"}`, wrap.ErrUnavailable, 4},
		{400, `{"__type":"ThrottlingException"}`, wrap.ErrUnavailable, 4},
		{400, `{"__type":"InvalidCiphertextException"}`, wrap.ErrBox, 1},
		{400, `{"__type":"com.amazonaws.kms#IncorrectKeyException"}`, wrap.ErrBox, 1},
		{400, `{"__type":"KMSInvalidStateException"}`, wrap.ErrNoKey, 1},
		{400, `{"__type":"AccessDeniedException"}`, wrap.ErrDenied, 1},
		{403, `{}`, wrap.ErrDenied, 1},
	} {
		asked := 0
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked++
			if r.URL.Path != "/" || r.Header.Get("X-Amz-Target") != "TrentService.Decrypt" ||
				!strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 Credential=starling/") {
				t.Errorf("%s, %v", r.URL, r.Header)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		}))
		k := open(t, options(t, server.URL, "key"))
		if _, err := k.Unwrap(t.Context(), wrap.Box{Key: "key", Sealed: []byte{1}}, nil); !errors.Is(err, c.want) || asked != c.asked {
			t.Errorf("%d %.60s: %v after %d, want %v after %d", c.status, c.body, err, asked, c.want, c.asked)
		}
		asked = 0
		if _, err := k.Unwrap(t.Context(), wrap.Box{Key: "another", Sealed: []byte{1}}, nil); !errors.Is(err, wrap.ErrNoKey) || asked > 0 {
			t.Errorf("a key of whoever writes rows is asked for %d times: %v", asked, err)
		}
		server.Close()
	}
}

func TestOptions(t *testing.T) {
	for name, change := range map[string]func(*kms.Options){
		"plain HTTP": func(o *kms.Options) { o.Endpoint = "http://kms.example" },
		"no region":  func(o *kms.Options) { o.Region = "" },
		"no key":     func(o *kms.Options) { o.Keys = nil },
		"key twice":  func(o *kms.Options) { o.Keys = []string{"a", "a"} },
		"alias":      func(o *kms.Options) { o.Keys = []string{"alias/a"} },
		"ARN alias":  func(o *kms.Options) { o.Keys = []string{"arn:aws:kms:eu-central-1:1:alias/a"} },
		"no file":    func(o *kms.Options) { o.Credentials = "nowhere" },
	} {
		opt := options(t, "https://kms.example", "key")
		if change(&opt); true {
			if _, err := kms.Open(opt); err == nil {
				t.Errorf("%s: opened", name)
			}
		}
	}
}
