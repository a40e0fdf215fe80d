package orders

import (
	"context"
	"errors"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// TestEnterOfOneWhoLeaves: an order whose sender goes before it is on the disk was not
// answered, and is entered when it comes again, so that a start counts it too.
func TestEnterOfOneWhoLeaves(t *testing.T) {
	fsys := disktest.NewMem(1)
	open := func() *Registers { return NewRegisters(fsys, ".test", nil) }
	x := open()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range byte(5) {
		if _, entered, err := x.Enter(gone, 7, [32]byte{i}, 5); entered || !errors.Is(err, context.Canceled) {
			t.Errorf("%d, gone: %v, %v", i, entered, err)
		}
		if repeated, entered, err := x.Enter(t.Context(), 7, [32]byte{i}, 5); repeated || !entered || err != nil {
			t.Errorf("%d: %v, %v, %v", i, repeated, entered, err)
		}
	}
	if repeated, entered, err := x.Enter(t.Context(), 7, [32]byte{9}, 5); repeated || entered || err != nil {
		t.Errorf("above the cap: %v, %v, %v", repeated, entered, err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
	x = open()
	if n, pending, err := x.Count(7); n != 5 || pending != 0 || err != nil {
		t.Errorf("after a start: %d, %d, %v", n, pending, err)
	}
	if err := x.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEnterUnknown: of one that may be on the disk nothing is answered until a start has
// read what there is, and it takes its place meanwhile.
func TestEnterUnknown(t *testing.T) {
	fsys := disktest.NewMem(1)
	x := NewRegisters(fsys, ".test", nil)
	if _, entered, err := x.Enter(t.Context(), 7, [32]byte{1}, 2); !entered || err != nil {
		t.Fatal(entered, err)
	}
	fsys.Inject(func(op disktest.Op, _ string) error {
		if op == disktest.OpSync {
			return errors.New("the disk fails")
		}
		return nil
	})
	if _, entered, err := x.Enter(t.Context(), 7, [32]byte{2}, 2); entered || !errors.Is(err, disk.ErrStateUnknown) {
		t.Fatal(entered, err)
	}
	fsys.Inject(nil)
	for _, name := range [][32]byte{{2}, {3}} {
		if repeated, entered, _ := x.Enter(t.Context(), 7, name, 2); repeated || entered {
			t.Errorf("%d is answered: %v, %v", name[0], repeated, entered)
		}
	}
	if n, pending, err := x.Count(7); n != 1 || pending != 1 || err != nil {
		t.Errorf("%d, %d, %v", n, pending, err)
	}
	_ = x.Close()
}
