package recipe

import (
	"fmt"
	"math/big"
	"strings"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// CheckIn is a random check-in (paper 004): each device draws a uniform slot, and in it
// reports with probability Rate. All reports of a slot are added up. That nobody knows
// when a device came protects it beside the noise, as far as dummies hide the number of
// reports of each slot (docs/proofs/check-ins.md, theorem 5).
type CheckIn struct {
	// Schedule is of [release.FixedWindow]: the round is the window, and the sum of a slot
	// stands for the planned number of devices; [release.AveragedWindow]: the same, and it
	// stands for those who came; [release.SlidingWindow]: a device draws from the Window
	// slots that begin after it has decided, those after the round's end being lost.
	Schedule release.Schedule
	// Rate is p0, the probability of reporting in the slot, below 1: the others send
	// dummies.
	Rate Rational
	// Slots of a round is 2 to MaxSlots; each is a batch of its own.
	Slots uint32
	// Window is 2 to Slots for SlidingWindow, and else 0.
	Window uint32
	// Length of a slot in units of the recipe's TimePrecision, 1 or more.
	Length uint32
}

// Slotting is what is drawn of a [CheckIn]: a uniform one of Steps of the Slots of a round, in
// which an answer is reported at Rate.
type Slotting struct {
	Schedule     release.Schedule
	Rate         Rational
	Slots, Steps uint32
}

// SlottingOf is that of a participation whose devices check in; false of any other.
func SlottingOf(p Participation) (Slotting, bool) {
	c, ok := p.(CheckIn)
	if !ok {
		return Slotting{}, false
	}
	return Slotting{c.Schedule, c.Rate, c.Slots, c.steps()}, true
}

// A CheckInBound is what paper 004 states of check-ins by reports that are private by
// themselves, of one round and for replacing an answer, where nobody learns who came when.
// It is for comparison and no part of a guarantee: nothing in a recipe sees to its premises.
type CheckInBound struct {
	Epsilon0 float64 `json:"epsilon0"` // of a report by itself
	Loss     Loss    `json:"loss"`
	Theorem  string  `json:"theorem"` // 3.2, 4.1 or 4.3 of the paper
	// Averaged: it is about the mean of all reports of a slot, and else about one of them.
	Averaged bool `json:"averaged"`
}

func (b *CheckInBound) String() string {
	what := "of whose slots one report shows, where here all of a slot are added up"
	if b.Averaged {
		what = "of whose slots the mean of all reports shows"
	}
	amplified := ""
	if b.Loss.Epsilon >= b.Epsilon0 {
		amplified = ", which is no amplification"
	}
	return fmt.Sprintf("its theorem %s has %s, over 1 round (%v neighbours)%s: of reports of epsilon %s each, %s, for who does not learn who came when; "+
		"the guarantee does not count on it", b.Theorem, b.Loss, release.ReplaceOne, amplified, Above(b.Epsilon0), what)
}

// ParseCheckIn reads a [CheckIn], as in fixed:1/2:8:6 (rate, slots and length), averaged
// likewise, or sliding:1/2:24:8:6 (with the window after the slots).
func ParseCheckIn(s string) (Participation, error) {
	name, rest, _ := strings.Cut(s, ":")
	schedule, err := release.ParseSchedule(name)
	if err != nil {
		return nil, fmt.Errorf("%q is no check-in; want fixed:Q:M:L, averaged:Q:M:L or sliding:Q:M:W:L", s)
	}
	parts := 3
	if schedule == release.SlidingWindow {
		parts = 4
	}
	rates, n, err := colons(rest, parts, 1)
	if err != nil {
		return nil, err
	}
	if n[0] > MaxSlots || n[1] > maxSlotLength || n[len(n)-1] > maxSlotLength {
		return nil, fmt.Errorf("%s has too many or too long slots", s)
	}
	p := CheckIn{Schedule: schedule, Rate: rates[0], Slots: uint32(n[0]), Length: uint32(n[len(n)-1])}
	if schedule == release.SlidingWindow {
		p.Window = uint32(n[1])
	}
	return p, nil
}

func (p CheckIn) String() string {
	from := fmt.Sprintf("of %d slots", p.Slots)
	if p.Schedule == release.SlidingWindow {
		from = fmt.Sprintf("of the %d slots that begin next", p.Window)
	}
	text := fmt.Sprintf("each device checks in at a random one %s, and then decides by a secret coin; %s report", from, p.Rate)
	if p.Schedule == release.AveragedWindow {
		text += "; the sum of a slot stands for those who came"
	}
	return text
}

// Units are those of all slots.
func (p CheckIn) Units() uint64 { return p.slots().Units() }

func (p CheckIn) slots() Slots { return Slots{Count: p.Slots, Length: p.Length, Window: p.Window} }

func (p CheckIn) participation() uint8 {
	return tagCheckInFixed + uint8(p.Schedule) - uint8(release.FixedWindow)
}

func (p CheckIn) append(b *cryptobyte.Builder) {
	addRational(b, p.Rate)
	b.AddUint32(p.Slots)
	if p.Schedule == release.SlidingWindow {
		b.AddUint32(p.Window)
	}
	b.AddUint32(p.Length)
}

func readCheckIn(schedule release.Schedule) func(*decoder) Participation {
	return func(d *decoder) Participation {
		p := CheckIn{Schedule: schedule, Rate: d.rational("rate"), Slots: d.u32("slots")}
		if schedule == release.SlidingWindow {
			p.Window = d.u32("window")
		}
		p.Length = d.u32("length")
		return p
	}
}

func (p CheckIn) params() any {
	m := map[string]any{"rate": p.Rate.String(), "slots": p.Slots, "length": p.Length}
	if p.Schedule == release.SlidingWindow {
		m["window"] = p.Window
	}
	return m
}

func (p CheckIn) validate(v *validator, _ *Recipe) {
	v.chance("participation.rate", p.Rate, "below 1: who does not report is free to send a dummy")
	p.slots().validate(v)
	switch {
	case p.Schedule < release.FixedWindow || p.Schedule > release.SlidingWindow:
		v.add("participation.schedule", "is %d, want fixed, averaged or sliding", p.Schedule)
	case p.Schedule == release.SlidingWindow:
		v.between("participation.window", uint64(p.Window), 2, uint64(p.Slots))
	case p.Window != 0:
		v.add("participation.window", "is %d, and goes with sliding windows alone", p.Window)
	}
}

func (p CheckIn) rates() (least, most *big.Rat) { return p.Rate.Rat(), p.Rate.Rat() }
func (CheckIn) byAnswer() bool                  { return false }

// steps is from how many slots a device draws.
func (p CheckIn) steps() uint32 {
	if p.Schedule == release.SlidingWindow {
		return p.Window
	}
	return p.Slots
}

// checkIn returns the recipe's participation if devices check in.
func (r *Recipe) checkIn() (CheckIn, bool) {
	p, ok := r.Participation.(CheckIn)
	return p, ok
}

// A step is a number of slots in which a device is there with a probability of at most
// Rate, whatever the slots before have shown.
type step struct {
	rate  float64
	count uint64
}

// maxSteps is into how many a round's slots are grouped at most, so that a certificate
// stays short.
const maxSteps = 8

// samples are the rates of Poisson sampling to which a round of check-ins comes down, by
// theorem 5 of docs/proofs/check-ins.md: q/(m - q i) in slot i of m, where q = s/(1-(1-s)d)
// is what the coin s of reporting weighs beside having no dummy to send, of rate d. Slots
// in a row have the rate of the last of them.
func (p CheckIn) samples(s, d *big.Rat) []step {
	one := big.NewRat(1, 1)
	q := new(big.Rat).Sub(one, s)
	q.Sub(one, q.Mul(q, d))
	q.Quo(s, q)
	m := p.steps()
	groups := min(m, maxSteps)
	list := make([]step, groups)
	for g := range groups {
		first, next := uint64(m)*uint64(g)/uint64(groups), uint64(m)*uint64(g+1)/uint64(groups)
		at := new(big.Rat).SetInt64(int64(next - 1))
		at.Sub(new(big.Rat).SetInt64(int64(m)), at.Mul(at, q))
		list[g] = step{outward.Rat(at.Quo(q, at)), next - first}
	}
	return list
}
