package recipe

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/starling-agg/starling/internal/binomial"
	"github.com/starling-agg/starling/internal/outward"
)

// This file collects the sum of a [Cloak] in independent batches: the parts of a round.

func (z Cloak) parted() bool { return z.Parts > 1 }

// least is how many of those counted on are in one batch, but for a probability of half of
// delta: the device that is protected, and of the others those who draw the same batch
// (docs/proofs/cloak.md, theorem 6).
func (z Cloak) least() uint64 {
	if !z.parted() {
		return z.Honest
	}
	if z.Honest < 2 || z.Honest > binomial.MaxCount || !(z.Delta.FloatDown() > 0) {
		return 0
	}
	return 1 + binomial.Fewest(z.Honest-1, outward.Down(1/float64(z.Parts)), z.Delta.FloatDown()/2)
}

func (z Cloak) validateParts(v *validator, r *Recipe) {
	if z.Kind != ModernCloak {
		v.add("randomizer.parts", "are for %v alone", ModernCloak)
	}
	if r.TimePrecision > 0 && r.RoundUnits()*uint64(r.TimePrecision)%uint64(z.Parts) != 0 {
		v.add("randomizer.parts", "do not divide a round of %d seconds", r.RoundUnits()*uint64(r.TimePrecision))
	}
}

// Parts is how many independent batches a round is collected in, 1 for one.
func (r *Recipe) Parts() uint64 {
	if z, ok := r.Randomizer.(Cloak); ok && z.parted() {
		return uint64(z.Parts)
	}
	return 1
}

// PartRounds are the rounds of the recipe's [Recipe.Shuffle], from one up to another, that a
// round of the recipe is collected in. Where there are several a device draws one of them,
// uniformly and in secret; they begin when the recipe's round is over, so that all are open
// to each device that answers in it.
func (r *Recipe) PartRounds(round uint64) (from, to uint64) {
	parts := r.Parts()
	if parts == 1 {
		return round, round + 1
	}
	return (round + 1) * parts, (round + 2) * parts
}

// A Part is what is known of one of the batches of a round.
type Part struct {
	// Number is which, from 0.
	Number int `json:"number"`
	// Contributions that were counted; 0 where nobody counted them.
	Contributions uint64 `json:"contributions"`
	// Why it is left out.
	Why LeftOut `json:"why,omitempty"`

	tally *Tally
}

// LeftOut is why a [Part] is left out; a closed set.
type LeftOut string

// The reasons.
const (
	// LeftMissing, LeftUnusable: its outcome is [MessagesMissing], [MessagesUnusable].
	LeftMissing  LeftOut = LeftOut(MessagesMissing)
	LeftUnusable LeftOut = LeftOut(MessagesUnusable)
	// LeftApart: its sums differ from those of the others by more than chance and noise do.
	LeftApart LeftOut = "apart"
	// LeftNone: there is no result of it, as where fewer than the least batch drew it.
	LeftNone LeftOut = "none"
)

// PartOf is a batch with its outcome.
func PartOf(number int, contributions uint64, o Outcome) Part {
	p := Part{Number: number, Contributions: contributions, Why: LeftOut(o.Problem), tally: o.Tally}
	return p
}

// A Joined is what the batches of a round say together.
type Joined struct {
	Tally
	// All is how many contributions were counted, of whatever batch; Reports those of the
	// batches that are not left out.
	All uint64
	// Left are the batches that are left out.
	Left []Part
}

// alarm is the probability that a batch is left out though all devices follow the recipe.
const alarm = 1e-6

// Join adds up the batches of a round. It leaves out those without a tally, and those of
// which a mean is further from the median of all batches' than the means of random parts
// of the same answers are, with their noise, by Hoeffding's inequality for a part drawn
// without replacement and Chernoff's for the noise (docs/proofs/cloak.md, theorem 7). It fails
// with *[MessagesError] unless more than half of the batches are left.
func (r *Recipe) Join(parts []Part) (*Joined, error) {
	z, ok := r.Randomizer.(Cloak)
	if !ok || !z.parted() || len(parts) != int(z.Parts) {
		return nil, fmt.Errorf("recipe: %d batches of a round that is collected in %d", len(parts), r.Parts())
	}
	j, parts := new(Joined), slices.Clone(parts)
	entries, most := r.Query.Aggregates(), 0.0
	reach := make([]float64, len(parts)) // how far the mean of a batch is from that of all
	each := alarm / float64(2*len(parts)*entries)
	one := r.Blurred(1)
	for i, p := range parts {
		j.All += p.Contributions
		if t := p.tally; t != nil {
			n := float64(t.Reports)
			noise := one
			noise.Draws *= n
			reach[i] = r.Query.Largest()*math.Sqrt(math.Log(2/each)/(2*n)) + noise.within(each)/n
			most = max(most, reach[i])
		}
	}
	for e := range entries {
		var means []float64
		for _, p := range parts {
			if p.tally != nil {
				means = append(means, float64(p.tally.Sums[e])/float64(p.tally.Reports))
			}
		}
		if len(means) == 0 {
			break
		}
		slices.SortFunc(means, cmp.Compare[float64])
		median := (means[len(means)/2] + means[(len(means)-1)/2]) / 2
		for i, p := range parts {
			if t := p.tally; t != nil && math.Abs(float64(t.Sums[e])/float64(t.Reports)-median) > reach[i]+most {
				parts[i].Why = LeftApart
			}
		}
	}
	j.Sums = make([]int64, entries)
	for _, p := range parts {
		if p.Why != "" {
			p.tally = nil
			j.Left = append(j.Left, p)
			continue
		}
		j.Reports, j.Rejected = j.Reports+p.tally.Reports, j.Rejected+p.tally.Rejected
		for e, x := range p.tally.Sums {
			j.Sums[e] += x
		}
	}
	if 2*len(j.Left) >= len(parts) {
		return nil, &MessagesError{j.All * uint64(max(1, z.Messages)), fmt.Sprintf("leave %d of %d batches of the round that can be used: fewer than more than half",
			len(parts)-len(j.Left), len(parts))}
	}
	return j, nil
}
