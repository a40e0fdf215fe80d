//go:build unix

package main

import (
	"os"
	"runtime"
	"syscall"
)

// peakRSS is the largest resident set of a process that has ended, in bytes.
func peakRSS(s *os.ProcessState) int64 {
	usage, ok := s.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(usage.Maxrss)
	}
	return int64(usage.Maxrss) * 1024 // kilobytes elsewhere
}
