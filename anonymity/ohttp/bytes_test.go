package ohttp

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"github.com/starling-agg/starling/sealed"
	"github.com/starling-agg/starling/signed"
)

// TestBytes: encodings are what they have always been. Signatures here are none; they are
// read and written all the same.
func TestBytes(t *testing.T) {
	key := KeyConfig{ID: 7, KEM: sealed.KEMX25519, Key: bytes.Repeat([]byte{9}, 32), Symmetric: []Symmetric{{KDF: 1, AEAD: 3}, {KDF: 1, AEAD: 1}}}
	p256, err := sealed.Generate(8, sealed.Suite{KEM: sealed.KEMP256, KDF: 1, AEAD: 1})
	if err != nil {
		t.Fatal(err)
	}
	second := NewKeyConfig(p256)
	begin := time.Unix(1_700_000_000, 0).UTC().Truncate(24 * time.Hour)
	sign := func(role signed.Role) Cosignature {
		s := signed.Signature{Signature: [64]byte{byte(role), 2}}
		s.Delegation.NotBefore, s.Delegation.NotAfter = begin, begin.Add(time.Hour)
		s.Delegation.Root[3], s.Delegation.Key[5], s.Delegation.Signature[7] = 1, 2, 3
		return Cosignature{role, s}
	}
	m := &Manifest{
		Deployment: [32]byte{1, 2}, Epoch: EpochAt(begin, 24*time.Hour), Revision: 3, Length: 24 * time.Hour,
		NotBefore: begin, NotAfter: begin.Add(20 * time.Hour), Previous: [32]byte{4}, Relay: "https://relay.example/r",
		Gateway: []KeyConfig{key}, Tries: 3, Every: time.Minute, Hold: time.Hour,
		Targets: []string{"https://leader.example/", "https://helper.example/dap"},
		Pinned:  []Pinned{{"https://leader.example/hpke_config", "a/b", []byte("keys")}, {"https://helper.example/hpke_config", "c/d", []byte("more")}},
		Recipes: [][32]byte{{5}, {6}}, Signatures: []Cosignature{sign(signed.Leader), sign(signed.Gateway)},
	}
	one, err := key.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	list, err := AppendKeyConfigs([]byte("x"), []KeyConfig{key, key})
	if err != nil {
		t.Fatal(err)
	}
	all, err := m.Append([]byte("before"))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		b    []byte
		want string
	}{
		"key configuration":  {one, "ba3739cdcc41267dbe2f5d69f0c7c36f6a5ff006a2efe712287e2f0410e72e5c"},
		"key configurations": {list, "362427e182e266d2f94b426ae1823d8fb5e76aa4628415e820349e9cbb597248"},
		"manifest":           {all, "a7b73b4e5fbd5cc0b0d6c62a824fa850a79a9f56fec405e80cdbc9df656c8f7f"},
	} {
		if sum := sha256.Sum256(c.b); hex.EncodeToString(sum[:]) != c.want {
			t.Errorf("%s: %x hashes to %x, want %s", what, c.b, sum, c.want)
		}
	}
	// A key of another length behind it, which no digest can hold: it is drawn.
	m.Gateway = append(m.Gateway, second)
	if all, err = m.Append(nil); err != nil {
		t.Fatal(err)
	}
	if again, err := ReadManifest(all); err != nil || !again.Gateway[1].Equal(second) || !again.Gateway[0].Equal(key) {
		t.Errorf("two keys: %v", err)
	}
}
