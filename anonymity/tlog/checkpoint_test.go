package tlog_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
	"golang.org/x/mod/sumdb/note"
)

func decode(t *testing.T, s string) []byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestCheckpoint(t *testing.T) {
	c := &tlog.Checkpoint{Origin: "log.example/2026", Size: 20852163, Root: tlog.Hash{1, 2}, Extensions: []string{"more"}}
	again, err := tlog.ReadCheckpoint([]byte(c.Text()))
	if err != nil || again.Text() != c.Text() {
		t.Fatalf("%+v, %v", again, err)
	}
	root := base64.StdEncoding.EncodeToString(make([]byte, 32))
	empty := "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	for text, ok := range map[string]bool{
		"a\n1\n" + root + "\n":                             true,
		"a\n0\n" + empty + "\n":                            true,
		"a\n0\n" + root + "\n":                             false,
		"a\n1\n" + root:                                    false,
		"a\n1\n" + root + "\n\n":                           false,
		"\n1\n" + root + "\n":                              false,
		"a\n01\n" + root + "\n":                            false,
		"a\n-1\n" + root + "\n":                            false,
		"a\n+1\n" + root + "\n":                            false,
		"a\n1099511627777\n" + root + "\n":                 false,
		"a\n1\n" + root[:43] + "\n":                        false,
		"a\n1\n" + root[:42] + "B=\n":                      false, // another encoding of the same hash
		"a\n1\n" + root + "\nx\r\n":                        false,
		"a\n1\n" + root + strings.Repeat("\nx", 17) + "\n": false,
		strings.Repeat("a", 256) + "\n1\n" + root + "\n":   false,
		"": false, "a\n1\n": false,
	} {
		if _, err := tlog.ReadCheckpoint([]byte(text)); (err == nil) != ok || err != nil && !errors.Is(err, tlog.ErrCheckpoint) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// open opens a signed checkpoint of one of the keys.
func open(signed []byte, keys ...*tlog.Key) (*tlog.Checkpoint, error) {
	c, _, _, err := tlog.OpenCosigned(signed, keys, nil)
	return c, err
}

// TestOpenCheckpoint: only what the log itself has signed opens, and a signature of a known
// key that does not hold refuses the whole.
func TestOpenCheckpoint(t *testing.T) {
	l, w := tlogtest.New(t, "log.example"), tlogtest.Secret(t, "w", tlog.CosignEd)
	l.Add(t, tlog.Entry{Kind: tlog.KindRelease, Body: []byte("x")})
	signed := l.Sign(t, now, w)
	if c, err := open(signed, l.Key.Key()); err != nil || c.Size != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	stray := tlogtest.Secret(t, "stray", tlog.CosignEd)
	for _, c := range []struct {
		witnesses []*tlog.Key
		n         int
		known     []byte
	}{{nil, 0, l.Sign(t, now)}, {[]*tlog.Key{w.Key()}, 1, signed}, {[]*tlog.Key{stray.Key()}, 0, l.Sign(t, now)}} {
		if _, n, known, err := tlog.OpenCosigned(signed, []*tlog.Key{l.Key.Key()}, c.witnesses); err != nil || n != c.n || !bytes.Equal(known, c.known) {
			t.Errorf("%d signatures, %s, %v", n, known, err)
		}
	}
	text, sigs, _ := strings.Cut(string(signed), "\n\n")
	_, alone, _ := strings.Cut(sigs, "\n")
	stranger := tlogtest.New(t, "log.example")
	for name, c := range map[string]struct {
		note string
		want error
	}{
		"a witness alone":    {text + "\n\n" + alone, tlog.ErrUnsigned},
		"nobody":             {text + "\n\n", tlog.ErrCheckpoint},
		"a stranger":         {string(stranger.Sign(t, now)), tlog.ErrCheckpoint}, // an empty tree at that, see below
		"another size":       {strings.Replace(string(signed), "\n1\n", "\n2\n", 1), tlog.ErrUnsigned},
		"another log":        {strings.Replace(string(signed), "log.example\n1", "lag.example\n1", 1), tlog.ErrUnsigned},
		"an empty line more": {text + "\n\nx\n\n" + sigs, tlog.ErrUnsigned},
		"a paragraph more, signed": {func() string {
			b, err := note.Sign(&note.Note{Text: text + "\n\nx\n"}, l.Key.At(now))
			if err != nil {
				t.Fatal(err)
			}
			return string(b)
		}(), tlog.ErrCheckpoint},
		"a carriage return":   {strings.Replace(string(signed), "\n1\n", "\r\n1\n", 1), tlog.ErrCheckpoint},
		"a very long one":     {string(signed) + strings.Repeat("x", tlog.MaxNote), tlog.ErrCheckpoint},
		"a garbled signature": {string(signed[:len(signed)-3]), tlog.ErrCheckpoint},
	} {
		if name == "a stranger" {
			stranger.Add(t, tlog.Entry{Kind: tlog.KindRelease, Body: []byte("x")})
			c.note, c.want = string(stranger.Sign(t, now)), tlog.ErrUnsigned
		}
		if _, err := open([]byte(c.note), l.Key.Key()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.Checkpoint(t).Sign(tlogtest.Secret(t, "other", tlog.Ed25519)); !errors.Is(err, tlog.ErrKey) {
		t.Errorf("another log's key: %v", err)
	}
}

// FuzzCheckpoint: one encoding only, and nothing opens whose text the log has not signed.
func FuzzCheckpoint(f *testing.F) {
	l, w := tlogtest.New(f, "log.example"), tlogtest.Secret(f, "w", tlog.CosignEd)
	l.Add(f, tlog.Entry{Kind: tlog.KindRelease, Body: []byte("x")})
	text := l.Checkpoint(f).Text()
	signed := l.Sign(f, now, w)
	f.Add(signed)
	f.Add([]byte(text))
	f.Add([]byte(text + "extension\n"))
	f.Add(slices.Concat(signed, signed))
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, err := tlog.ReadCheckpoint(b); err == nil && c.Text() != string(b) {
			t.Fatalf("%q has another encoding", b)
		}
		if c, err := open(b, l.Key.Key(), w.Key()); err == nil && c.Text() != text {
			t.Fatalf("%q opens", b)
		}
		if s, err := tlog.ReadSubmission(b); err == nil && !bytes.Equal(s.Append(nil), b) {
			t.Fatalf("%q has another encoding", b)
		}
		if p, err := tlog.ReadProof(b); err == nil && !bytes.Equal(p.Append(nil), b) {
			t.Fatalf("%q has another encoding", b)
		}
	})
}
