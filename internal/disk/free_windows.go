package disk

import (
	"errors"
	"fmt"
	"math"
	"syscall"

	"golang.org/x/sys/windows"
)

// Free implements sized.
func (o *OSFS) Free() (int64, error) {
	name, err := windows.UTF16PtrFromString(o.root.Name())
	if err != nil {
		return 0, fmt.Errorf("disk: free space: %w", err)
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(name, &free, nil, nil); err != nil {
		return 0, fmt.Errorf("disk: free space: %w", err)
	}
	return int64(min(free, math.MaxInt64/2)), nil
}

func isFull(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) || errors.Is(err, syscall.ENOSPC)
}
