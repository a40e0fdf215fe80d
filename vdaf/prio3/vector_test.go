package prio3

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/derand"
	"github.com/starling-agg/starling/vdaf/internal/field"
	"github.com/starling-agg/starling/vdaf/internal/flp"
	"github.com/starling-agg/starling/vdaf/internal/kernel"
	"github.com/starling-agg/starling/vdaf/vdaftest"
)

// higherDegree is the specification's type for tests of gadgets of degree 3: x(x-1)(x-2)
// = 0.
type higherDegree struct{ core }

func newHigherDegree(shares int) *higherDegree {
	c := flp.NewPoly(field.Field64{}, 1, []int64{0, 2, -3, 1})
	return &higherDegree{newCore(0xFFFFFFFF, shares, 1, c, 1, nil)}
}

func (v *higherDegree) ShardDerandomized(ctx []byte, m uint64, nonce *[vdaf.NonceSize]byte, r derand.Rand) (
	*vdaf.Shares, error) {
	return v.shard(ctx, []uint64{m}, nonce, r)
}

// instance makes the VDAF of a vector file by its name, or returns nil.
func instance(name string, x *vdaftest.Vector) (vdaf.VDAF, vdaftest.ShardFunc, error) {
	typ, _, _ := strings.Cut(name, "_")
	switch typ {
	case "Prio3Count":
		v, err := NewCount(x.Shares)
		return v, func(ctx []byte, m json.RawMessage, nonce *[vdaf.NonceSize]byte, rand []byte) (*vdaf.Shares, error) {
			return vdaftest.Shard(v, ctx, string(m) == "1" || string(m) == "true", nonce, rand)
		}, err
	case "Prio3Sum":
		v, err := NewSum(x.Shares, x.MaxMeasurement)
		return v, vdaftest.JSONSharder(v), err
	case "Prio3SumVec":
		v, err := NewSumVec(x.Shares, x.Length, x.MaxMeasurement, x.ChunkLength)
		return v, vdaftest.JSONSharder(v), err
	case "Prio3SumVecWithMultiproof":
		proofs := x.Proofs
		if proofs == 0 {
			proofs = 3 // the official files do not say
		}
		v, err := NewSumVecWithMultiproof(x.Shares, x.Length, x.MaxMeasurement, x.ChunkLength, proofs)
		return v, vdaftest.JSONSharder(v), err
	case "Prio3Histogram":
		v, err := NewHistogram(x.Shares, x.Length, x.ChunkLength)
		return v, vdaftest.JSONSharder(v), err
	case "Prio3MultihotCountVec":
		v, err := NewMultihotCountVec(x.Shares, x.Length, x.MaxWeight, x.ChunkLength)
		return v, vdaftest.JSONSharder(v), err
	case "Prio3L1BoundSum":
		v, err := NewL1BoundSum(x.Shares, x.Length, x.MaxValue, x.ChunkLength)
		return v, vdaftest.JSONSharder(v), err
	case "Prio3HigherDegree":
		v := newHigherDegree(x.Shares)
		return v, vdaftest.JSONSharder(v), nil
	}
	return nil, nil, nil
}

func runVectors(t *testing.T, paths []string) (ran int) {
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		x, err := vdaftest.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		v, shard, err := instance(name, x)
		if v == nil && err == nil {
			t.Logf("not run: %s is of no type of this package", name)
			continue
		}
		ran++
		t.Run(name, func(t *testing.T) {
			if err != nil {
				t.Fatal(err)
			}
			if err := vdaftest.Replay(v, shard, x); err != nil {
				t.Fatal(err)
			}
		})
	}
	return ran
}

// TestVectorOfficial runs the vectors published with the draft, which are not part of
// this repository.
func TestVectorOfficial(t *testing.T) {
	dir, err := vdaftest.OfficialDir()
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
		t.Skip("official VDAF vectors not found: set STARLING_VECTORS to the folder that holds vdaf-18")
	}
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "vdaf-18", "vdaf", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	// 17 good files and 8 bad ones of Prio3 were published with draft 18, and one of
	// Prio3L1BoundSum with its own.
	for _, name := range implementations(t) {
		onImplementation(t, name, func(t *testing.T) {
			if ran := runVectors(t, paths); ran < 26 {
				t.Errorf("only %d files of Prio3 in %s", ran, dir)
			}
		})
	}
}

// TestVectorLibprio runs vectors that libprio-rs made (test/interop/prio), so that a
// fresh clone is tested against another implementation: reports it sharded verify to the
// same bytes, and corrupted ones are refused.
func TestVectorLibprio(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range implementations(t) {
		onImplementation(t, name, func(t *testing.T) {
			if ran := runVectors(t, paths); ran < 18 || ran != len(paths) {
				t.Errorf("%d of %d files run, want all of at least 18", ran, len(paths))
			}
		})
	}
}

// onImplementation runs a subtest with every kernel's implementation of that name.
func onImplementation(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		restore, err := kernel.Use(name)
		if err != nil {
			t.Fatal(err)
		}
		defer restore()
		test(t)
	})
}

// implementations are the names under which any kernel is built here; those this
// processor cannot run are logged.
func implementations(t *testing.T) []string {
	var names []string
	for _, i := range kernel.All() {
		if !i.Supported {
			t.Logf("not run: %s of %s", i.Name, i.Kernel)
		} else if !slices.Contains(names, i.Name) {
			names = append(names, i.Name)
		}
	}
	if !slices.Contains(names, kernel.Go) {
		t.Fatal("the reference is not registered")
	}
	return names
}

// Replay must notice a single changed byte of any part of a vector, and a wrong verdict.
func TestReplayNotices(t *testing.T) {
	path := filepath.Join("testdata", "Prio3Histogram_0.json")
	changes := map[string]func(x *vdaftest.Vector){
		"public share":     func(x *vdaftest.Vector) { x.Reports[0].PublicShare[0] ^= 1 },
		"input share":      func(x *vdaftest.Vector) { x.Reports[1].InputShares[1][3] ^= 1 },
		"verifier share":   func(x *vdaftest.Vector) { x.Reports[2].VerifierShares[0][1][5] ^= 1 },
		"verifier message": func(x *vdaftest.Vector) { x.Reports[2].VerifierMessages[0][9] ^= 1 },
		"output share":     func(x *vdaftest.Vector) { x.Reports[0].OutShares[1][20] ^= 1 },
		"aggregate share":  func(x *vdaftest.Vector) { x.AggShares[0][0] ^= 1 },
		"result":           func(x *vdaftest.Vector) { x.AggResult = json.RawMessage("[0]") },
		"verification key": func(x *vdaftest.Vector) { x.VerifyKey[31] ^= 1 },
		"context":          func(x *vdaftest.Vector) { x.Ctx[0] ^= 1 },
		"nonce":            func(x *vdaftest.Vector) { x.Reports[0].Nonce[0] ^= 1 },
		"verdict":          func(x *vdaftest.Vector) { x.Operations[0].Success = false },
		"unknown":          func(x *vdaftest.Vector) { x.Operations[0].Operation = "other" },
		"number of shares": func(x *vdaftest.Vector) { x.Shares = 3 },
		"no operations":    func(x *vdaftest.Vector) { x.Operations = nil },
	}
	v := must(NewHistogram(2, 20, 4))
	for name, change := range changes {
		x, err := vdaftest.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		change(x)
		if err := vdaftest.Replay(v, vdaftest.JSONSharder(v), x); err == nil {
			t.Errorf("%s changed: not noticed", name)
		}
	}
}
