package plan

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/internal/search"
	"github.com/starling-agg/starling/recipe"
)

// deviation bounds the standard deviation of an estimate from n randomized reports, each
// of loss e by itself for replacing an answer, whatever the answers are.
func (g *Goal) deviation(n, e float64) float64 {
	if g.blursGroups() {
		return math.Sqrt(n * g.blurred(g.Randomizer, e))
	}
	if g.Randomizer == RAPPOR {
		// Each bit of one answer in k is flipped with probability f; two bits tell two
		// answers apart.
		f := 1 / (math.Exp(e/2) + 1)
		return math.Sqrt(n*f*(1-f)) / (1 - 2*f)
	}
	k := float64(g.buckets())
	wrong := 1 / (math.Exp(e) + k - 1)
	right := math.Exp(e) * wrong
	return math.Sqrt(n*math.Max(right*(1-right), wrong*(1-wrong))) / (right - wrong)
}

// reports are those of one device, over all rounds.
func (g *Goal) reports(e float64) []release.Release {
	if g.Randomizer == RAPPOR { // two bits of each differ
		return []release.Release{release.Times(2*uint64(g.Rounds), release.Response{Epsilon0: e / 2, Answers: 2})}
	}
	if g.blursGroups() {
		return []release.Release{release.Times(uint64(g.Rounds), release.ApproxDP{Epsilon: e})}
	}
	return []release.Release{release.Times(uint64(g.Rounds), release.Response{Epsilon0: e, Answers: g.buckets()})}
}

// leastLocal and mostLocal bound the loss of one report that is planned.
const leastLocal, mostLocal = 1e-3, 30

// byDevices plans the randomizer of the devices.
func (p *Plan) byDevices() error {
	g := &p.Goal
	n := float64(g.People)
	wanted := g.Within * g.full(n)
	affordable := recipe.NoPrivacy
	if g.Within != 0 {
		e, ok, err := search.Least(search.Options{Guess: 1, Low: leastLocal, High: mostLocal, Precision: 1e-9, Budget: wanted},
			func(e float64) (float64, error) { return z(g.Confidence) * g.deviation(n, e), nil })
		if err != nil {
			return err
		}
		if !ok && g.Epsilon == 0 {
			e = mostLocal // the nearest there is
		}
		if ok || g.Epsilon == 0 {
			if err := p.randomize(e, true); err != nil {
				return err
			}
			affordable = p.Local
		}
		if ok && (g.Epsilon == 0 || p.Local.Epsilon <= g.Epsilon) {
			p.Fits = true
			return nil
		}
		if g.Epsilon == 0 {
			p.Needs = p.locally(affordable)
			return nil
		}
	}
	// The largest loss of one report within the budget.
	x, ok, err := search.Least(search.Options{Guess: 1 / g.Epsilon, Low: 1 / float64(mostLocal), High: 1 / leastLocal, Precision: 1e-6, Budget: g.Epsilon},
		func(x float64) (float64, error) {
			out, err := accountant.Epsilon(g.reports(1/x), g.Delta, release.ReplaceOne)
			if errors.Is(err, release.ErrNoGuarantee) {
				return math.Inf(1), nil
			}
			return out.Epsilon, err
		})
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: even a report that says next to nothing costs more over %d rounds", release.ErrNoGuarantee, g.Rounds)
	}
	if err := p.randomize(1/x, false); err != nil {
		return err
	}
	p.Fits = g.Within == 0
	if !p.Fits {
		p.Needs = p.locally(affordable)
	}
	return nil
}

// randomize plans reports of loss e each, with few digits: no less if atLeast, else no
// more.
func (p *Plan) randomize(e float64, atLeast bool) error {
	g := &p.Goal
	bits := g.differing()
	e /= bits
	round := decimalBelow
	if atLeast {
		round = recipe.DecimalAbove
	}
	var err error
	if p.perBit, err = round(e, 6); err != nil {
		return err
	}
	p.Epsilon0 = math.Nextafter(bits*p.perBit.Float(), math.Inf(1))
	out, err := accountant.Epsilon(g.reports(p.Epsilon0), g.Delta, release.ReplaceOne)
	if err != nil {
		return err
	}
	p.Local = recipe.Loss{Epsilon: out.Epsilon, Delta: out.Delta}
	p.spread(g.deviation(float64(g.People), p.Epsilon0))
	return nil
}

// differing is how many randomized responses tell two answers apart.
func (g *Goal) differing() float64 {
	if g.Randomizer == RAPPOR {
		return 2
	}
	return 1
}

// locally is what would do with reports as they are: errors grow with the root of the
// number of people.
func (p *Plan) locally(affordable recipe.Loss) *Need {
	g := &p.Goal
	one := z(g.Confidence) * g.deviation(1, p.Epsilon0) / (g.Within * g.largest())
	need := &Need{People: uint64(math.Ceil(outward.Up(one * one))), Within: outward.Up(p.Error.Part)}
	if g.Epsilon != 0 && affordable.Finite() {
		need.Epsilon = affordable.Epsilon
	}
	return need
}
