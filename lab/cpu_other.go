//go:build !unix

package lab

import "time"

var began = time.Now()

// processorTime is the time by the clock, for want of the processor's.
func processorTime() time.Duration { return time.Since(began) }
