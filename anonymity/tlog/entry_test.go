package tlog_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/signed"
	"github.com/starling-agg/starling/signed/signedtest"
)

func TestEntry(t *testing.T) {
	for _, e := range []tlog.Entry{{Kind: tlog.KindRecipe, Body: []byte("x")}, {Kind: 200, Body: make([]byte, tlog.MaxBody)}} {
		b, err := e.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		again, err := tlog.ReadEntry(b)
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Errorf("%+v, %v", again, err)
		}
	}
	for name, e := range map[string]tlog.Entry{"kind 0": {Body: []byte("x")}, "empty": {Kind: 1}, "too long": {Kind: 1, Body: make([]byte, tlog.MaxBody+1)}} {
		if _, err := e.Append(nil); !errors.Is(err, tlog.ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestBytes: entries are written as they have always been.
func TestBytes(t *testing.T) {
	active, err := (&tlog.Active{Begin: time.Unix(3600, 0), End: time.Unix(7200, 0), Entries: []int64{0, 5, 1 << 33}}).Entry()
	if err != nil {
		t.Fatal(err)
	}
	release, err := (&tlog.Release{Name: "starling", Digest: [32]byte{7}}).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		e    tlog.Entry
		want string
	}{
		"active":  {active, "b5afaa38170af0d3c3e871cff2877c06d3dbf64e82df65e6def09c6218e4300d"},
		"release": {tlog.Entry{Kind: tlog.KindRelease, Body: release}, "7e5accbd3cb88904b56aac8ddaa8922f2133e0247aee60223c575b2a02f5eb90"},
	} {
		b, err := c.e.Append(nil)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != c.want {
			t.Errorf("%s: %x hashes to %x, want %s", name, b, sum, c.want)
		}
		if leaf, want := tlog.LeafHash(b), sha256.Sum256(append([]byte{0}, b...)); leaf != want {
			t.Errorf("%s: leaf %x, want %x", name, leaf, want)
		}
	}
}

func TestActive(t *testing.T) {
	for name, a := range map[string]tlog.Active{
		"ends before":  {Begin: now, End: now},
		"falling":      {Begin: now, End: now.Add(time.Hour), Entries: []int64{2, 1}},
		"twice":        {Begin: now, End: now.Add(time.Hour), Entries: []int64{2, 2}},
		"below 0":      {Begin: now, End: now.Add(time.Hour), Entries: []int64{-1}},
		"no such size": {Begin: now, End: now.Add(time.Hour), Entries: []int64{tlog.MaxSize}},
		"too many":     {Begin: now, End: now.Add(time.Hour), Entries: upTo(tlog.MaxActive + 1)},
	} {
		if _, err := a.Entry(); !errors.Is(err, tlog.ErrEntry) {
			t.Errorf("%s: %v", name, err)
		}
	}
	most := &tlog.Active{Begin: now, End: now.Add(time.Hour), Entries: upTo(tlog.MaxActive)}
	e, err := most.Entry()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := e.Append(nil); err != nil || len(b) > tlog.MaxEntry {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if again, err := tlog.ReadActive(e); err != nil || !reflect.DeepEqual(again, most) {
		t.Errorf("%v", err)
	}
	if _, err := tlog.ReadActive(tlog.Entry{Kind: tlog.KindRecipe, Body: e.Body}); !errors.Is(err, tlog.ErrEntry) {
		t.Errorf("of another kind: %v", err)
	}
}

func upTo(n int) []int64 {
	all := make([]int64, n)
	for i := range all {
		all[i] = int64(i)
	}
	return all
}

// owner is a root, and a key that signs for it within an hour of now.
func owner(t testing.TB) (signed.PublicKey, *signed.Signer) {
	root := signed.Generate()
	return root.Public(), signedtest.Signer(t, root, now.Add(-time.Hour), 2*time.Hour)
}

// TestStatement: what one owner says holds for its kind, deployment, time and content, and
// for no other; an online key that has ended says nothing.
func TestStatement(t *testing.T) {
	root, signer := owner(t)
	e, err := tlog.State(tlog.KindRecipe, [32]byte{3}, []byte("recipe"), signer, now)
	if err != nil {
		t.Fatal(err)
	}
	s, err := tlog.ReadStatement(e)
	if err != nil || s.Deployment != [32]byte{3} || !s.At.Equal(now) || string(s.Content) != "recipe" {
		t.Fatalf("%+v, %v", s, err)
	}
	if err := s.Verify(tlog.KindRecipe, root); err != nil {
		t.Error(err)
	}
	if err := s.Verify(tlog.KindRelease, root); !errors.Is(err, signed.ErrSignature) {
		t.Errorf("as another kind: %v", err)
	}
	if err := s.Verify(tlog.KindRecipe, signed.Generate().Public()); !errors.Is(err, signed.ErrSignature) {
		t.Errorf("of another root: %v", err)
	}
	for i := range e.Body {
		changed := tlog.Entry{Kind: e.Kind, Body: bytes.Clone(e.Body)}
		changed.Body[i] ^= 1
		if s, err := tlog.ReadStatement(changed); err == nil && s.Verify(tlog.KindRecipe, root) == nil {
			t.Fatalf("byte %d changed", i)
		}
	}
	for _, at := range []time.Time{now.Add(-2 * time.Hour), now.Add(2 * time.Hour)} {
		if _, err := tlog.State(tlog.KindRecipe, [32]byte{}, []byte("x"), signer, at); !errors.Is(err, signed.ErrWindow) {
			t.Errorf("at %v: %v", at, err)
		}
	}
	if e, err = tlog.State(tlog.KindRecipe, [32]byte{}, make([]byte, tlog.MaxContent), signer, now); err != nil || len(e.Body) != tlog.MaxBody {
		t.Errorf("%d bytes, %v", len(e.Body), err)
	}
	if _, err = tlog.State(tlog.KindRecipe, [32]byte{}, make([]byte, tlog.MaxContent+1), signer, now); !errors.Is(err, tlog.ErrEntry) {
		t.Errorf("too long: %v", err)
	}
}

// FuzzEntry: one encoding only, of an entry and of what is in it.
func FuzzEntry(f *testing.F) {
	_, signer := owner(f)
	active, err := (&tlog.Active{Begin: now, End: now.Add(time.Hour), Entries: []int64{1, 2}}).Entry()
	if err != nil {
		f.Fatal(err)
	}
	said, err := tlog.State(tlog.KindWithdrawal, [32]byte{1}, make([]byte, 32), signer, now)
	if err != nil {
		f.Fatal(err)
	}
	for _, e := range []tlog.Entry{active, said, {Kind: 99, Body: []byte("x")}} {
		b, err := e.Append(nil)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
		f.Add(append([]byte{b[0] + 1}, b[1:]...)) // of the next version
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := tlog.ReadEntry(b)
		if err != nil {
			if !errors.Is(err, tlog.ErrEntry) && !errors.Is(err, tlog.ErrLater) {
				t.Fatal(err)
			}
			return
		}
		if again, err := e.Append(nil); err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x has another encoding, %v", b, err)
		}
		if a, err := tlog.ReadActive(e); err == nil {
			if again, err := a.Entry(); err != nil || !bytes.Equal(again.Body, e.Body) {
				t.Fatalf("%x has another encoding, %v", b, err)
			}
		}
		if r, err := tlog.ReadRelease(e.Body); err == nil {
			if again, err := r.Append(nil); err != nil || !bytes.Equal(again, e.Body) {
				t.Fatalf("%x has another encoding, %v", b, err)
			}
		}
	})
}

// TestKindsDocumented: docs/registry.md has a row of every kind, and the kinds are its rows.
func TestKindsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/registry.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## Transparency log\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !ok {
		t.Fatal("docs/registry.md has no section \"Transparency log\"")
	}
	rows := regexp.MustCompile(`(?m)^\| ([0-9]+) \| ([a-z-]+) \|`).FindAllStringSubmatch(section, -1)
	for i, row := range rows {
		if k := tlog.Kind(i + 1); row[1] != strconv.Itoa(i+1) || row[2] != k.String() {
			t.Errorf("row %s, want %d, %v", row[0], i+1, k)
		}
	}
	if next := tlog.Kind(len(rows) + 1); !strings.HasPrefix(next.String(), "kind ") {
		t.Errorf("docs/registry.md has no row of %v", next)
	}
}
