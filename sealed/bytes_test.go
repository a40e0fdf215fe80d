package sealed

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
)

// TestBytes: a key's file is written as it has always been.
func TestBytes(t *testing.T) {
	kem, _, _, err := SuiteX25519.algorithms()
	if err != nil {
		t.Fatal(err)
	}
	secret := make([]byte, 32)
	secret[0], secret[31] = 8, 64 // clamped
	key, err := kem.NewPrivateKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	k, err := newKeyPair(7, SuiteX25519, key)
	if err != nil {
		t.Fatal(err)
	}
	file, err := k.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	const want = "e457987c43c712e2908c7109b47cecb52649c8e7343a30d9825e30813b4cd733"
	if sum := sha256.Sum256(file); hex.EncodeToString(sum[:]) != want {
		t.Errorf("%x hashes to %x, want %s", file, sum, want)
	}
}
