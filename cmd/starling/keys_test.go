package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/sealed"
)

// TestKeyLines: each state of a key in words; a key that outlives its end by a day is a
// fault, and one that nobody follows.
func TestKeyLines(t *testing.T) {
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	at := func(hours float64) time.Time { return now.Add(time.Duration(hours * float64(time.Hour))) }
	s := &status.Status{Role: "leader", Now: now, Keys: []status.Key{
		{ID: 7, KEM: "x25519", State: status.KeyCurrent, Created: at(-1), Until: at(23)},
		{ID: 6, KEM: "x25519", State: status.KeyAccepted, Created: at(-25.5), Until: at(24)},
		{ID: 5, KEM: "x25519", State: status.KeyRetiring, Created: at(-100), Until: at(1)},
		{ID: 4, KEM: "x-wing", State: status.KeyRetiring, Created: at(-100), Until: at(-25), Why: "3 acknowledged reports are not folded yet"},
		{ID: 3, KEM: "x25519", State: status.KeyDestroyed, Created: at(-200), Until: at(-1)},
		{ID: 77, KEM: "x25519", State: status.KeyConfigured},
	}}
	var b strings.Builder
	writeKeys(&b, s)
	const want = `leader, HPKE keys
  current      7 x25519, 1h00m old; the next one in 23h00m
  accepted     6 x25519, 25h30m old; takes uploads for 24h00m
  retiring     5 x25519, 4 days old; kept for 1h00m
  retiring     4 x-wing, 4 days old; kept: 3 acknowledged reports are not folded yet
  destroyed    3 x25519, 8 days old; destroyed 1h00m ago
  configured  77 x25519
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
	if got := keysFound(s.Keys); got != "1 current, 1 accepted, 2 retiring, 1 destroyed, 1 configured" {
		t.Errorf("found %q", got)
	}
	if err := overdue(s); err == nil || err.Error() != "key 4 should have been destroyed 25h0m0s ago: 3 acknowledged reports are not folded yet" {
		t.Errorf("overdue: %v", err)
	}
	s.Keys = s.Keys[:3]
	if err := overdue(s); err != nil {
		t.Errorf("overdue: %v", err)
	}
	s.Now = at(25)
	if err := overdue(s); err == nil || !strings.Contains(err.Error(), "key 7 should have been followed") {
		t.Errorf("overdue: %v", err)
	}
}

// TestManifestEndsWithItsKeys: without a word from its maker, a manifest ends when the
// first aggregator may refuse the keys in it.
func TestManifestEndsWithItsKeys(t *testing.T) {
	pair, err := sealed.Generate(1, sealed.SuiteX25519)
	if err != nil {
		t.Fatal(err)
	}
	list, err := dap.HpkeConfigList{dap.NewHpkeConfig(pair)}.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	serve := func(control string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", dap.ContentType(dap.MediaHpkeConfigList))
			w.Header().Set("Cache-Control", control)
			w.Write(list)
		}))
		t.Cleanup(s.Close)
		return s.URL + "/"
	}
	for _, c := range []struct {
		leader, helper string
		days           string
		want           time.Duration // zero: refused
	}{
		{"max-age=604800", "max-age=86400", "", 24 * time.Hour},
		{"max-age=3600", "max-age=86400", "", time.Hour},
		{"max-age=999999999", "max-age=999999999", "", longestManifest},
		{"max-age=3600", "max-age=86400", "3", 72 * time.Hour},
		{"no-cache", "max-age=86400", "", 0},
		{"no-cache", "no-cache", "1", 24 * time.Hour},
	} {
		r, err := account.New(account.Options{Name: "Test", Query: recipe.Count{}, Leader: serve(c.leader), Helper: serve(c.helper),
			MinBatch: 100, Grace: recipe.DefaultGrace,
			Epsilon: recipe.Decimal{Coefficient: 1}, Delta: recipe.Decimal{Coefficient: 1, Scale: 6}})
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		file, out := filepath.Join(dir, "recipe.starling"), filepath.Join(dir, "manifest.starling")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		args := []string{"manifest", "new", "--relay", "http://127.0.0.1:9/", "--key", filepath.Join(dir, "key"), "--out", out}
		if c.days != "" {
			args = append(args, "--days", c.days)
		}
		var said strings.Builder
		err = root().run(t.Context(), &env{stdout: &said, stderr: &said}, "", append(args, file))
		if c.want == 0 {
			if _, statErr := os.Stat(out); err == nil || !errors.Is(err, errNoPromise) || statErr == nil {
				t.Errorf("%+v: %v, and there is a manifest: %v", c, err, statErr == nil)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if b, err = os.ReadFile(out); err != nil {
			t.Fatal(err)
		}
		m, err := ohttp.ReadManifest(b)
		if err != nil {
			t.Fatal(err)
		}
		if got := m.NotAfter.Sub(m.NotBefore); got != c.want {
			t.Errorf("%+v: the manifest lasts %v", c, got)
		}
	}
}

func TestPromise(t *testing.T) {
	for control, want := range map[string]time.Duration{
		"max-age=86400": 24 * time.Hour, "public, Max-Age=60": time.Minute, "": 0, "no-store": 0, "max-age=0": 0, "max-age=x": 0,
	} {
		got, err := promise(control)
		if got != want || (want == 0) != errors.Is(err, errNoPromise) {
			t.Errorf("%q: %v, %v", control, got, err)
		}
	}
}

// TestEndsSoon: an online key is renewed a week before its end, or it is a fault.
func TestEndsSoon(t *testing.T) {
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	for left, fault := range map[time.Duration]bool{-time.Hour: true, 0: true, soon - time.Second: true, soon: false, 90 * 24 * time.Hour: false} {
		if err := endsSoon(now.Add(left), now); (err != nil) != fault {
			t.Errorf("%v before the end: %v", left, err)
		}
	}
}
