package tlog_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/tlog"
	"github.com/starling-agg/starling/anonymity/tlog/tlogtest"
	"golang.org/x/mod/sumdb/note"
)

var schemes = []tlog.Scheme{tlog.Ed25519, tlog.CosignEd, tlog.CosignMLDSA}

// now is the time of these tests.
var now = time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)

// TestKeys: keys and secret keys are written and read back as they are, of each scheme.
func TestKeys(t *testing.T) {
	for _, scheme := range schemes {
		s := tlogtest.Secret(t, "w.example/1", scheme)
		k, err := tlog.ParseKey(s.Key().String())
		if err != nil || k.String() != s.Key().String() || k.Name() != "w.example/1" || k.Scheme() != scheme {
			t.Errorf("%#x: %v, %v", scheme, k, err)
		}
		again, err := tlog.ParseSecrets(s.Marshal())
		if err != nil || len(again) != 1 || again[0].Key().String() != k.String() || !bytes.Equal(again[0].Marshal(), s.Marshal()) {
			t.Errorf("%#x: %v, %v", scheme, again, err)
		}
		if text := fmt.Sprintf("%v %+v %#v %s", s, s, s, s); strings.Contains(text, string(s.Marshal()[20:40])) || !strings.Contains(text, "redacted") {
			t.Errorf("%#x: printed as %s", scheme, text)
		}
		file := s.Marshal()
		for i := range file {
			changed := bytes.Clone(file)
			changed[i] ^= 1
			if got, err := tlog.ParseSecrets(changed); err == nil && !bytes.Equal(got[0].Marshal(), file) {
				t.Fatalf("%#x: byte %d changed gives another key", scheme, i)
			} else if err != nil && strings.Contains(err.Error(), string(file[len(file)-20:len(file)-2])) {
				t.Fatalf("%#x: the error has the secret: %v", scheme, err)
			}
		}
		text := []byte(s.Key().String())
		for i := range text {
			changed := bytes.Clone(text)
			changed[i] ^= 1
			if _, err := tlog.ParseKey(string(changed)); !errors.Is(err, tlog.ErrKey) {
				t.Fatalf("%#x: byte %d of %q changed: %v", scheme, i, changed, err)
			}
		}
	}
}

