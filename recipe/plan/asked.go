package plan

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/local"
	"github.com/starling-agg/starling/recipe"
)

const (
	// QA and RandomizedGroup: each device blurs the number and the group of sums by group;
	// nobody is trusted. For the paths shuffled and direct, where an empty Randomizer takes
	// the one with the smaller error.
	QA              Randomizer = "qa"
	RandomizedGroup Randomizer = "randomized-group"
)

// An Asked is what a scheme for sums by group costs a device, and how far off sums are, at
// the plan's loss of a report.
type Asked struct {
	Randomizer Randomizer `json:"randomizer"`
	// Bits of an answer, in a message of Bytes before it is sealed, which for QA has a
	// nonce too; numbers are rounded to one of Values.
	Bits   int    `json:"bits"`
	Bytes  int    `json:"bytes"`
	Values uint64 `json:"values"`
	// Alpha over the number of reports is the normalised mean square error of all sums, at
	// most: what theorem 1 of paper 002 is of question & answer, with what rounding and
	// sizes add.
	Alpha float64 `json:"alpha"`
	MSE   float64 `json:"normalized_mse"`
	Error Error   `json:"error"`
}

// asks says whether sums by group are asked for on a path without proofs.
func (g *Goal) asks() bool {
	_, ok := g.Query.(recipe.SumsByGroup)
	return ok && (g.Path == Shuffled || g.Path == Direct)
}

// blursGroups says whether devices blur numbers and groups.
func (g *Goal) blursGroups() bool { return g.Randomizer == QA || g.Randomizer == RandomizedGroup }

// asked is the randomizer that does so, at the loss of a report.
func (g *Goal) asked(r Randomizer, e recipe.Decimal) (recipe.GroupRandomizer, error) {
	asks := recipe.AskSizes
	if g.SumsAlone {
		asks = recipe.AskSums
	}
	var z recipe.LocalRandomizer = recipe.QA{Epsilon0: e, Asks: asks}
	if r == RandomizedGroup {
		z = recipe.RandomizedGroup{Epsilon0: e, Asks: asks}
	}
	fitted, _ := z.Fit(g.Query, 0)
	if b, ok := fitted.(recipe.GroupRandomizer); ok && b.Rounded() > 0 {
		return b, nil
	}
	return nil, wrong("%s has no answers of that loss for so many groups", r)
}

// numbers are what is asked for, as package local has it.
func (g *Goal) numbers() local.GroupNumbers {
	q, _ := g.Query.(recipe.SumsByGroup)
	return q.Numbers(!g.SumsAlone)
}

// blurred is the variance of the sum of a group over the number of reports of loss e each,
// at most; +Inf where there are none.
func (g *Goal) blurred(r Randomizer, e float64) float64 {
	scheme := local.ByQuestion
	if r == RandomizedGroup {
		scheme = local.ByRandomGroup
	}
	p, err := local.PlanNumbers(g.numbers(), scheme, e, 0)
	if err != nil || p.Levels == 0 {
		return math.Inf(1)
	}
	return p.Errors.Sum
}

// schemes are both of them at the plan's loss of a report, its own first; none where
// devices blur no groups.
func (p *Plan) schemes() []Asked {
	g := &p.Goal
	if !g.blursGroups() {
		return nil
	}
	q, _ := g.Query.(recipe.SumsByGroup)
	list := make([]Asked, 0, 2)
	for _, r := range []Randomizer{QA, RandomizedGroup} {
		z, err := g.asked(r, p.perBit)
		if err != nil {
			continue
		}
		other := *p
		deviation := math.Sqrt(g.blurred(r, p.perBit.FloatDown()) * float64(g.People))
		other.spread(deviation)
		a := Asked{Randomizer: r, Bits: z.Bits(q), Bytes: (z.Bits(q) + 7) / 8, Values: 2 * uint64(z.Rounded()), Error: other.Error}
		if r == QA {
			a.Bytes += recipe.NonceSize
		}
		a.Alpha = deviation * deviation / float64(g.People) * float64(q.Numbers(false).Groups)
		a.MSE = a.Alpha / float64(g.People)
		list = append(list, a)
	}
	if len(list) == 2 && list[1].Randomizer == g.Randomizer {
		list[0], list[1] = list[1], list[0]
	}
	return list
}

var schemeNames = map[Randomizer]string{QA: "question & answer", RandomizedGroup: "randomized group"}

// words are the scheme in a line.
func (a *Asked) words() string {
	nonce := ""
	if a.Randomizer == QA {
		nonce = ", a public nonce of 16 among them"
	}
	plural := func(n int, one string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %ss", n, one)
	}
	return fmt.Sprintf("%s: 1 message of %s%s, with an answer of %s; numbers are rounded to %d values. Normalised mean square error of all sums %.4g "+
		"(alpha %.4g over the reports), each within %s", schemeNames[a.Randomizer], plural(a.Bytes, "byte"), nonce, plural(a.Bits, "bit"), a.Values, a.MSE, a.Alpha,
		atMost(a.Error.Each))
}

// chosen says why the first of the schemes is the plan's.
func (p *Plan) chosen(list []Asked) string {
	if len(list) < 2 {
		return ""
	}
	factor := list[1].Alpha / list[0].Alpha
	bits := fmt.Sprintf("%.3g times as much for as many bits of answers, by which paper 002 compares", factor*float64(list[1].Bits)/float64(list[0].Bits))
	if factor < 1 {
		return fmt.Sprintf("the first was asked for; the other would have %.3g times the mean square error at this loss, and %s", factor, bits)
	}
	return fmt.Sprintf("the first, which has the smaller mean square error at this loss; the other has %.3g times as much, and %s", factor, bits)
}

// byAsked plans both schemes and takes the better plan, where none is asked for.
func byAsked(g Goal) (*Plan, error) {
	var best *Plan
	var why error
	for _, r := range []Randomizer{QA, RandomizedGroup} {
		g.Randomizer = r
		p, err := one(g)
		if err != nil {
			why = err
		} else if best == nil || p.serves(best) {
			best = p
		}
	}
	if best == nil {
		return nil, why
	}
	return best, nil
}

// serves says whether a plan of reports serves its goal better than another.
func (p *Plan) serves(than *Plan) bool {
	switch {
	case p.Fits != than.Fits:
		return p.Fits
	case p.Goal.Epsilon == 0 || p.Goal.Within != 0 && p.Fits:
		return p.Local.Epsilon < than.Local.Epsilon
	}
	return p.Error.Each < than.Error.Each
}

// hint is what the recipe says of conditions that nobody checks.
func (p *Plan) hint() string {
	q, ok := p.Goal.Query.(recipe.SumsByGroup)
	z, err := p.Goal.asked(p.Goal.Randomizer, p.perBit)
	if !ok || err != nil {
		return ""
	}
	return z.Hint(q)
}
