package participate

import (
	"crypto/rand"
	"fmt"
	"math/big"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
)

// A Schedule says at which slot a device takes part, drawn in secret.
type Schedule interface {
	// Draw returns the slot, counted from 0, or false if the device takes part in none.
	// Arrival is the slot in which the device starts; schedules that share one window for
	// all ignore it.
	Draw(arrival uint64) (slot uint64, ok bool)
}

// DonationSlots is the schedule of a [recipe.DonationTime]: slot i with probability
// (1-1/m)^i/m, or none (paper 000, appendix A). All of its coins are tossed, whichever
// comes up first.
type DonationSlots struct {
	Slots uint32 // m
	coin  coin
}

// Draw implements [Schedule].
func (s DonationSlots) Draw(uint64) (slot uint64, ok bool) {
	toss := s.coin.or()
	p := big.NewRat(1, int64(s.Slots))
	for i := uint64(s.Slots); i > 0; i-- {
		if toss(p) {
			slot, ok = i-1, true // the lowest is written last
		}
	}
	return slot, ok
}

// schedule is by what a device draws a slot of a round.
func (d *Device) schedule(s recipe.Slots) Schedule {
	always := recipe.Rational{Num: 1, Den: 1}
	switch {
	case s.Geometric:
		return DonationSlots{Slots: s.Count, coin: d.coin}
	case s.Window > 0:
		return CheckIns{Window: release.SlidingWindow, Slots: uint64(s.Window), P0: always, coin: d.coin}
	}
	return CheckIns{Window: release.FixedWindow, Slots: uint64(s.Count), P0: always, coin: d.coin}
}

// maxSlots is how many slots an accountant answers for.
const maxSlots = 1_000_000_000_000

// CheckIns is a random check-in (paper 004): with probability P0, a uniform one of Slots
// slots, counted from the start (fixed and averaged windows) or from the device's arrival
// (sliding windows).
type CheckIns struct {
	Window release.Schedule
	Slots  uint64
	// P0 is 1/1 for averaged windows.
	P0   recipe.Rational
	coin coin
}

// Draw implements [Schedule].
func (s CheckIns) Draw(arrival uint64) (slot uint64, ok bool) {
	n, err := rand.Int(rand.Reader, new(big.Int).SetUint64(s.Slots))
	if err != nil {
		panic("participate: internal error: crypto/rand failed: " + err.Error())
	}
	slot, ok = n.Uint64(), s.coin.or()(s.P0.Rat())
	if s.Window == release.SlidingWindow {
		slot += arrival
	}
	return slot, ok
}

// Validate returns an error if a field is out of range.
func (s CheckIns) Validate() error {
	p0 := s.P0.Float()
	switch {
	case s.Window < release.FixedWindow || s.Window > release.SlidingWindow:
		return fmt.Errorf("participate: window is %d, want %d to %d", s.Window, release.FixedWindow, release.SlidingWindow)
	case s.Slots < 1 || s.Slots > maxSlots:
		return fmt.Errorf("participate: %d slots, want 1 to %d", s.Slots, maxSlots)
	case !(p0 > 0 && p0 <= 1):
		return fmt.Errorf("participate: a probability of %s, want one above 0 and at most 1", s.P0)
	case s.Window == release.AveragedWindow && p0 != 1:
		return fmt.Errorf("participate: a probability of %s, want 1 for an averaged window", s.P0)
	}
	return nil
}

func (c coin) or() coin {
	if c == nil {
		return secretly
	}
	return c
}
