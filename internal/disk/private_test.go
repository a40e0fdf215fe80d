package disk_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/disk/disktest"
)

// TestCheckPrivate: a file that anybody but its owner may touch is refused, with the
// command that mends it; also through a directory of another file system.
func TestCheckPrivate(t *testing.T) {
	dir := t.TempDir()
	fsys, err := disk.OS(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.Close()
	if err := disk.MakeDirs(fsys, "a"); err != nil {
		t.Fatal(err)
	}
	if err := disk.WriteFile(fsys, "a/f", []byte("secret")); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "a", "f")
	for mode, wide := range map[fs.FileMode]bool{0o600: false, 0o400: false, 0o640: true, 0o604: true, 0o620: true, 0o601: true} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		for _, x := range []struct {
			fsys disk.FS
			name string
		}{{fsys, "a/f"}, {disk.Sub(fsys, "a"), "f"}} {
			err := disk.CheckPrivate(x.fsys, x.name)
			var refused *disk.ModeError
			if errors.As(err, &refused) != wide || err != nil && !strings.Contains(err.Error(), "chmod 600 "+path) {
				t.Errorf("mode %o: %v", mode, err)
			}
		}
	}
	for _, name := range []string{"none", "../a/f"} {
		if err := disk.CheckPrivate(fsys, name); err == nil || errors.As(err, new(*disk.ModeError)) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := disk.CheckPrivate(disktest.NewMem(1), "f"); err != nil {
		t.Errorf("no owners: %v", err)
	}
}
