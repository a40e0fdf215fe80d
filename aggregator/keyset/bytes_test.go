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
		{serial: 1, id: 9, suite: sealed.SuiteX25519, created: at, superseded: at.Add(1), promised: at.Add(2), destroyed: at.Add(3), public: [32]byte{4}},
		{serial: 1 << 40, id: 8, suite: sealed.SuiteXWing, created: at.Add(5), public: [32]byte{6}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = "3b8eff2ef61d54b45ac085ba5850bdcaab2b362d9f000ed91d0edd23f7a921ef"
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
		t.Errorf("%x hashes to %x, want %s", b, sum, want)
	}
}
