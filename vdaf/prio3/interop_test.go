//go:build interop

package prio3

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/starling-agg/starling/vdaf"
	"github.com/starling-agg/starling/vdaf/vdaftest"
)

// libprio runs the program of test/interop/prio.
func libprio(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("cargo", append([]string{"run", "--release", "--quiet", "--"}, args...)...)
	cmd.Dir = filepath.Join("..", "..", "test", "interop", "prio")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestInteropTheirs: what libprio-rs shards now, with randomness of its own, verifies
// here to its own bytes.
func TestInteropTheirs(t *testing.T) {
	dir := t.TempDir()
	if out, err := libprio(t, "write", dir); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	if ran := runVectors(t, paths); ran < 18 || ran != len(paths) {
		t.Errorf("%d of %d files run, want all of at least 18", ran, len(paths))
	}
}

// TestInteropOurs: libprio-rs verifies and sums the same measurements when they are
// sharded here, and refuses them when one byte of a share has changed.
func TestInteropOurs(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	good, bad := t.TempDir(), t.TempDir()
	files := 0
	for _, path := range paths {
		x, err := vdaftest.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if string(x.AggResult) == "null" {
			continue // a corrupted report: nothing to shard
		}
		name := filepath.Base(path)
		for dir, spoil := range map[string]bool{good: false, bad: true} {
			ours, err := resharded(path, x, spoil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := os.WriteFile(filepath.Join(dir, name), ours, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		files++
	}
	if files < 12 {
		t.Fatalf("only %d files of good reports", files)
	}
	if out, err := libprio(t, "verify", good); err != nil || out != fmt.Sprintf("%d files verified, 0 refused\n", files) {
		t.Errorf("good reports: %v\n%s", err, out)
	}
	if out, err := libprio(t, "verify", bad); err != nil || out != fmt.Sprintf("0 files verified, %d refused\n", files) {
		t.Errorf("spoiled reports: %v\n%s", err, out)
	}
}

// resharded returns the file at path, which says x, with fresh nonces and shares made
// here. Spoiled shares differ in the first bit of the leader's.
func resharded(path string, x *vdaftest.Vector, spoil bool) ([]byte, error) {
	v, shard, err := instance(filepath.Base(path), x)
	if err != nil {
		return nil, err
	}
	if v == nil || len(x.Reports) == 0 {
		return nil, errors.New("of no type of this package, or without reports")
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file map[string]any
	if err := json.Unmarshal(raw, &file); err != nil {
		return nil, err
	}
	var reports []any
	for _, r := range x.Reports {
		var nonce [vdaf.NonceSize]byte
		rand.Read(nonce[:])
		random := make([]byte, v.(interface{ randSize() int }).randSize())
		rand.Read(random)
		shares, err := shard(x.Ctx, r.Measurement, &nonce, random)
		if err != nil {
			return nil, err
		}
		if spoil {
			shares.Inputs[0][0] ^= 1
		}
		inputs := make([]string, len(shares.Inputs))
		for i, s := range shares.Inputs {
			inputs[i] = hex.EncodeToString(s)
		}
		reports = append(reports, map[string]any{"measurement": r.Measurement, "nonce": hex.EncodeToString(nonce[:]),
			"public_share": hex.EncodeToString(shares.Public), "input_shares": inputs})
	}
	file["reports"] = reports
	return json.Marshal(file)
}
