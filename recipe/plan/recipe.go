package plan

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// A NotExpressibleError says why a plan cannot be written as a recipe.
type NotExpressibleError struct {
	Why  string
	Hint string // what to plan instead; may be empty
}

func (e *NotExpressibleError) Error() string { return "plan: no recipe says this: " + e.Why }

// query is what a recipe of the plan asks. A sampled histogram must have an answer that
// adds nothing, for dummies; randomized response names a bucket; RAPPOR marks many.
func (p *Plan) query() recipe.Query {
	g := &p.Goal
	switch n := uint32(g.buckets()); {
	case g.Randomizer == RR:
		return recipe.Histogram{Length: n}
	case g.Randomizer == RAPPOR:
		// Where the weight cannot be computed, RAPPOR has no recipe at all, and
		// account.New says why.
		_, q := recipe.RAPPOR{Epsilon0: p.perBit}.Fit(recipe.Multihot{Length: n}, recipe.TailOdds(p.MinBatch, g.Rounds, g.Delta))
		return q
	case g.HideCount:
		if q, ok := g.Query.(recipe.Histogram); ok {
			return recipe.Multihot{Length: q.Length, MaxWeight: 1}
		}
	}
	return g.Query
}

// choose fills in all of the options that the guarantee depends on, but for what hides
// the count and for the noise.
func (p *Plan) choose(o account.Options) (account.Options, error) {
	g := &p.Goal
	delta, err := recipe.ParseDecimal(strconv.FormatFloat(g.Delta, 'g', -1, 64))
	if err != nil {
		return o, err
	}
	o.Query, o.MinBatch, o.Rounds, o.Delta, o.HonestServers, o.Unit = p.query(), p.MinBatch, g.Rounds, delta, 0, g.Unit
	o.Epsilon, o.Noise, o.Dummies, o.Randomizer, o.Participation, o.Rate, o.Cover = recipe.Decimal{}, nil, nil, nil, nil, nil, nil
	switch g.Randomizer {
	case RR:
		o.Randomizer = recipe.KRR{Epsilon0: p.perBit}
	case RAPPOR:
		o.Randomizer = recipe.RAPPOR{Epsilon0: p.perBit}
	case Noisy:
		o.Randomizer = recipe.Gaussian{Variance: p.Variance} // calibrated where it is zero
	case Cloak:
		o.Randomizer = p.cloak
	case QA, RandomizedGroup:
		if o.Randomizer, err = g.asked(g.Randomizer, p.perBit); err != nil {
			return o, err
		}
	}
	if !g.HideCount {
		return o, nil
	}
	if g.CheckIn != nil {
		o.Participation, o.RoundUnits = g.CheckIn, g.CheckIn.Units()
		o.Rate = &recipe.Rate{Devices: g.Population, Units: o.RoundUnits}
		return o, nil
	}
	q, err := recipe.NewRational(g.People, g.Population)
	if err != nil {
		return o, err
	}
	o.Participation, o.Rate = recipe.Bernoulli{Rate: q}, &recipe.Rate{Devices: g.Population, Units: max(1, o.RoundUnits)}
	return o, nil
}

// anyClaim holds for whatever is planned, and spares computing one.
var anyClaim = recipe.Decimal{Coefficient: 1_000_000}

// blur computes what reports of devices that randomize guarantee behind two servers.
func (p *Plan) blur() error {
	o, err := p.choose(p.Goal.parties())
	if err != nil {
		return err
	}
	o.Epsilon = anyClaim
	return p.follow(o)
}

// proofRoom is by what a claim is above the loss that is computed, so that a proof of it is
// found: of check-ins, whose slots have distributions of their own on one grid, half a per
// cent.
func (g *Goal) proofRoom() float64 {
	if g.CheckIn != nil {
		return 1.005
	}
	return 1
}

