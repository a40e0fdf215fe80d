package sqlite_test

import (
	"context"
	"path"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// options are those of a store on a disk that has its record as well.
func options(mem disk.FS, fail *disk.Failpoints) sqlite.Options {
	return sqlite.Options{
		FS: mem, Record: disk.Sub(mem, "record"), Role: dap.RoleLeader, Party: "https://leader.example/", Failpoints: fail,
	}
}

// harness is a store on a simulated disk.
type harness struct {
	mem     *disktest.Mem
	fail    *disk.Failpoints
	open    *sqlite.Store
	maxRuns int // zero is the default
}

func newHarness(seed uint64) *harness {
	return &harness{mem: disktest.NewMem(seed), fail: new(disk.Failpoints)}
}

func (h *harness) FS() disk.FS                  { return h.mem }
func (h *harness) Failpoints() *disk.Failpoints { return h.fail }

func (h *harness) Tamper(t *testing.T, statement string) {
	t.Helper()
	if err := change(t, h.mem, statement); err != nil {
		t.Fatal(err)
	}
}

func (h *harness) MarkDamage() []string {
	return []string{
		"DELETE FROM run WHERE round = %d",
		"DELETE FROM run WHERE id = (SELECT min(id) FROM run WHERE round = %d)",
		"UPDATE run SET digest = zeroblob(32) WHERE id = (SELECT min(id) FROM run WHERE round = %d)",
		"UPDATE run SET sum = zeroblob(32) WHERE id = (SELECT min(id) FROM run WHERE round = %d)",
		"UPDATE run SET ids = ids + 1 WHERE id = (SELECT min(id) FROM run WHERE round = %d)",
		"UPDATE run SET name = name || '.x' WHERE id = (SELECT min(id) FROM run WHERE round = %d)",
		"UPDATE run SET round = round - 1 WHERE id = (SELECT min(id) FROM run WHERE round = %d)",
		"DELETE FROM spent_round WHERE round = %d",
		"UPDATE spent_round SET marks = marks + 1 WHERE round = %d",
		"UPDATE spent_round SET sum = zeroblob(32) WHERE round = %d",
	}
}

// Noise counts the files of noise.
func (h *harness) Noise(t *testing.T) (n int) {
	t.Helper()
	entries, err := h.mem.ReadDir("runs")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if path.Ext(e.Name) == ".noise" {
			n++
		}
	}
	return n
}

// Sums counts what lies under the data key of the suite, where nothing else does.
func (h *harness) Sums(t *testing.T) int {
	t.Helper()
	n, err := h.open.KeptUnder(context.Background(), 4)
	if err != nil {
		t.Fatal(err)
	}
	return int(n)
}

func (h *harness) Open(t *testing.T) store.Engine {
	t.Helper()
	o := options(h.mem, h.fail)
	o.MaxRuns = h.maxRuns
	s, err := sqlite.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	h.open = s
	return s
}

// Beside is a second handle on the engine that is open: one process owns the database, and
// what the handles have apart is what each has read of the replay protection. Their locks
// are the engine's, in memory, where those of another engine are rows.
func (h *harness) Beside(*testing.T) store.Engine { return h.open.Beside() }

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness { return newHarness(1) })
}

func TestInterleaved(t *testing.T) {
	storetest.Interleave(t, 12, func(*testing.T) storetest.Harness { return newHarness(1) })
}

// TestConformanceFewBuckets keeps hardly a bucket open, so that each use opens its runs
// anew.
func TestConformanceFewBuckets(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		h := newHarness(2)
		h.maxRuns = 1
		return h
	})
}

// TestStatements: every statement of the engine fits its schema, those too that no other
// test comes by.
func TestStatements(t *testing.T) {
	s := newHarness(1).Open(t).(*sqlite.Store)
	defer s.Close()
	if err := s.Prepare(t.Context()); err != nil {
		t.Error(err)
	}
}
