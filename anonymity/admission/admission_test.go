package admission_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/anonymity/admission"
	"github.com/starling-agg/starling/anonymity/arc"
	"github.com/starling-agg/starling/anonymity/voprf"
)

func keys(n int) *admission.Keys {
	k := &admission.Keys{Deployment: [32]byte{1}, Recipe: [32]byte{2}, Task: [32]byte{3}, First: 7, Length: 3600, Grace: 600}
	k.Generate(n)
	return k
}

// TestKeysBytes: a file has one encoding; whatever is not that is refused.
func TestKeysBytes(t *testing.T) {
	k := keys(3)
	b, err := k.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	read, err := admission.ReadKeys(b)
	if err != nil {
		t.Fatal(err)
	}
	again, err := read.Append(nil)
	if err != nil || !bytes.Equal(again, b) || read.Name() != k.Name() || read.Public().Digest() != k.Public().Digest() {
		t.Errorf("read back as %v, %v", read, err)
	}
	for i := range b {
		bad := bytes.Clone(b)
		bad[i] ^= 1
		if _, err := admission.ReadKeys(bad); !errors.Is(err, admission.ErrKeys) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
		if _, err := admission.ReadKeys(b[:i]); !errors.Is(err, admission.ErrKeys) {
			t.Fatalf("cut to %d bytes: %v", i, err)
		}
	}
	summed := func(content []byte) []byte {
		sum := sha256.Sum256(content)
		return append(content, sum[:]...)
	}
	content := b[:len(b)-sha256.Size]
	for name, bad := range map[string][]byte{
		"trailing bytes": summed(append(bytes.Clone(content), 0)),
		"a key of zeros": summed(append(bytes.Clone(content[:len(content)-32]), make([]byte, 32)...)),
		"one key twice":  summed(append(bytes.Clone(content[:len(content)-32]), content[len(content)-64:len(content)-32]...)),
		"too long":       make([]byte, admission.MaxFile+1),
	} {
		if _, err := admission.ReadKeys(bad); !errors.Is(err, admission.ErrKeys) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*admission.Keys){
		"none":               func(k *admission.Keys) { k.Keys = nil },
		"rounds of no time":  func(k *admission.Keys) { k.Length = 0 },
		"past the last time": func(k *admission.Keys) { k.First = 1 << 62 },
		"an endless grace":   func(k *admission.Keys) { k.Grace = 1 << 63 },
	} {
		k := keys(1)
		change(k)
		if _, err := k.Append(nil); !errors.Is(err, admission.ErrKeys) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOpen: a round's tokens are taken from a minute before its start until its grace is
// over, and the list ends with its last round's.
func TestOpen(t *testing.T) {
	k := keys(2) // rounds 7 and 8 of an hour
	at := func(seconds int64) time.Time { return time.Unix(7*3600+seconds, 0) }
	for _, c := range []struct {
		round uint64
		at    int64
		open  bool
	}{
		{7, -61, false}, {7, -60, true}, {7, 0, true}, {7, 3600, true}, {7, 4199, true}, {7, 4200, false},
		{8, 3539, false}, {8, 3540, true}, {8, 7799, true}, {8, 7800, false},
		{6, 0, false}, {9, 7200, false}, {0, 0, false}, {1<<64 - 1, 0, false},
	} {
		if got := k.Open(c.round, at(c.at)); got != c.open {
			t.Errorf("round %d at %d: %v", c.round, c.at, got)
		}
	}
	if !k.End().Equal(at(7800)) {
		t.Errorf("ends %v", k.End())
	}
}

// TestRounds: the rounds of epochs are those that the rule of credentials names, each in
// exactly one.
func TestRounds(t *testing.T) {
	for _, c := range []struct{ round, epoch uint64 }{{1, 1}, {3600, 86400}, {7, 60}, {59, 60}, {60, 60}, {86400, 86400}} {
		next := uint64(0)
		for e := range uint64(50) {
			first, n, err := admission.Rounds(e, c.round, c.epoch)
			if err != nil || first != next || n == 0 {
				t.Fatalf("epoch %d of %d: %d rounds of %d from %d, %v, want from %d", e, c.epoch, n, c.round, first, err, next)
			}
			for r := first; r < first+uint64(n); r++ {
				if of, err := arc.EpochOf(r, c.round, c.epoch); err != nil || of != e {
					t.Fatalf("round %d is of epoch %d, not %d: %v", r, of, e, err)
				}
			}
			next = first + uint64(n)
		}
	}
	for _, c := range [][3]uint64{{0, 0, 60}, {0, 61, 60}, {1 << 63, 60, 60}, {1, 1, 1 << 63}} {
		if _, _, err := admission.Rounds(c[0], c[1], c[2]); !errors.Is(err, admission.ErrKeys) {
			t.Errorf("%v: %v", c, err)
		}
	}
}

// TestField: the field has one length, and one text for each token.
func TestField(t *testing.T) {
	token := voprf.Token{Nonce: [32]byte{1, 2, 3}, Output: [32]byte{31: 9}}
	for _, round := range []uint64{0, 7, 1<<64 - 1} {
		s := admission.Value(round, token)
		got, back, err := admission.ReadValue(s)
		if err != nil || got != round || back != token || len(s) != 96 {
			t.Errorf("%q of %d bytes is round %d, %v", s, len(s), got, err)
		}
		for _, bad := range []string{"", s[1:], s + "A", s[:95] + "=", s[:95] + "+", "\n" + s[1:], "\r\n\r\n" + s[4:], strings.Repeat("\n", len(s)), s[:95] + "\x80"} {
			if _, _, err := admission.ReadValue(bad); !errors.Is(err, admission.ErrField) {
				t.Errorf("%q: %v", bad, err)
			}
		}
	}
}

func FuzzReadKeys(f *testing.F) {
	b, err := keys(2).Append(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := admission.ReadKeys(b)
		if err != nil {
			return
		}
		if again, err := k.Append(nil); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%x is read, and written as %x, %v", b, again, err)
		}
	})
}
