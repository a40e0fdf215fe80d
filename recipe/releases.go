package recipe

import (
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
)

// A Situation is which assumptions hold.
type Situation struct {
	Servers int  // that keep their noise to themselves; 1 or 2
	Hidden  bool // who reports
	Half    bool // half of the devices that the guarantee counts on are dishonest
	// the number of reports tells nothing: no guarantee, but where to begin to look for
	// one
	Free bool
}

// situation is that of the recipe's guarantee.
func (r *Recipe) situation(claim ApproxDP) Situation {
	return Situation{Servers: r.HonestServers(claim), Hidden: r.Amplified()}
}

// A Disclosure is what one of the rounds that share the delta of a claim tells: the ground
// of all that is said of privacy, by the accountant and by certificates.
type Disclosure struct {
	// Releases are of answers.
	Releases []release.Release
	// Beside is what a device's reporting tells by itself, where that is seen.
	Beside []release.Release
	// Senders are those of the dummies that hide how many report, if any do. Each sample
	// of Releases has 0 of them, which stands for as many as are sure to be free but for a
	// miss: see [Senders].
	Senders *Senders
	// Odds bounds the probability that a device whose noise the releases count draws
	// again, and Redrawn what a round spends of delta on that.
	Odds, Redrawn float64
	// Theorem is what the releases rest on, where they say no more than a loss.
	Theorem string
}

// Senders are the devices of which some are free to send a dummy.
type Senders struct {
	Others uint64  // the honest devices beside the one that is protected
	Free   float64 // the probability with which each is free to
	// Miss is what is spent of delta, for each of Slots, on fewer being free there than are
	// counted on.
	Miss  float64
	Slots uint32
}

// Spent is what the round costs of delta beside its releases.
func (x Disclosure) Spent() float64 {
	if x.Senders != nil {
		miss := x.Senders.Miss
		if n := x.Senders.Slots; n > 1 {
			miss = outward.Up(float64(n) * miss)
		}
		return x.Redrawn + miss
	}
	return x.Redrawn
}

// More is what a number of such rounds add to epsilon for redraws: distributions given
// events of probability 1-b differ by a factor of at most 1/(1-b) more.
func (x Disclosure) More(rounds uint32) float64 {
	if x.Odds == 0 {
		return 0
	}
	return RedrawCost(float64(rounds) * -math.Log1p(-x.Odds))
}

// Disclosure returns what one of a number of rounds, which share delta, tells those who see
// results, in a situation.
func (r *Recipe) Disclosure(s Situation, delta Decimal, rounds uint32) (Disclosure, error) {
	x, err := r.Randomizer.round(r, s, delta.FloatDown())
	switch {
	case err != nil:
		return Disclosure{}, err
	case !r.Sampled():
		return x, nil
	case !s.Hidden:
		return r.seen(x), nil
	}
	c, err := r.CoinRates()
	if err != nil {
		return Disclosure{}, err
	}
	coins := release.Poisson{Rate: c.Rate}
	if !s.Free {
		coins.DummyRate = c.Dummy
		x.Senders = &Senders{r.Dummies.Senders - 1, c.Free, delta.FloatDown() / float64(rounds) * MissShare, 1}
		if s.Half {
			x.Senders.Others /= 2
		}
	}
	steps := []step{{coins.Rate, 1}}
	if p, ok := r.checkIn(); ok {
		steps = p.samples(p.Rate.Rat(), r.Dummies.Rate.Rat())
		if x.Senders != nil { // in any slot where she may be
			x.Senders.Slots = p.steps()
			x.Senders.Miss /= float64(p.steps())
		}
	}
	list := x.Releases
	x.Releases = nil
	for _, each := range list {
		for _, step := range steps {
			coins.Rate = step.rate
			x.Releases = append(x.Releases, release.Repeated([]release.Release{each.Sampled(coins)}, step.count)...)
		}
	}
	return x, nil
}

// ReportDisclosure returns what one report tells who reads it and knows whose it is, where
// devices add noise of their own that the sum of all has enough of ([VectorRandomizer]).
// For other randomizers see [Recipe.OwnNoise].
func (r *Recipe) ReportDisclosure(delta Decimal) (Disclosure, bool, error) {
	z, ok := r.Randomizer.(VectorRandomizer)
	if !ok {
		return Disclosure{}, false, nil
	}
	x, err := z.report(r, delta.FloatDown())
	return x, true, err
}

// seen is the disclosure to those who see that a device reports, and cannot tell reports
// from dummies: that may be a randomized response to whether its answer is the default.
func (r *Recipe) seen(x Disclosure) Disclosure {
	if watched := r.Watched(); watched > 0 {
		x.Beside = []release.Release{release.One(release.ApproxDP{Epsilon: watched})}
	}
	return x
}

// reports is what locally randomized reports give with nothing from the servers: what is
// seen of them is a function of the shuffled reports of MinBatch honest devices, or where
// nothing mixes them one report by itself.
func (r *Recipe) reports(z LocalRandomizer, s Situation) (Disclosure, error) {
	m, redraw, err := r.on().message(z, r.Query)
	if err != nil {
		return Disclosure{}, uncomputed(err)
	}
	if !r.on().mixes() {
		is, err := m.Premise()
		if err != nil {
			return Disclosure{}, uncomputed(err)
		}
		alone := release.ApproxDP{Epsilon: is.Epsilon0}
		if redraw > 0 { // as in OwnNoise
			alone.Epsilon = outward.Above(alone.Epsilon + 2*redraw)
		}
		return Disclosure{Releases: []release.Release{release.One(alone)}}, nil
	}
	n := r.MinBatch
	if s.Half {
		n = max(1, n/2)
	}
	return Disclosure{Releases: []release.Release{release.One(release.Shuffled{Message: m, People: n, Redraw: redraw})}}, nil
}

// uncomputed says that no guarantee can be computed.
func uncomputed(err error) error {
	return &InvalidError{"guarantee", fmt.Sprintf("cannot be computed: %v", err)}
}
