package pine

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/vdaftest"
)

// pinned are hashes of all that passes between the parties for one report under this
// profile. No one else speaks it, so a change here is a change of the wire and needs new
// codepoints.
var pinned = map[Field]string{
	Field32:  "5e14f63ddf147fec51caabbd06c8e646d181d4230c013f99d0062fc111471d81",
	Field40:  "4dbd5cb7903cbc7ec99c82d05d71cc66d2bbdbf37a72ee4d0b54cce7c526bc18",
	Field64:  "304c303627bd8d7baf5831bb40aa7e12889aa8c99448ac48911e28bf25d2d397",
	Field128: "8b15d0d16e3043ce4e8e3bbdc574b6bd7b0900a724fc49ed9ec2f5adddebed3c",
}

func TestProfilePinned(t *testing.T) {
	for _, f := range allFields {
		v := must(New(Params{Field: f, Dimension: 70, FracBits: 15, Norm: 1}))
		rand := make([]byte, v.randSize())
		for i := range rand {
			rand[i] = byte(i)
		}
		if len(rand) != 6*vdaf.SeedSize {
			t.Errorf("field %d: %d bytes of randomness", f, len(rand))
		}
		x := make([]float64, 70)
		x[0], x[1], x[69] = 0.5, -0.25, 0.125
		nonce := nonceOf(7)
		s, err := vdaftest.Shard(v, testCtx, x, &nonce, rand)
		if err != nil {
			t.Fatal(err)
		}
		b := newBatch(v, 1)
		b.add(s, nonce)
		aggs := b.run()
		if b.errs[0] != nil {
			t.Fatal(b.errs[0])
		}
		h := sha256.New()
		for _, part := range [][]byte{s.Public, s.Inputs[0], s.Inputs[1], b.shares[0], b.shares[1], b.msgs,
			aggs[0].Append(nil), aggs[1].Append(nil)} {
			h.Write(part)
		}
		if got := hex.EncodeToString(h.Sum(nil)); got != pinned[f] {
			t.Errorf("field %d: the transcript hashes to %s, want %s", f, got, pinned[f])
		}
	}
}

// docs/pine.md and docs/registry.md state what the code does.
func TestDocs(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("..", "..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	doc, registry := read("pine.md"), read("registry.md")
	need := func(text, line string) {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
	for _, f := range allFields {
		i := fields[f]
		need(registry, fmt.Sprintf("| `0x%08X` | PINE over Field%d | `vdaf/codepoints.go` |", i.id, f))
	}
	for _, c := range []struct {
		f    Field
		frac int
	}{{Field32, 15}, {Field40, 19}, {Field64, 24}, {Field128, 24}} {
		for _, dim := range []int{10000, 1 << 18} {
			k := must(Plan(Params{Field: c.f, Dimension: dim, FracBits: c.frac, Norm: 1}))
			s := k.Soundness
			need(doc, fmt.Sprintf("| Field%d, f = %d | %d | %d | %d | %d | %.2f | %d |", c.f, c.frac, dim, k.Sizes.LeaderInput,
				k.Sizes.HelperInput+k.Sizes.Public, k.Upload, k.PlaintextRatio, k.MaxClients))
			need(doc, fmt.Sprintf("| Field%d | %d | %d, %d | %.0f | %.1f | %.1f | %.1f | %.1f |", c.f, dim, k.Proofs, k.NormProofs,
				s.Tests, s.Main, s.Norm, s.Honest, s.Hidden))
			need(doc, fmt.Sprintf("| Field%d | %d | %.1f | %.1f | %.1f |", c.f, dim, 1e3*k.ClientSeconds, 1e3*k.LeaderSeconds,
				1e3*k.HelperSeconds))
		}
	}
	// The counts are those that the gate holds.
	const command = "go test ./vdaf/pine -run TestAttacks -"
	gate, err := os.ReadFile(filepath.Join("..", "..", ".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(gate), command+"count 1 -trials 1000") || !strings.Contains(doc, command+"trials 1000") {
		t.Error("the gate and docs/pine.md do not run the attacks 1,000 times")
	}
	for _, a := range attacks {
		need(doc, "| "+a.name+strings.Repeat(" | 1000", len(allFields))+" |")
	}
}
