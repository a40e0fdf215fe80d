package recipe

import "math"

// Slots are the batches of a round in which each device waits for a random one of them.
type Slots struct {
	// Count of a round, 2 to MaxSlots; 1 where the round is one batch.
	Count uint32
	// Length of each in units of the recipe's TimePrecision.
	Length uint32
	// Window is from how many a device draws that decides while the round runs: those that
	// begin next. 0 where all devices draw, before the round begins, from all of it.
	Window uint32
	// Geometric: slot i is drawn with probability (1-1/Count)^i / Count, and none with the
	// rest. Else each that may be drawn has the same probability.
	Geometric bool
}

// MaxSlots bounds the slots of a round.
const MaxSlots = 4096

// maxSlotLength is the longest slot, in units.
const maxSlotLength = 1 << 20

// Units are those of all slots.
func (s Slots) Units() uint64 { return uint64(s.Count) * uint64(s.Length) }

// validate is of the slots of a participation.
func (s Slots) validate(v *validator) {
	v.between("participation.slots", uint64(s.Count), 2, MaxSlots)
	v.between("participation.length", uint64(s.Length), 1, maxSlotLength)
}

// slotted is a participation whose devices wait for a slot.
type slotted interface{ slots() Slots }

// Slotted returns the slots of a round whose devices wait for one.
func (r *Recipe) Slotted() (Slots, bool) {
	p, ok := r.Participation.(slotted)
	if !ok {
		return Slots{Count: 1, Length: 1}, false
	}
	return p.slots(), true
}

// Slots is the number of slots of a round.
func (r *Recipe) Slots() uint32 {
	s, _ := r.Slotted()
	return s.Count
}

// slotWeights are bounds, over slots, of the probability with which a device draws one:
// most of any device, and least of those that the guarantee counts on; and the probability
// of drawing any.
func (r *Recipe) slotWeights() (most, least, any float64) {
	s, _ := r.Slotted()
	n := float64(s.Count)
	switch {
	case s.Count == 1:
		return 1, 1, 1
	case s.Window > 0:
		// Of all devices no more than twice the even share have a slot in their window.
		return min(1/float64(s.Window), 2/n), 1 / float64(s.Window), 1
	case !s.Geometric:
		return 1 / n, 1 / n, 1
	}
	log := math.Log1p(-1 / n)
	return 1 / n, math.Exp((n-1)*log) / n, -math.Expm1(n * log)
}
