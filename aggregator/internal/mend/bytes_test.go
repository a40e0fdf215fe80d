package mend

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/starling-agg/starling/dap"
)

// TestBytes: messages are what they have always been.
func TestBytes(t *testing.T) {
	low, high := dap.ReportID{1}, dap.ReportID{2}
	entries := []Entry{{ID: low}, {ID: high, Marked: true}}
	gift := Gift{Sum: [32]byte{3}, From: low, Page: entries}
	x := []byte("x")
	for what, c := range map[string]struct {
		b    []byte
		want string
	}{
		"needs":   {AppendNeeds(x, []Need{{[32]byte{4}, low, high, 5}, {[32]byte{6}, high, high, 1}}), "e0653113c3de5a8947d63531914daad8837050f5946df5822994ceba7dca9915"},
		"ask":     {AppendAsk(x, low, high), "8cb089103e138ecc4d19dc5bc278aa5f9dc377bc595b403bfc012ecef1a15bbb"},
		"page":    {AppendPage(x, entries), "d7f715f89025e586dcd77dcb399c9fb571c2fb66c3e4df95b8299315a17337b8"},
		"gift":    {gift.Append(x), "31d7a070fd88213915f51ad8c7c35a333f2e0acb37f52f796a064be663ea2738"},
		"outcome": {AppendOutcome(x, Unlike, high), "dbe6430d330ba655491391e4db6388eb9dd32097dd6771e5db2bb3d73bb297e8"},
	} {
		if sum := sha256.Sum256(c.b); hex.EncodeToString(sum[:]) != c.want {
			t.Errorf("%s: %x hashes to %x, want %s", what, c.b, sum, c.want)
		}
	}
}
