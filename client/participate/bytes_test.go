package participate

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/starling-agg/starling/recipe"
)

// TestBytes: what lies beside a device's recipes is written as it has always been.
func TestBytes(t *testing.T) {
	id := recipe.ID{1, 2, 3}
	frozen := func(what, want string, b []byte, err error) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s: %x hashes to %x, want %s", what, b, sum, want)
		}
	}
	draws, err := appendDraws([]byte("x"), salt{7}, map[drawKey]draw{
		{id, 3}: {slot: 5, end: 600}, {id, 1}: {slot: noSlot, end: 500}, {recipe.ID{}, 9}: {slot: 1, end: 1 << 40},
	})
	frozen("draws", "5b4493ece6670c6ed4a8de7bf259b11bd0997e13a9692c61077037feb743e8b3", draws, err)
	for i, want := range []string{"67f3f1114ad388bb408c92b06d0191729dee1c1f102bcfacdddd27b4246969ee", "3c46531977922074bc6522f23d791b58a03350c9a8bf069a692a272f94cd8f5f", "2bbadcdb6f56e111e8ed68c506782271e8f3681a8ba0e7492c5d09731bae4b10", "9ffc843a0025409668da341c35b30d68d6911c346a0d03d1177ac9f95fd6b535"} {
		r := record{kind: uint8(i) + kindSeen, day: 19_000, recipe: id, bytes: make([]byte, 2000), round: 4, charge: charge{5, 6}, open: charge{7, 8}}
		b, err := r.append([]byte("x"))
		frozen(fmt.Sprintf("record of kind %d", r.kind), want, b, err)
	}
	m := mark{serial: 1, records: 2, chain: digest{3}, before: digest{4}, after: digest{5}, changed: drawKey{id, 6}}
	b, err := m.append([]byte("x"))
	frozen("mark", "3e081bb49f352ef485545cf80347f874a234e99cf7c2c81b97b08c1a7a2e8f7f", b, err)
}
