//go:build !linux

package disk

import (
	"os"
	"runtime"
)

func syncData(f *os.File) error { return f.Sync() }

// syncDirectory does nothing on Windows, where a directory cannot be flushed and NTFS
// journals names in order.
func syncDirectory(d *os.File) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	return d.Sync()
}