// TestKeysAsOthers: a log's key is one of x/mod's, both ways.
func TestKeysAsOthers(t *testing.T) {
	s := tlogtest.Secret(t, "log.example/2026", tlog.Ed25519)
	theirs, err := note.NewSigner(strings.TrimSpace(string(s.Marshal())))
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := note.NewVerifier(s.Key().String())
	if err != nil {
		t.Fatal(err)
	}
	c := &tlog.Checkpoint{Origin: "log.example/2026", Size: 3, Root: tlog.Hash{1}}
	ours, err := c.Sign(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := note.Open(ours, note.VerifierList(verifier)); err != nil {
		t.Error(err)
	}
	signed, err := note.Sign(&note.Note{Text: c.Text()}, theirs)
	if err != nil || !bytes.Equal(signed, ours) {
		t.Errorf("%s and %s, %v", signed, ours, err)
	}
}

func TestKeysRefused(t *testing.T) {
	ed, cosign, post := tlogtest.Secret(t, "a", tlog.Ed25519), tlogtest.Secret(t, "a", tlog.CosignEd), tlogtest.Secret(t, "a", tlog.CosignMLDSA)
	other := tlogtest.Secret(t, "b", tlog.CosignMLDSA)
	for name, file := range map[string][]byte{
		"empty": nil, "no key": []byte("hello\n"), "two of one type": slices.Concat(cosign.Marshal(), cosign.Marshal()),
		"two names": slices.Concat(cosign.Marshal(), other.Marshal()), "a log's and a witness's": slices.Concat(ed.Marshal(), cosign.Marshal()),
	} {
		if _, err := tlog.ParseSecrets(file); !errors.Is(err, tlog.ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if both, err := tlog.ParseSecrets(slices.Concat(cosign.Marshal(), post.Marshal())); err != nil || len(both) != 2 {
		t.Errorf("%v, %v", both, err)
	}
	for _, name := range []string{"", "a b", "a+b", "a\nb", "a\u00a0b", strings.Repeat("a", 256), "a\xff"} {
		if _, err := tlog.Generate(name, tlog.CosignEd); !errors.Is(err, tlog.ErrKey) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := tlog.Generate("a", 0x02); !errors.Is(err, tlog.ErrKey) {
		t.Error(err)
	}
	// The identity: many messages verify under a key of small order.
	small := "a+d21d8ec9+AQEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	if _, err := tlog.ParseKey(small); !errors.Is(err, tlog.ErrKey) || !strings.Contains(err.Error(), "small order") {
		t.Error(err)
	}
}

// TestCosignatures: of both schemes, over text and time; a changed byte of either, another
// name and another key are refused, and so is a cosignature without a time.
func TestCosignatures(t *testing.T) {
	text := (&tlog.Checkpoint{Origin: "log.example", Size: 7, Root: tlog.Hash{9}}).Text()
	for _, scheme := range schemes[1:] {
		s := tlogtest.Secret(t, "w", scheme)
		sig, err := s.At(now).Sign([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if !s.Key().Verify([]byte(text), sig) {
			t.Fatalf("%#x: refused", scheme)
		}
		if tlogtest.Secret(t, "w", scheme).Key().Verify([]byte(text), sig) {
			t.Errorf("%#x: another key", scheme)
		}
		for i := range len(sig) {
			if scheme == tlog.CosignMLDSA && i >= 16 && i%97 != 0 { // each costs a verification
				continue
			}
			changed := bytes.Clone(sig)
			changed[i] ^= 1
			if s.Key().Verify([]byte(text), changed) {
				t.Fatalf("%#x: byte %d changed", scheme, i)
			}
		}
		for _, other := range []string{strings.Replace(text, "7", "8", 1), strings.Replace(text, "log", "lag", 1), text + "x"} {
			if s.Key().Verify([]byte(other), sig) {
				t.Errorf("%#x: of %q", scheme, other)
			}
		}
		for n := range 9 {
			if s.Key().Verify([]byte(text), sig[:n]) {
				t.Errorf("%#x: %d bytes", scheme, n)
			}
		}
		if _, err := s.At(time.Time{}).Sign([]byte(text)); err == nil {
			t.Errorf("%#x: signed without a time", scheme)
		}
	}
	// The Ed25519 message is written out in tlog-cosignature.
	s := tlogtest.Secret(t, "w", tlog.CosignEd)
	sig, err := s.At(time.Unix(1679315147, 0)).Sign([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := tlog.ParseKey(plainKey(t, s))
	if err != nil {
		t.Fatal(err)
	}
	if !plain.Verify([]byte("cosignature/v1\ntime 1679315147\n"+text), sig[8:]) {
		t.Error("it is over another message than the specification's")
	}
	// A time of zero would say nothing of when: refused, whoever has signed it.
	encoded := strings.Split(strings.TrimSpace(string(s.Marshal())), "+")
	seed := decode(t, strings.Join(encoded[4:], "+"))[1:]
	timeless := append(make([]byte, 8), ed25519.Sign(ed25519.NewKeyFromSeed(seed), []byte("cosignature/v1\ntime 0\n"+text))...)
	if !plain.Verify([]byte("cosignature/v1\ntime 0\n"+text), timeless[8:]) || s.Key().Verify([]byte(text), timeless) {
		t.Error("a cosignature of no time is taken")
	}
	if _, err := tlog.Cosign(text, now, tlogtest.Secret(t, "w", tlog.Ed25519)); !errors.Is(err, tlog.ErrKey) {
		t.Errorf("a log's key as a witness's: %v", err)
	}
}

// plainKey is the key of an Ed25519 witness as one that signs text as it is.
func plainKey(t *testing.T, s *tlog.Secret) string {
	t.Helper()
	_, encoded, _ := strings.Cut(strings.SplitN(s.Key().String(), "+", 2)[1], "+")
	public := decode(t, encoded)[1:]
	vkey, err := note.NewEd25519VerifierKey("plain", public)
	if err != nil {
		t.Fatal(err)
	}
	return vkey
}
