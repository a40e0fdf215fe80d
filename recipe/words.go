package recipe

import (
	"fmt"
	"strings"

	"github.com/starling-agg/starling/dp/accountant"
)

// conditions are what the guarantee counts on and only the author of the recipe says: numbers of devices, and evidence of a
// population. No party of ours counts the one or looks up the other.
func (r *Recipe) conditions() []string {
	if !r.amplified() {
		return nil
	}
	list := []string{fmt.Sprintf("at least %d devices that follow the recipe decide in each round, with answers or without", r.Dummies.Senders)}
	if r.Randomizer != (NoRandomizer{}) {
		list = append(list, fmt.Sprintf("no more than %d devices decide in a round, so that %d reports hold %d answers", r.Rate.Devices,
			r.Threshold(), r.MinBatch))
	}
	if t := r.Targeting; t != nil {
		list = append(list, fmt.Sprintf("at least %d devices have the attributes that it asks for, as entry %x of a log is to show",
			t.Certificate.LowerBound, t.Certificate.Entry[:4]))
	}
	return list
}

// Summary is the guarantee in one line, what counts on nobody's word first.
func (g *Guarantee) Summary() string {
	if len(g.Conditions) == 0 {
		return g.Loss.String()
	}
	return fmt.Sprintf("%s, for %v neighbours, even where it is known who sent what; %s, for %v neighbours, holds if %s",
		g.Unconditional, g.UnconditionalNeighbours, g.Loss, g.Neighbours, strings.Join(g.Conditions, ", and "))
}

// Describe writes the losses for people, line by line: first what counts on nobody's word, and then, where the recipe's coins
// give less, that loss with all it holds on. Over says how often, as "1 batch".
func (g *Guarantee) Describe(line func(label, format string, args ...any), over string) {
	if len(g.Conditions) == 0 {
		line("Guarantee", "%s, over %s, for %v neighbours", g.Loss, over, g.Neighbours)
		line("", "%s", inWords(g.Loss, g.Neighbours))
	} else {
		line("Guarantee", "%s, over %s, for %v neighbours, even where it is known who sent what", g.Unconditional, over, g.UnconditionalNeighbours)
		if g.Unconditional.Finite() {
			line("", "%s", inWords(g.Unconditional, g.UnconditionalNeighbours))
		}
		line("", "%s, over %s, for %v neighbours, holds if what the author says is true, which nobody here has counted or looked up:",
			g.Loss, over, g.Neighbours)
		for _, c := range g.Conditions {
			line("", "- %s", c)
		}
		line("", "%s", inWords(g.Loss, g.Neighbours))
	}
	line("Computed by", "%s", g.Theorem)
}

// inWords says what a loss means to one person.
func inWords(l Loss, n accountant.Neighbours) string {
	against := "with any other answer of theirs"
	if n != accountant.ReplaceOne {
		against = "without an answer of theirs, or the other way round"
	}
	return fmt.Sprintf("In words: whatever one person answers, any result is at most %s times as likely as %s, except with probability %s.",
		times(l.Epsilon), against, Above(l.Delta))
}
