package datakey

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"
)

// TestBytes: a key's file is written as it has always been.
func TestBytes(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	f := &file{set: SetID{1}, Record: Record{Serial: 2, From: at, Until: at.Add(time.Hour)}, secret: [keySize]byte{3}}
	b := f.append()
	const want = "5ad7775874a3b89ce8a81816bc189fe2de2b6d4f82fefb4bd1b05c5f67d5e1b8"
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
		t.Errorf("%x hashes to %x, want %s", b, sum, want)
	}
}
