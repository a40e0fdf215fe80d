package disk

import "time"

// Clock is the time as the code sees it, so that a simulation may bring its own.
type Clock interface {
	Now() time.Time
	// NewTimer returns a timer that fires once, d from now.
	NewTimer(d time.Duration) Timer
}

// Timer fires once on C. Stop releases it.
type Timer interface {
	C() <-chan time.Time
	Stop() bool
}

// SystemClock is the machine's clock; inside a testing/synctest bubble it is the bubble's.
var SystemClock Clock = systemClock{}

type systemClock struct{}

func (systemClock) Now() time.Time                 { return time.Now() }
func (systemClock) NewTimer(d time.Duration) Timer { return systemTimer{time.NewTimer(d)} }

type systemTimer struct{ *time.Timer }

func (t systemTimer) C() <-chan time.Time { return t.Timer.C }
