package agreement

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/starling-agg/starling/dap"
)

// TestBytes: what two aggregators say, and what they hash of it, is written as it has
// always been.
func TestBytes(t *testing.T) {
	f := &Facts{
		Config: Digest{1}, Collector: Digest{2}, Calendar: Digest{3}, Noise: Digest{4},
		Wire: 18, Framing: dap.Janus, ClosedIn: 5, Keys: []VerifyKey{{6, Digest{7}}, {8, Digest{9}}},
		Ledger: Tally{10, [32]byte{11}}, Seen: 12,
	}
	entries := []Entry{
		{Task: dap.TaskID{1}, Digest: Digest{13}, Facts: f}, {Task: dap.TaskID{2}, State: Retired}, {Task: dap.TaskID{3}, Digest: Digest{14}},
	}
	m := &Message{Version: Oldest, Service: Service{Now: 15, Offset: -16, Skew: 17, JobBytes: 18, JobReports: 19}, Root: Digest{20}, Entries: entries}
	message, err := m.Append([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	closed := *f
	closed.Closing = Closing{Draining, "over"}
	second := &Message{Version: Newest, Service: m.Service, Root: m.Root, Entries: []Entry{{Task: dap.TaskID{1}, Digest: Digest{13}, Facts: &closed}}}
	newer, err := second.Append([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	part, err := (&Part{Bits: 2, Index: 1, Prints: []Print{1<<62 + 1, 1<<62 + 2}}).Append([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	key := NewKey("token", dap.TaskID{1})
	fence, ok := f.fence(key, 8)
	if !ok {
		t.Fatal("no fence")
	}
	digest, root, later := f.Digest(key, Oldest), Root(entries), closed.Digest(key, Newest)
	for what, c := range map[string]struct {
		b    []byte
		want string
	}{
		"message": {message, "7624faf1d666a1eb6232acebdb481f604f9d1b90c1ee03fc1298ed7b77cb5d90"},
		"newer":   {newer, "c4d6b6404c4e8952a629b7671f6e8bdc78558d1d655f0bddd0efef5049b5f0ad"},
		"later":   {later[:], "67c46e2088a2da1f5e7785ee4e7118454762245503dc601410b97fa016d29aa6"},
		"part":    {part, "088cd9cf15d5246c828ec1d82d1e9ae8b735a14b671be9df2d493d15f16541e6"},
		"fence":   {fence[:], "19b00b626d56f343765aec7fd15c2522e7aeeab5cf437405cd4aa80db89eb438"},
		"digest":  {digest[:], "d305643433463e2236c5ec91fe58691580c54e1e14ef4c83e4c45d33fd103bea"},
		"root":    {root[:], "364a69c0f94bebd65c819e517e3f8991e8b800b0e75713488eb674d0c72881ed"},
	} {
		if sum := sha256.Sum256(c.b); hex.EncodeToString(sum[:]) != c.want {
			t.Errorf("%s: %x hashes to %x, want %s", what, c.b, sum, c.want)
		}
	}
}
