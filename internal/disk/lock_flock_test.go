//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package disk_test

import (
	"errors"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
)

func TestLockKeepsOthersOut(t *testing.T) {
	dir := t.TempDir()
	var opened []*disk.OSFS
	for range 2 {
		fsys, err := disk.OS(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer fsys.Close()
		opened = append(opened, fsys)
	}
	if err := opened[0].Lock(); err != nil {
		t.Fatal(err)
	}
	if err := opened[1].Lock(); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("second lock: %v, want ErrLocked", err)
	}
	// A cleaner that empties the directory does not take the lock away.
	entries, err := opened[0].ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := opened[0].Remove(e.Name); err != nil {
			t.Fatal(err)
		}
	}
	if err := opened[1].Lock(); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("second lock in an empty directory: %v, want ErrLocked", err)
	}
	if err := opened[0].Close(); err != nil {
		t.Fatal(err)
	}
	if err := opened[1].Lock(); err != nil {
		t.Errorf("after the first let go: %v", err)
	}
}
