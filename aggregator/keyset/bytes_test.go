package keyset

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/starling-agg/starling/sealed"
)

// TestBytes: the state is written as it has always been.
func TestBytes(t *testing.T) {
	at := time.Unix(1_700_000_000, 123).UTC()
	b, err := appendState([]record{
		{serial: 1, id: 9, suite: sealed.SuiteX25519, created: at, offered: at.Add(7), superseded: at.Add(1), promised: at.Add(2), destroyed: at.Add(3), closed: 1 << 33, public: [32]byte{4}},
		{serial: 1 << 40, id: 8, suite: sealed.SuiteXWing, created: at.Add(5), public: [32]byte{6}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "57f3f36946314ac55fca1419ad46e29657194c4b25e0d18abc33f704b4359896"
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
		t.Errorf("%x hashes to %x, want %s", b, sum, want)
	}
}
