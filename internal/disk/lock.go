package disk

import (
	"errors"
	"fmt"
	"os"
)

// ErrLocked: another process has the directory.
var ErrLocked = errors.New("disk: directory is in use by another process")

// lockName is the file that is locked where a directory cannot be.
const lockName = "lock"

// Lock takes the directory for this process until Close or the process's end, and fails
// with [ErrLocked] where another has it. Two writers would remove each other's logs, so a
// service calls it before anything else. It is the directory itself that is locked, so
// nobody who removes files in it takes the lock away; where the file system cannot do
// that, as over some networks, it is a file in it. It works on Linux, macOS and the BSDs
// and does nothing elsewhere.
func (o *OSFS) Lock() error {
	f, err := o.root.Open(".")
	if err != nil {
		return fmt.Errorf("disk: lock: %w", err)
	}
	if err = lockFile(f); err != nil {
		f.Close()
		if errors.Is(err, ErrLocked) {
			return err
		}
		if f, err = o.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return fmt.Errorf("disk: lock: %w", err)
		}
		if err := lockFile(f); err != nil {
			f.Close()
			return err
		}
	}
	o.lock = f // kept open: closing it gives the lock up
	return nil
}
