package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/internal/door"
	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/internal/disk/disktest"
	"github.com/starling-agg/starling/sealed"
)

// TestSetKeys: keys change while the gateway runs. The one before still opens, and
// remembers; one that left is refused with the problem type of RFC 9458 section 5.3, and
// may not come back.
func TestSetKeys(t *testing.T) {
	mem := disktest.NewMem(1)
	first, second, third := generate(t, 1), generate(t, 2), generate(t, 3)
	b := start(t, Options{FS: mem, Keys: []Key{{Pair: first}}})
	m := upload(report(t, 1))
	bring := func(k *sealed.KeyPair) door.Reason {
		request, _ := sealTo(t, k, m)
		return refusedAs(t, b.bring(request))
	}
	request, _ := sealTo(t, first, m)
	if got := refusedAs(t, b.bring(request)); got != "" {
		t.Fatal(got)
	}
	if err := b.setKeys([]Key{{Pair: second}, {Pair: first}}, nil); err != nil {
		t.Fatal(err)
	}
	if got := refusedAs(t, b.bring(request)); got != door.Replayed {
		t.Errorf("the same again, after a rotation: %q", got)
	}
	if a, b, c := bring(second), bring(first), bring(third); a != "" || b != "" || c != door.Key {
		t.Errorf("in the overlap: new %q, old %q, unknown %q", a, b, c)
	}
	if err := b.setKeys([]Key{{Pair: third}, {Pair: second}}, nil); err != nil {
		t.Fatal(err)
	}
	stale, _ := sealTo(t, first, m)
	w := b.bring(stale)
	var problem struct{ Type string }
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || w.Code != http.StatusBadRequest ||
		w.Header().Get("Content-Type") != "application/problem+json" ||
		problem.Type != "https://iana.org/assignments/http-problem-types#ohttp-key" {
		t.Errorf("a stale key: status %d, %s %q, %v", w.Code, w.Header().Get("Content-Type"), problem.Type, err)
	}
	for name, keys := range map[string][]Key{
		"a key that left": {{Pair: third}, {Pair: first}}, "two of one id": {{Pair: third}, {Pair: generate(t, 3)}},
	} {
		if err := b.setKeys(keys, nil); err == nil || (name == "a key that left") != errors.Is(err, ErrRetired) {
			t.Errorf("%s: %v", name, err)
		}
		if a, b := bring(third), bring(second); a != "" || b != "" {
			t.Errorf("%s: afterwards %q and %q", name, a, b)
		}
	}
	if err := b.setKeys(nil, nil); err != nil || bring(third) != door.Key || b.Ready() == nil {
		t.Errorf("without a key: %v", err)
	}
	entries, err := mem.ReadDir(".")
	notes := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name, openedPrefix) {
			t.Errorf("%s is left in the directory", e.Name)
		}
		if strings.HasPrefix(e.Name, retiredPrefix) {
			notes++
		}
	}
	if err != nil || notes != 3 {
		t.Errorf("%d notes, %v", notes, err)
	}
}

// TestSetKeysUnderLoad: whatever comes while keys change is passed on or refused for its
// key, and acts once at most.
func TestSetKeysUnderLoad(t *testing.T) {
	pairs := []*sealed.KeyPair{generate(t, 1), generate(t, 2), generate(t, 3), generate(t, 4)}
	b := start(t, Options{Keys: []Key{{Pair: pairs[0]}}})
	var all sync.WaitGroup
	var passed atomic.Int32
	for i := range 80 {
		request, _ := sealTo(t, pairs[i%len(pairs)], upload(report(t, byte(i))))
		for range 2 {
			all.Go(func() {
				switch got := refusedAs(t, b.bring(request)); got {
				case "":
					passed.Add(1)
				case door.Key, door.Replayed:
				default:
					t.Errorf("refused: %q", got)
				}
			})
		}
	}
	for i := range pairs[1:] {
		if err := b.setKeys([]Key{{Pair: pairs[i+1]}, {Pair: pairs[i]}}, nil); err != nil {
			t.Error(err)
		}
	}
	all.Wait()
	ids := bytes.Join(b.leader.await(t, int(passed.Load())), nil)
	slices.Sort(ids)
	if n := len(ids); n != int(passed.Load()) || len(slices.Compact(ids)) != n {
		t.Errorf("%d passed, and the leader got %d", passed.Load(), n)
	}
}

