package recipe

import (
	"fmt"
	"math/big"

	"golang.org/x/crypto/cryptobyte"
)

// DonationTime: each device waits for a random slot, and decides by a coin when it comes
// (paper 000, appendix A). Slot i of 0..Slots-1 has probability (1-1/Slots)^i / Slots;
// with the rest a device leaves out the whole round.
type DonationTime struct {
	// Rate is the probability of reporting in the slot, below 1.
	Rate Rational
	// Slots is 2 to MaxSlots. Each is a batch of its own.
	Slots uint32
	// Length of a slot in units of the recipe's TimePrecision, 1 or more.
	Length uint32
}

// ParseDonationTime reads rate, slots and length of a [DonationTime], as in 1/2:4:6.
func ParseDonationTime(s string) (Participation, error) {
	rates, n, err := colons(s, 3, 1)
	if err != nil {
		return nil, err
	}
	if n[0] > MaxSlots || n[1] > maxSlotLength {
		return nil, fmt.Errorf("%s has too many or too long slots", s)
	}
	return DonationTime{Rate: rates[0], Slots: uint32(n[0]), Length: uint32(n[1])}, nil
}

func (p DonationTime) String() string {
	return fmt.Sprintf("each device waits for a random one of %d slots, if it draws one, and then decides by a secret coin; %s report",
		p.Slots, p.Rate)
}

// Units are those of all slots.
func (p DonationTime) Units() uint64 { return p.slots().Units() }

func (p DonationTime) slots() Slots { return Slots{Count: p.Slots, Length: p.Length, Geometric: true} }

func (DonationTime) participation() uint8 { return tagDonationTime }

func (p DonationTime) append(b *cryptobyte.Builder) {
	addRational(b, p.Rate)
	b.AddUint32(p.Slots)
	b.AddUint32(p.Length)
}

func readDonationTime(d *decoder) Participation {
	return DonationTime{Rate: d.rational("rate"), Slots: d.u32("slots"), Length: d.u32("length")}
}

func (p DonationTime) params() any {
	return map[string]any{"rate": p.Rate.String(), "slots": p.Slots, "length": p.Length}
}

func (p DonationTime) validate(v *validator, _ *Recipe) {
	v.chance("participation.rate", p.Rate, "below 1")
	p.slots().validate(v)
}

func (p DonationTime) rates() (least, most *big.Rat) { return p.Rate.Rat(), p.Rate.Rat() }
func (DonationTime) byAnswer() bool                  { return false }
