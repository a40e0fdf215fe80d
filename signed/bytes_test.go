package signed

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"
)

// TestBytes: what is signed, and what is kept of it, is written as it has always been.
func TestBytes(t *testing.T) {
	at := time.Unix(1_700_000_000, 0).UTC()
	l := &List{
		Deployment: [32]byte{1}, Role: Helper, URL: "https://helper.example/", Epoch: 7,
		NotBefore: at, NotAfter: at.Add(time.Hour), Body: []byte("keys"),
	}
	list, err := l.body()
	if err != nil {
		t.Fatal(err)
	}
	s := &Signature{Delegation{PublicKey{2}, PublicKey{3}, at, at.Add(time.Minute), [64]byte{4}}, [64]byte{5}}
	for what, c := range map[string]struct {
		b    []byte
		want string
	}{
		"list":      {list, "fb2210d8d6346f3ee65f767805aa93abd7c9a0edbb2aecfd85f4fe2d156f3aa0"},
		"signature": {s.Append([]byte("x")), "214e2874c4185727a15999d999d7fbfc41da42d843a2049bef97a6ce0281cc25"},
		"file":      {s.Delegation.MarshalFile(), "15c13f2fb25345ed006221e17970f92709a9469948708e9c2280ebcc0c089616"},
		"record": {appendRecord([]Statement{
			{[32]byte{6}, 7, 8, at, at.Add(time.Second), [32]byte{9}}, {[32]byte{5}, 4, 3, at, at, [32]byte{2}},
		}), "5129686fabf073c46f173bdafa90c954ebcec5b39d9f113ed524fd4badfe8cb6"},
	} {
		if sum := sha256.Sum256(c.b); hex.EncodeToString(sum[:]) != c.want {
			t.Errorf("%s: %x hashes to %x, want %s", what, c.b, sum, c.want)
		}
	}
}