// TestEpochs: a key is used when its manifest is there, until the manifest's end and the
// overlap; then it is destroyed. What is wrong with the directory changes nothing.
func TestEpochs(t *testing.T) {
	begin := time.Unix(1_000_000, 0).UTC()
	clock := &fixedClock{now: begin}
	dir := t.TempDir()
	e := &Epochs{Dir: dir, Overlap: time.Hour, Hold: DefaultHold, Read: os.ReadFile}
	write := func(name string, mode os.FileMode, content []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), content, mode); err != nil {
			t.Fatal(err)
		}
	}
	manifest := func(k *sealed.KeyPair, from time.Time) []byte {
		t.Helper()
		b, err := (&ohttp.Manifest{Epoch: ohttp.EpochAt(from, 24*time.Hour), Length: 24 * time.Hour, NotBefore: from, NotAfter: from.Add(24 * time.Hour),
			Relay: "https://relay.example/", Gateway: []ohttp.KeyConfig{ohttp.NewKeyConfig(k)}, Tries: 1, Every: time.Second, Hold: ohttp.DefaultHold,
			Targets: []string{leaderURL}}).Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	secret := func(k *sealed.KeyPair) []byte {
		t.Helper()
		b, err := k.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	first, second := generate(t, 1), generate(t, 2)
	write("one.key", 0o600, secret(first))
	write("one.manifest", 0o644, manifest(first, begin))
	keys, past, err := e.read(begin)
	if err != nil || len(keys) != 1 || len(past) != 0 {
		t.Fatalf("%d keys, %d past, %v", len(keys), len(past), err)
	}
	b := start(t, Options{Keys: keys, Clock: clock})
	expect := func(when string, want ...door.Reason) {
		t.Helper()
		for i, k := range []*sealed.KeyPair{first, second} {
			request, _ := sealTo(t, k, upload(report(t, 1)))
			if got := refusedAs(t, b.bring(request)); got != want[i] {
				t.Errorf("%s: key %d %q, want %q", when, i+1, got, want[i])
			}
		}
	}
	update := func() {
		t.Helper()
		if err := e.update(b.Gateway, nil); err != nil {
			t.Error(err)
		}
	}
	expect("first epoch", "", door.Key)
	longer := &Epochs{Dir: dir, Overlap: time.Hour, Hold: DefaultHold + time.Second, Read: os.ReadFile}
	if err := longer.update(b.Gateway, nil); err == nil || !strings.Contains(err.Error(), "hold uploads for 24h0m0s") {
		t.Errorf("a hold above the manifest's: %v", err)
	}
	expect("a hold above the manifest's changes nothing", "", door.Key)
	write("two.key", 0o600, secret(second))
	update()
	expect("a key without its manifest", "", door.Key)
	write("two.manifest", 0o644, manifest(second, begin.Add(20*time.Hour)))
	update()
	expect("two epochs", "", "")
	if s := b.Status(); len(s.Keys) != 2 || s.Keys[0].ID != 2 {
		t.Errorf("%+v", s.Keys)
	}

	other := generate(t, 3)
	for name, broken := range map[string]func(){
		"a manifest of another key": func() {
			write("three.key", 0o600, secret(other))
			write("three.manifest", 0o644, manifest(generate(t, 3), begin))
		},
		"half a manifest": func() {
			write("three.key", 0o600, secret(other))
			write("three.manifest", 0o644, manifest(other, begin)[:50])
		},
		"half a key": func() {
			write("three.key", 0o600, secret(other)[:50])
			write("three.manifest", 0o644, manifest(other, begin))
		},
		"an id twice": func() {
			k := generate(t, 2)
			write("three.key", 0o600, secret(k))
			write("three.manifest", 0o644, manifest(k, begin))
		},
	} {
		broken()
		if err := e.update(b.Gateway, nil); err == nil {
			t.Errorf("%s: taken", name)
		}
		expect(name, "", "")
	}
	os.Remove(filepath.Join(dir, "three.key"))

	clock.set(begin.Add(25*time.Hour - time.Second))
	update()
	expect("in the overlap", "", "")
	clock.set(begin.Add(25 * time.Hour))
	expect("past the overlap", door.Key, "")
	update()
	expect("destroyed", door.Key, "")
	if _, err := os.Stat(filepath.Join(dir, "one.key")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the key's file is there: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "one.manifest")); err != nil {
		t.Error(err)
	}
	write("one.key", 0o600, secret(first))
	write("one.manifest", 0o644, manifest(first, begin.Add(30*time.Hour)))
	if err := e.update(b.Gateway, nil); !errors.Is(err, ErrRetired) {
		t.Errorf("a destroyed key under a new manifest: %v", err)
	}
	expect("a destroyed key came back", door.Key, "")
}
