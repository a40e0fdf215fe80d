package recipe

import (
	"fmt"
	"strings"

	"github.com/starling-agg/starling/dp/release"
)

// Conditions are what the guarantee counts on and only the author of the recipe says:
// numbers of devices, of honest ones among them, and evidence of a population. No party of
// ours counts the one or looks up the other, but that devices with credentials are counted
// ([Recipe.Counted]). A recipe that is not valid may lack some.
func (r *Recipe) Conditions() []string {
	list := r.said()
	if ok, _ := r.Counted(); ok {
		return list[1:]
	}
	return list
}

// said are the conditions of a recipe whose devices nobody counts, their number first.
func (r *Recipe) said() []string {
	var reports []string
	if r.Randomizer != nil {
		reports = r.Randomizer.conditions(r)
	}
	if !r.Amplified() || r.Dummies == nil || r.Rate == nil {
		return reports
	}
	when := "decide in each round"
	s, _ := r.Slotted()
	if s.Window > 0 {
		when = "decide in the slots before each that a device may draw, so that it is in their windows"
	}
	list := []string{fmt.Sprintf("at least %d devices that follow the recipe %s, with answers or without", r.Dummies.Senders, when)}
	if s.Window > 0 && len(reports) > 0 {
		list = append(list, fmt.Sprintf("no more than twice its even share of the devices draw any of the %d slots", s.Count))
	}
	if len(reports) > 0 {
		list = append(list, fmt.Sprintf("no more than %d devices decide in a round, so that %d reports hold %d answers", r.Rate.Devices,
			r.Threshold(), r.MinBatch))
		list = append(list, reports...)
	}
	if t := r.Targeting; t != nil && r.Log == nil { // else the device looks it up
		list = append(list, fmt.Sprintf("at least %d devices have the attributes that it asks for, as entry %x of a log is to show",
			t.Certificate.LowerBound, t.Certificate.Entry[:4]))
	}
	return list
}

// Assumptions are those of the guarantee that counts on so many honest servers.
func (r *Recipe) Assumptions(honest int, rounds uint32) []string {
	var list []string
	if r.Amplified() {
		list = append(list,
			fmt.Sprintf("one device decides in at most %s, once in each; each round is released alone, after its end, which leader "+
				"and helper each see to", count(uint64(rounds), "round", "rounds")),
			"the relay keeps from the gateway and the servers who sent what and when, and nobody watches devices' networks")
		if name := r.PrivacyUnit().Name; name != UnitDevice {
			list[0] += fmt.Sprintf(", and no two devices answer for one %s", name)
		}
		if r.Cover != nil {
			list[len(list)-1] = "the relay keeps from the gateway and the servers who sent what and when"
		}
	} else {
		seen := "it need not be hidden that a person takes part, only what they answer"
		if r.Shares() > 0 {
			seen = "it need not be hidden that a site takes part, which reports whoever of its people is there, and zeros for none"
		}
		list = append(list, seen, r.once(rounds))
	}
	if n := r.Shares(); n > 0 {
		list = append(list, fmt.Sprintf("a %s trusts its own site, and no other, to cut what it adds to a %s of the bound: the servers verify the sum alone", r.PrivacyUnit().Name, part(n)))
	}
	if ok, _ := r.Counted(); ok {
		list = append(list, r.counts())
	}
	if t := r.Targeting; t != nil && r.Log != nil {
		list = append(list, fmt.Sprintf("at least %d devices have the attributes that it asks for, as leader and helper have both logged", t.Certificate.LowerBound))
	}
	return append(list, r.on().assumptions(r, honest)...)
}

// part is the word for one of n equal parts.
func part(n int) string {
	switch {
	case n == 2:
		return "half"
	case n%100 != 11 && n%10 == 1:
		return fmt.Sprintf("%dst part", n)
	case n%100 != 12 && n%10 == 2:
		return fmt.Sprintf("%dnd part", n)
	case n%100 != 13 && n%10 == 3:
		return fmt.Sprintf("%drd part", n)
	}
	return fmt.Sprintf("%dth part", n)
}

// Summary is the guarantee in one line, what counts on nobody's word first.
func (g *Guarantee) Summary() string {
	first := fmt.Sprintf("%s, for one %s", g.Unconditional, g.Unit)
	if len(g.Conditions) > 0 {
		first += fmt.Sprintf(", even where it is known who sent what; %s, for one %s, holds if %s", g.Loss, g.Unit, strings.Join(g.Conditions, ", and "))
	}
	if g.PerPerson > 1 {
		first += fmt.Sprintf("; for a person with at most %d of them %s", g.PerPerson, g.Person)
	}
	return first
}

// Describe writes the losses for people, line by line: first what counts on nobody's
// word, for one unit and for a person with several, and then, where the recipe's coins
// give less, that loss with all it holds on. Over says how often, as "1 round".
func (g *Guarantee) Describe(line func(label, format string, args ...any), over string) {
	known := ""
	if len(g.Conditions) > 0 {
		known = ", even where it is known who sent what"
	}
	line("Guarantee", "%s, over %s, for one %s (%v neighbours)%s", g.Unconditional, over, g.Unit, g.UnconditionalNeighbours, known)
	if g.Unconditional.Finite() {
		line("", "%s", g.inWords(g.Unconditional, g.UnconditionalNeighbours))
	}
	if g.PerPerson > 1 {
		line("", "%s, for a person with at most %d of them (group privacy)%s", g.Person, g.PerPerson, known)
	}
	if len(g.Conditions) > 0 {
		line("", "%s, over %s, for one %s (%v neighbours), holds if what the author says is true, which nobody here has counted or looked up:",
			g.Loss, over, g.Unit, g.Neighbours)
		for _, c := range g.Conditions {
			line("", "- %s", c)
		}
		line("", "%s", g.inWords(g.Loss, g.Neighbours))
	}
	line("Computed by", "%s", g.Theorem)
}

// inWords says what a loss means to one unit.
func (g *Guarantee) inWords(l Loss, n release.Neighbours) string {
	against := "with any other answer for it"
	if n != release.ReplaceOne {
		against = "without an answer for it, or the other way round"
	}
	words := fmt.Sprintf("In words: whatever is answered for one %s, any result is at most %s times as likely as %s", g.Unit, times(l.Epsilon), against)
	if l.Delta == 0 {
		return words + ", always."
	}
	return words + fmt.Sprintf(", except with probability %s.", Above(l.Delta))
}
