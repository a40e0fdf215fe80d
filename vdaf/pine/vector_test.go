package pine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/internal/derand"
	"github.com/starling-agg/starling/vdaf/internal/kernel"
	"github.com/starling-agg/starling/vdaf/vdaftest"
)

// vector is a file of pine-01, in the format of VDAF-11.
type vector struct {
	Shares          int
	NormBound       uint64 `json:"l2_norm_bound"`
	FracBits        int    `json:"num_frac_bits"`
	Dimension       int
	ChunkLength     int `json:"chunk_length"`
	NormChunkLength int `json:"chunk_length_norm_equality"`
	Tests           int `json:"num_wr_checks"`
	Passes          int `json:"num_wr_successes"`
	Alpha           float64
	Field           string
	Proofs          int
	NormProofs      int            `json:"proofs_norm_equality"`
	VerifyKey       vdaftest.Hex   `json:"verify_key"`
	AggResult       []float64      `json:"agg_result"`
	AggShares       []vdaftest.Hex `json:"agg_shares"`
	Prep            []struct {
		Measurement  []float64
		Nonce, Rand  vdaftest.Hex
		PublicShare  vdaftest.Hex     `json:"public_share"`
		InputShares  []vdaftest.Hex   `json:"input_shares"`
		PrepShares   [][]vdaftest.Hex `json:"prep_shares"`
		PrepMessages []vdaftest.Hex   `json:"prep_messages"`
		OutShares    [][]vdaftest.Hex `json:"out_shares"`
	}
}

// legacy makes the instance of a vector.
func legacy(name string, x *vector) (*Pine, error) {
	i := map[string]*fieldInfo{"Field32": fields[Field32], "Field40": fields[Field40], "Field64": fields[Field64],
		"Field128": fields[Field128]}[x.Field]
	if i == nil || x.Alpha != alpha {
		return nil, fmt.Errorf("field %s, alpha %v", x.Field, x.Alpha)
	}
	id, aes, seed := uint32(0xFFFFFFFF), false, 16
	if strings.Contains(name, "Hmac") {
		id, aes, seed = map[string]uint32{"Field64": 0xFFFF1004, "Field32": 0xFFFF1005, "Field40": 0xFFFF1006}[x.Field], true, 32
	}
	if err := checkField(i.q, x.NormBound, x.Tests); err != nil {
		return nil, err
	}
	v := newPine(i.f, id, aes, x.Shares, shape{dim: x.Dimension, bound: x.NormBound, tests: x.Tests, passes: x.Passes,
		proofs: x.Proofs, normProofs: x.NormProofs, chunk: x.ChunkLength, normChunk: x.NormChunkLength}, profile01(seed))
	v.p.FracBits = x.FracBits
	return v, nil
}

