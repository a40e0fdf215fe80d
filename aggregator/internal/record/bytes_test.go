package record

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/starling-agg/starling/dap"
)

// TestBytes: a place of the mark is written as it has always been.
func TestBytes(t *testing.T) {
	r := &Record{
		Identity: Identity{Role: dap.RoleHelper, Party: "https://helper.example/", ID: [16]byte{1}},
		Mark:     Mark{State: InUse, Epoch: 2, Age: 3, Releases: 4, Total: [32]byte{5}}, serial: 6,
	}
	b, err := r.append([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	const want = "d1baeba8336694ac0358641d20995b3b7c8c6df192d6b79e0ca72b8ad16a7b11"
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
		t.Errorf("%x hashes to %x, want %s", b, sum, want)
	}
}
