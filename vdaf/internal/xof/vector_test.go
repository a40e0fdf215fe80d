package xof_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/starling-agg/starling/vdaf/internal/field"
	"github.com/starling-agg/starling/vdaf/internal/xof"
	"github.com/starling-agg/starling/vdaf/vdaftest"
)

// TestVectorXofTurboShake128 runs the official vector, whose tag is shared out over both
// parts of ours.
func TestVectorXofTurboShake128(t *testing.T) {
	dir, err := vdaftest.OfficialDir()
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
		t.Skip("official VDAF vectors not found: set STARLING_VECTORS to the folder that holds vdaf-18")
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "vdaf-18", "XofTurboShake128.json"))
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Seed, Dst, Binder vdaftest.Hex
		Length            int
		DerivedSeed       vdaftest.Hex `json:"derived_seed"`
		Expanded          vdaftest.Hex `json:"expanded_vec_field128"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	start := func() *xof.XOF {
		x := new(xof.XOF)
		x.Init((*[8]byte)(v.Dst), v.Dst[8:], v.Seed)
		x.Absorb(v.Binder)
		return x
	}
	var seed [xof.SeedSize]byte
	start().Seed(&seed)
	if !bytes.Equal(seed[:], v.DerivedSeed) {
		t.Errorf("seed is %x, want %x", seed, v.DerivedSeed)
	}
	f := field.Field128{}
	vec := make([]uint64, v.Length*f.Limbs())
	start().Expand(f, vec)
	if got := f.Append(nil, vec); !bytes.Equal(got, v.Expanded) {
		t.Errorf("vector is %x, want %x", got, v.Expanded)
	}
}