// replay runs a vector, each report apart and all in one batch, and compares every byte.
// It returns the first difference.
func replay(v *Pine, x *vector) error {
	size := v.Sizes()
	var key [vdaf.VerifyKeySize]byte
	copy(key[:], x.VerifyKey)
	n := len(x.Prep)
	if n == 0 {
		return errors.New("no reports")
	}
	errs, msgs := make([]error, n), make([]byte, n*size.VerifierMessage)
	shares, states := make([][]byte, x.Shares), make([]vdaf.State, x.Shares)
	in := make([]vdaf.Reports, x.Shares)
	for i := range x.Prep {
		p := &x.Prep[i]
		got, err := v.ShardDerandomized(nil, p.Measurement, (*[16]byte)(p.Nonce), derand.New(p.Rand))
		if err != nil {
			return err
		}
		if !bytes.Equal(got.Public, p.PublicShare) {
			return fmt.Errorf("report %d: public share differs", i)
		}
		for agg, want := range p.InputShares {
			if !bytes.Equal(got.Inputs[agg], want) {
				return fmt.Errorf("report %d: input share %d differs", i, agg)
			}
			in[agg].Nonces = append(in[agg].Nonces, [16]byte(p.Nonce))
			in[agg].Public = append(in[agg].Public, p.PublicShare)
			in[agg].Inputs = append(in[agg].Inputs, want)
		}
	}
	for agg := range in {
		states[agg], shares[agg] = v.NewState(n), make([]byte, n*size.VerifierShare)
		v.VerifyInit(states[agg], &key, nil, agg, &in[agg], shares[agg], errs)
		for i := range x.Prep {
			if !bytes.Equal(shares[agg][i*size.VerifierShare:(i+1)*size.VerifierShare], x.Prep[i].PrepShares[0][agg]) {
				return fmt.Errorf("report %d: verifier share %d differs (error %v)", i, agg, errs[i])
			}
		}
	}
	v.Combine(nil, shares, msgs, errs)
	for i := range x.Prep {
		if !bytes.Equal(msgs[i*size.VerifierMessage:(i+1)*size.VerifierMessage], x.Prep[i].PrepMessages[0]) {
			return fmt.Errorf("report %d: verifier message differs (error %v)", i, errs[i])
		}
	}
	var aggs []*vdaf.AggShare
	for agg, st := range states {
		v.Check(st, msgs, errs)
		sum := v.NewAggShare()
		for i := range x.Prep {
			one := v.NewAggShare()
			keep := make([]bool, n)
			keep[i] = true
			v.Accumulate(st, keep, nil, []*vdaf.AggShare{one}, errs)
			if want := slices.Concat(hexes(x.Prep[i].OutShares[agg])...); !bytes.Equal(one.Append(nil), want) {
				return fmt.Errorf("report %d: output share %d differs", i, agg)
			}
		}
		v.Accumulate(st, nil, nil, []*vdaf.AggShare{sum}, errs)
		if !bytes.Equal(sum.Append(nil), x.AggShares[agg]) {
			return fmt.Errorf("aggregate share %d differs", agg)
		}
		aggs = append(aggs, sum)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	sum, err := v.Unshard(aggs)
	if err != nil {
		return err
	}
	if got := v.Reals(sum); !slices.Equal(got, x.AggResult) {
		return fmt.Errorf("result is %v, want %v", got, x.AggResult)
	}
	return nil
}

func hexes(h []vdaftest.Hex) [][]byte {
	out := make([][]byte, len(h))
	for i := range h {
		out[i] = h[i]
	}
	return out
}

func readVector(t *testing.T, path string) *vector {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	x := new(vector)
	if err := json.Unmarshal(b, x); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return x
}

func officialVectors(t *testing.T) []string {
	t.Helper()
	dir, err := vdaftest.OfficialDir()
	if errors.Is(err, fs.ErrNotExist) && os.Getenv("CI") != "true" {
		t.Skip("official PINE vectors not found: set STARLING_VECTORS to the folder that holds pine-01")
	}
	if err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "pine-01", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < 32 {
		t.Fatalf("%d files in pine-01, want all 32", len(paths))
	}
	return paths
}

// TestVectorOfficial runs the 32 published vectors of draft 01 (the last), which are not
// part of this repository, through the legacy configuration, on every implementation of
// the kernels.
func TestVectorOfficial(t *testing.T) {
	paths := officialVectors(t)
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
	for _, impl := range names {
		restore, err := kernel.Use(impl)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			name := strings.TrimSuffix(filepath.Base(path), ".json")
			t.Run(impl+"/"+name, func(t *testing.T) {
				x := readVector(t, path)
				v, err := legacy(name, x)
				if err != nil {
					t.Fatal(err)
				}
				if err := replay(v, x); err != nil {
					t.Fatal(err)
				}
			})
		}
		restore()
	}
}

// replay must notice a changed byte in any part of a vector.
func TestVectorReplayNotices(t *testing.T) {
	path := officialVectors(t)[0]
	name := strings.TrimSuffix(filepath.Base(path), ".json")
	for part, change := range map[string]func(x *vector){
		"public share":     func(x *vector) { x.Prep[0].PublicShare[0] ^= 1 },
		"input share":      func(x *vector) { x.Prep[1].InputShares[1][3] ^= 1 },
		"verifier share":   func(x *vector) { x.Prep[1].PrepShares[0][0][5] ^= 1 },
		"verifier message": func(x *vector) { x.Prep[0].PrepMessages[0][9] ^= 1 },
		"output share":     func(x *vector) { x.Prep[0].OutShares[1][2][0] ^= 1 },
		"aggregate share":  func(x *vector) { x.AggShares[0][0] ^= 1 },
		"result":           func(x *vector) { x.AggResult[0]++ },
		"verification key": func(x *vector) { x.VerifyKey[15] ^= 1 },
		"nonce":            func(x *vector) { x.Prep[0].Nonce[0] ^= 1 },
		"measurement":      func(x *vector) { x.Prep[0].Measurement[0] = 0.5 },
		"reports":          func(x *vector) { x.Prep = nil },
	} {
		x := readVector(t, path)
		v, err := legacy(name, x)
		if err != nil {
			t.Fatal(err)
		}
		change(x)
		if err := replay(v, x); err == nil {
			t.Errorf("%s changed: not noticed", part)
		}
	}
}
