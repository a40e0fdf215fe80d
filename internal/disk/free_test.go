package disk_test

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// TestFree: file systems that know their room say it, and others that they do not.
func TestFree(t *testing.T) {
	osfs, err := disk.OS(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer osfs.Close()
	if free, known := disk.Free(osfs); !known || free <= 0 {
		t.Errorf("the system's disk has room for %d, known %v", free, known)
	}
	mem := disktest.NewMem(1)
	if err := disk.MakeDirs(mem, "a"); err != nil {
		t.Fatal(err)
	}
	mem.SetSize(1000)
	if err := disk.WriteFile(mem, "a/b", make([]byte, 400)); err != nil {
		t.Fatal(err)
	}
	for name, fsys := range map[string]disk.FS{"mem": mem, "sub": disk.Sub(mem, "a")} {
		if free, known := disk.Free(fsys); !known || free != 600 {
			t.Errorf("%s has room for %d, known %v; want 600", name, free, known)
		}
	}
	if _, known := disk.Free(disk.Sub(struct{ disk.FS }{mem}, "a")); known {
		t.Error("a file system that cannot know knows")
	}
	err = disk.WriteFile(mem, "a/c", make([]byte, 601))
	if !disk.IsFull(err) || mem.Used() != 400 {
		t.Errorf("a file too large: %v, %d bytes are used", err, mem.Used())
	}
	if err := disk.WriteFile(mem, "a/c", make([]byte, 600)); err != nil {
		t.Error(err)
	}
	for err, want := range map[error]bool{fmt.Errorf("x: %w", syscall.ENOSPC): true, fs.ErrNotExist: false, errors.New("full"): false, nil: false} {
		if disk.IsFull(err) != want {
			t.Errorf("%v: want %v", err, want)
		}
	}
}