// hide computes what the noise guarantees to devices that toss coins and hide the count;
// no noise is calibrated to the goal's loss.
func (p *Plan) hide(noise recipe.Noise) error {
	g := &p.Goal
	o, err := p.choose(p.Goal.parties())
	if err != nil {
		return err
	}
	if o.Noise, o.Epsilon = noise, anyClaim; noise == nil {
		if o.Epsilon, err = decimalBelow(g.Epsilon/g.proofRoom(), 11); err != nil {
			return err
		}
	}
	if g.MinBatch == 0 {
		o.MinBatch = recipe.SampledBatchFloor // until it is known how many dummies there are
	}
	if err := p.follow(o); err != nil || g.MinBatch != 0 {
		return err
	}
	// A batch is to hold the answers and the most dummies that there may be.
	sends := g.rate() + (1-g.rate())*p.Dummies
	if c, ok := recipe.SlottingOf(g.CheckIn); ok {
		sends = (c.Rate.Float() + (1-c.Rate.Float())*p.Dummies) / float64(c.Slots)
	}
	reports, err := amplify.MinimumBatch(g.Population, sends, short)
	if err != nil {
		return err
	}
	if reports < p.Allowance+recipe.SampledBatchFloor {
		return wrong("so many dummies hide the number of %d reports that no least batch is sure to hold %d answers; draw more people or "+
			"want a wider error", g.People, recipe.SampledBatchFloor)
	}
	p.MinBatch = reports - p.Allowance
	return nil
}

// follow takes the loss, the noise and the dummies from the recipe of the options, with
// its words about them.
func (p *Plan) follow(o account.Options) error {
	r, err := account.New(o)
	if invalid := new(recipe.InvalidError); errors.As(err, &invalid) {
		if v := p.Variance; p.Goal.HideCount && invalid.Field == "guarantee" && v.Den != 0 {
			return p.Goal.unsampled(release.Rational(v), release.ErrUnsupported)
		}
		return fmt.Errorf("%w: %w", ErrGoal, err)
	} else if err != nil {
		return err
	}
	return p.followRecipe(r)
}

// followRecipe is follow of a recipe.
func (p *Plan) followRecipe(r *recipe.Recipe) error {
	g, err := account.Guarantee(r)
	if err != nil {
		return err
	}
	p.Loss, p.Neighbours, p.Theorem = g.Loss, g.Neighbours, g.Theorem
	p.Assumptions, p.Fallbacks = g.Assumptions, g.Fallbacks
	p.Conditions, p.Unconditional, p.UnconditionalNeighbours, p.Person = g.Conditions, g.Unconditional, g.UnconditionalNeighbours, g.Person
	if v, ok := r.GaussianVariance(); ok {
		p.Variance = v
	}
	if b, ok := account.ProvedBound(r); ok {
		p.Proved = &b
	}
	if d := r.Dummies; d != nil {
		p.Dummies, p.Allowance, p.dummies = d.Rate.Float(), d.Allowance, d
	}
	return nil
}

// Recipe makes the recipe of the plan, whose guarantee is the plan's loss. Of the options
// it takes the words, the parties' addresses, the batch mode, the rounds, the window and
// the KEM; coins need a Relay. It fails with a *[NotExpressibleError] for plans of whose
// choices no recipe is made, and as [account.New] does.
func (p *Plan) Recipe(o account.Options) (*recipe.Recipe, error) {
	g := &p.Goal
	switch {
	case !p.Fits:
		return nil, &NotExpressibleError{"the goal is out of reach", ""}
	case (o.Path == nil) != (g.Path == TwoServer):
		return nil, &NotExpressibleError{fmt.Sprintf("it is of the path %s, and the parties are not", g.Path), "with --path, and its parties"}
	case g.Population != 0 && !g.HideCount:
		return nil, &NotExpressibleError{"where coins are tossed, dummies hide how many reports there are, and this plan leaves it public",
			"with --dummies too"}
	case g.HideCount && o.Relay == nil:
		return nil, &NotExpressibleError{"a coin is secret only behind a relay, and none is named", "with --relay URL --gateway URL"}
	}
	if o.Population == nil {
		o.Population = &recipe.Population{Statement: "those who are asked", Expected: max(g.People, g.Population)}
	}
	o, err := p.choose(o)
	if err != nil {
		return nil, err
	}
	if g.Randomizer == Servers {
		o.Noise = p.noise()
	}
	o.Dummies, o.Views = p.dummies, g.Views
	if g.Randomizer == Cloak { // of whose claim a proof was found
		o.Epsilon = p.claim
	} else if o.Epsilon, err = recipe.DecimalAbove(p.Loss.Epsilon*g.proofRoom(), 4); err != nil {
		return nil, err
	}
	return account.New(o)
}
