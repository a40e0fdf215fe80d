package disk_test

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// Every byte that the file system below took is counted for the name under which the file
// was opened, also those of a write that failed half-way, and none that it did not take.
func TestCounted(t *testing.T) {
	mem := disktest.NewMem(1)
	written := map[string]*atomic.Uint64{"log": {}, "run": {}}
	fsys := disk.Counted(mem, func(name string) *atomic.Uint64 { return written[path.Ext(name)[1:]] })
	write := func(open func(string) (disk.File, error), name string, at ...int64) {
		t.Helper()
		f, err := open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, off := range at {
			if _, err := f.WriteAt(make([]byte, 100), off); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.Write(make([]byte, 7)); err != nil {
			t.Fatal(err)
		}
	}
	write(fsys.Create, "a.log", 0, 50)
	write(fsys.OpenAppend, "a.log")
	write(fsys.OpenWrite, "b.run", 1000)
	if n, m := written["log"].Load(), written["run"].Load(); n != 214 || m != 107 {
		t.Errorf("%d bytes of the log, %d of the run; want 214, 107", n, m)
	}
	f, err := fsys.Open("a.log")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write([]byte("x")); err == nil || written["log"].Load() != 214 {
		t.Errorf("a file opened for reading: %v, %d bytes", err, written["log"].Load())
	}
	mem.SetSize(mem.Used() + 3)
	if f, err = fsys.OpenAppend("a.log"); err != nil {
		t.Fatal(err)
	}
	n, err := f.Write(make([]byte, 100))
	if err == nil || n != 3 || written["log"].Load() != 217 {
		t.Errorf("on a full disk: %d bytes, %v; counted %d", n, err, written["log"].Load()-214)
	}
	mem.SetSize(1 << 20)
	free, known := disk.Free(mem)
	if got, ok := disk.Free(fsys); !ok || !known || got != free {
		t.Errorf("room of %d, %v; below it is %d, %v", got, ok, free, known)
	}
}

// What a file system knows of owners is known of it when it is counted, too.
func TestCountedPrivate(t *testing.T) {
	dir := t.TempDir()
	osfs, err := disk.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer osfs.Close()
	for name, mode := range map[string]os.FileMode{"own": 0o600, "open": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	fsys := disk.Counted(osfs, func(string) *atomic.Uint64 { return new(atomic.Uint64) })
	refused := new(disk.ModeError)
	if err := disk.CheckPrivate(fsys, "open"); !errors.As(err, &refused) {
		t.Errorf("a file that all may read: %v", err)
	}
	if err := disk.CheckPrivate(fsys, "own"); err != nil {
		t.Error(err)
	}
}
