//go:build !linux && !darwin && !windows

package disk

import (
	"errors"
	"syscall"
)

func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) }
