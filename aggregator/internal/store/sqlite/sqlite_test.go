package sqlite_test

import (
	"context"
	"testing"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/sqlite"
	"github.com/starling-agg/starling/aggregator/internal/store/storetest"
	"github.com/starling-agg/starling/disk"
	"github.com/starling-agg/starling/disk/disktest"
)

// harness is a store on a simulated disk.
type harness struct {
	mem     *disktest.Mem
	fail    *disk.Failpoints
	maxRuns int // zero is the default
}

func newHarness(seed uint64) *harness {
	return &harness{mem: disktest.NewMem(seed), fail: new(disk.Failpoints)}
}

func (h *harness) FS() disk.FS                  { return h.mem }
func (h *harness) Failpoints() *disk.Failpoints { return h.fail }

func (h *harness) Open(t *testing.T) store.Store {
	t.Helper()
	s, err := sqlite.Open(context.Background(), sqlite.Options{FS: h.mem, Failpoints: h.fail, MaxRuns: h.maxRuns})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness { return newHarness(1) })
}

// TestConformanceFewBuckets keeps hardly a bucket open, so that each use opens its runs anew.
func TestConformanceFewBuckets(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		h := newHarness(2)
		h.maxRuns = 1
		return h
	})
}
