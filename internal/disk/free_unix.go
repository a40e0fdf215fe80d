//go:build linux || darwin

package disk

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Free implements sized: what a process that is not the superuser's may write.
func (o *OSFS) Free() (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(o.root.Name(), &s); err != nil {
		return 0, fmt.Errorf("disk: free space: %w", err)
	}
	free := float64(s.Bavail) * float64(s.Bsize)
	return int64(min(free, math.MaxInt64/2)), nil
}

func isFull(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }
