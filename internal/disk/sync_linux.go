package disk

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// syncData uses fdatasync: it writes the data and whatever is needed to read it back, the
// length included, but not the times, which saves a journal commit when a file is
// overwritten in place.
func syncData(f *os.File) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var syncErr error
	err = conn.Control(func(fd uintptr) {
		for {
			syncErr = syscall.Fdatasync(int(fd))
			if !errors.Is(syncErr, syscall.EINTR) {
				return
			}
		}
	})
	if err != nil {
		return fmt.Errorf("%w: %w", os.ErrClosed, err) // all that Control fails for
	}
	return os.NewSyscallError("fdatasync", syncErr)
}

func syncDirectory(d *os.File) error { return d.Sync() }
