package release

import "fmt"

// A Schedule is a protocol of random check-ins (Balle, Kairouz, McMahan, Thakkar and
// Thakurta, "Privacy Amplification via Random Check-Ins", 2020). Slots are those of a fixed
// or averaged run, or the length of a client's sliding window.
type Schedule uint8

const (
	// FixedWindow: a client checks in, with some probability, at a uniform one of the
	// slots; each slot uses one of its clients, or a dummy update (algorithm 1).
	FixedWindow Schedule = iota + 1
	// AveragedWindow: every client checks in at a uniform slot, and each slot uses all of
	// its clients (algorithm 2).
	AveragedWindow
	// SlidingWindow: client j checks in, with some probability, at a uniform one of the
	// slots from j on; each slot uses one of its clients, or a dummy update (section
	// 4.2).
	SlidingWindow
)

func (s Schedule) String() string {
	switch s {
	case FixedWindow:
		return "fixed"
	case AveragedWindow:
		return "averaged"
	case SlidingWindow:
		return "sliding"
	}
	return fmt.Sprintf("Schedule(%d)", uint8(s))
}

// ParseSchedule reads fixed, averaged or sliding.
func ParseSchedule(s string) (Schedule, error) {
	for v := FixedWindow; v <= SlidingWindow; v++ {
		if s == v.String() {
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w: schedule %q, want fixed, averaged or sliding", ErrParameter, s)
}
