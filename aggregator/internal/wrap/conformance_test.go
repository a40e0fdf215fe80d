package wrap_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/aggregator/internal/wrap/wraptest"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// TestConformance: files keep the contract, each bit of a box counts, and a directory
// without a key wraps nothing.
func TestConformance(t *testing.T) {
	fail := new(disk.Failpoints)
	f, err := wrap.OpenFiles(disktest.NewMem(1), "wrapping", fail)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Wrap(t.Context(), []byte("s"), nil); !errors.Is(err, wrap.ErrNoKey) {
		t.Errorf("wrapped with nothing: %v", err)
	}
	old, err := f.Add(time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	wraptest.Run(t, f, 8*(32+28), false)
	if _, err := f.Add(time.Unix(0, 0)); err != nil {
		t.Fatal(err)
	}
	if err := f.End(old); err != nil {
		t.Fatal(err)
	}
	if seen := fail.Seen(); !slices.Equal(seen, wrap.FailpointNames()) {
		t.Errorf("passed %q, want %q", seen, wrap.FailpointNames())
	}
}
