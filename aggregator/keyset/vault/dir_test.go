package vault_test

import (
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/keyset/vault"
	"github.com/starling-agg/starling/aggregator/keyset/vault/vaulttest"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// dirs are handles on one directory, of one process after the other.
type dirs struct{ mem *disktest.Mem }

func (h *dirs) Shared() bool          { return false }
func (h *dirs) Advance(time.Duration) {}

// Open loses power between two processes: what a call did is durable.
func (h *dirs) Open(t *testing.T) vault.Vault {
	t.Helper()
	h.mem = h.mem.Crash()
	d := &vault.Dir{FS: h.mem, Path: "keys", Suffix: ".key"}
	if err := d.Make(); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestDir(t *testing.T) {
	vaulttest.Run(t, func(*testing.T) vaulttest.Harness { return &dirs{disktest.NewMem(1)} })
}

// TestDirIsAlone: the one process of a directory is the maker, and waits for nobody.
func TestDirIsAlone(t *testing.T) {
	d := (&dirs{disktest.NewMem(1)}).Open(t)
	if turn, err := d.Beat(t.Context(), vault.Report{}); err != nil || !turn.Alone || !turn.Maker || turn.Peers != nil {
		t.Errorf("%+v, %v", turn, err)
	}
}
