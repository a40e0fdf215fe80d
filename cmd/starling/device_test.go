package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
	"github.com/starling-agg/starling/client/logbook"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/internal/logged/loggedtest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/signed"
)

// TestDeviceFetchesNoTiles: a device asks the relay for the bundle, and nobody for
// anything else, though it was away, or a relay hands out what makes it look so; only who
// names the log on the command line asks it for tiles.
func TestDeviceFetchesNoTiles(t *testing.T) {
	trio := loggedtest.New(t, "")
	log := tlogtest.New(t, "log.example/starling")
	witness := tlogtest.Secret(t, "witness.example", tlog.CosignEd)
	policy, err := tlog.ReadPolicy(fmt.Appendf(nil, "log %s\nwitness w %s\nquorum w\n", log.Key.Key(), witness.Key()))
	if err != nil {
		t.Fatal(err)
	}
	anchors, err := signed.ReadAnchors(signed.MarshalAnchors(trio.Anchors...))
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var served []byte
	var asked []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, r.Host+r.URL.Path)
		if r.URL.Path == "/bundle" {
			w.Write(served)
			return
		}
		tile, err := tlog.ParseTile(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		b, err := tile.Hashes(log)
		if err != nil {
			t.Error(err)
		}
		w.Write(b)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	trio.Recipe.Log = &recipe.Log{Origin: "log.example/starling"}
	trio.Recipe.Relay.URL = server.URL + "/"
	now := loggedtest.Now
	show := func() {
		active := log.Hold(t, now, now.Add(time.Hour))
		b, err := log.Bundle(t, log.Sign(t, now, witness), active).Append(nil) // which goes on from nothing
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		served, asked = b, nil
		mu.Unlock()
	}
	fs := disktest.NewMem(1)
	file := filepath.Join(t.TempDir(), "bundle")
	refresh := func(log, file string) error {
		t.Helper()
		o := bundleFrom(trio.Recipe.Relay.URL, log, file)
		o.Recipe, o.Anchors, o.Policy, o.FS, o.Now = trio.Recipe, anchors, policy, fs, func() time.Time { return now }
		book, err := logbook.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		return book.Refresh(t.Context())
	}
	show()
	if err := refresh("", ""); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Hour)
	show()
	if err := os.WriteFile(file, served, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := refresh("", ""); !errors.Is(err, tlog.ErrGap) || !slices.Equal(asked, []string{host + "/bundle"}) {
		t.Errorf("by the relay: %v, it asked for %q", err, asked)
	}
	asked = nil
	if err := refresh("", file); !errors.Is(err, tlog.ErrGap) || len(asked) > 0 {
		t.Errorf("from a file: %v, it asked for %q", err, asked)
	}
	if err := refresh(server.URL, ""); err != nil || len(asked) < 2 {
		t.Errorf("from the log: %v, it asked for %q", err, asked)
	}
}
