//go:build unix

package lab

import (
	"syscall"
	"time"
)

// processorTime is what this process has computed so far, all its threads together.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic("lab: internal error: getrusage: " + err.Error())
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
