package plan

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/amplify"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/internal/search"
	"github.com/starling-agg/starling/recipe"
)

// An Error is how far a result may be from the truth, in units of the result, with the
// goal's confidence.
type Error struct {
	Each float64 `json:"each"` // for each number by itself
	All  float64 `json:"all"`  // for all numbers at once
	Part float64 `json:"part"` // Each as a part of the largest result that the people could give
}

// A Need is what would do where the goal is out of reach; each by itself, the rest as it
// is. Zero if nothing helps.
type Need struct {
	People  uint64  `json:"people"`  // reports a batch
	Epsilon float64 `json:"epsilon"` // over all rounds
	Within  float64 `json:"within"`  // a part of the largest result
}

// A Plan is what meets a goal, or comes nearest.
type Plan struct {
	Goal Goal // with its defaults filled in
	// Fits: both the accuracy and the loss that are wanted are met.
	Fits bool
	// Needs says what would do; nil if the goal fits.
	Needs *Need

	// Variance is sigma^2 of the discrete Gaussian noise that each server draws, or for
	// Noisy each device; zero if the devices randomize in other ways, and where the servers
	// draw Laplace noise, whose scale is Scale.
	Variance, Scale recipe.Rational
	laplace         bool
	// Proved is what devices with a randomizer prove about what they send; nil for others.
	Proved *recipe.ProvedBound
	// Epsilon0 is the loss of one report by itself, for replacing the answer; 0 if
	// devices do not randomize.
	Epsilon0 float64
	perBit   recipe.Decimal // what the recipe says of Epsilon0: half of it for RAPPOR, which blurs two bits
	// Dummies is the probability with which a person not drawn sends a dummy report; 0 if
	// the count is public.
	Dummies float64
	// Allowance is how many dummies a batch may hold, beside MinBatch answers.
	Allowance uint64
	dummies   *recipe.Dummies // both
	// Series correlates the noise over batches; the zero value if Goal.Batches is 0.
	// share and single are the parts of Variance in the mean of all batches and in the
	// last of them.
	Series        correlated.Series
	share, single float64
	// Mixed is what each kind of Cloak costs, the one that is planned first.
	Mixed []Mixed
	cloak recipe.Cloak   // as the recipe has it
	claim recipe.Decimal // of its epsilon
	// MinBatch is B.
	MinBatch uint64

	// Loss is over all rounds: the guarantee of [Plan.Recipe], where there is one.
	Loss recipe.Loss
	// Local is the loss over all rounds, for replacing one person's answers, if nobody is
	// to be trusted: what Goal.Epsilon bounds if devices randomize. NoPrivacy if they do
	// not.
	Local      recipe.Loss
	Neighbours release.Neighbours
	Theorem    string
	Error      Error
	// Assumptions must hold for the loss to be true; Fallbacks say what is left when one
	// does not.
	Assumptions []string
	// Conditions must hold too, and are whoever plans' word; without them the loss is
	// Unconditional. See [recipe.Guarantee].
	Conditions              []string
	Unconditional           recipe.Loss
	UnconditionalNeighbours release.Neighbours
	// Person is what a person with as many units as Goal.Unit says has on none of
	// Conditions.
	Person    recipe.Loss
	Fallbacks []recipe.Fallback
	// Instead are the other ways to the goal.
	Instead []Option
}

// An Option is what another randomizer would do for the same goal.
type Option struct {
	Randomizer Randomizer  `json:"randomizer"`
	Loss       recipe.Loss `json:"loss"`
	Error      Error       `json:"error"`
	Fits       bool        `json:"fits"`
	Needs      *Need       `json:"needs,omitempty"`
}

// Make plans. It fails with an error that matches ErrGoal, or with one of the accountant
// where no loss can be computed.
func Make(g Goal) (*Plan, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	g.settle()
	plan := one
	if g.asks() && g.Randomizer == "" {
		plan = byAsked
	}
	p, err := plan(g)
	if err != nil {
		return nil, err
	}
	g = p.Goal
	if err := p.explain(); err != nil {
		return nil, err
	}
	for _, r := range []Randomizer{Servers, RR, RAPPOR, Noisy, Cloak, QA, RandomizedGroup} {
		other := g
		other.Randomizer = r
		if r == g.Randomizer || other.Validate() != nil {
			continue
		}
		// An option that cannot be computed is none.
		if o, err := one(other); err == nil {
			p.Instead = append(p.Instead, Option{r, o.promised(), o.Error, o.Fits, o.Needs})
		}
	}
	return p, nil
}

// promised is the loss that the goal's epsilon is about.
func (p *Plan) promised() recipe.Loss {
	if r := p.Goal.Randomizer; r == Servers || r == Noisy || r == Cloak {
		return p.Loss
	}
	return p.Local
}

// one plans with the goal's own randomizer, without words.
func one(g Goal) (*Plan, error) {
	p := &Plan{Goal: g, MinBatch: g.MinBatch, Local: recipe.NoPrivacy}
	if err := p.batch(); err != nil {
		return nil, err
	}
	if err := p.correlate(); err != nil {
		return nil, err
	}
	var err error
	switch g.Randomizer {
	case Servers:
		if g.eitherNoise() {
			return p, p.byEither()
		}
		err = p.byServers()
	case Noisy:
		err = p.byNoise()
	case Cloak:
		err = p.byCloak()
	default:
		err = p.byDevices()
	}
	return p, err
}

// short is how often a sample is smaller than B.
const short = 1e-9

// batch chooses B.
func (p *Plan) batch() error {
	if p.MinBatch != 0 {
		return nil
	}
	p.MinBatch = p.Goal.People / 2
	if p.Goal.Population != 0 {
		b, err := amplify.MinimumBatch(p.Goal.Population, p.Goal.rate(), short)
		if err != nil {
			return err
		}
		p.MinBatch = b
	}
	p.MinBatch = max(p.MinBatch, recipe.MinBatchFloor)
	return nil
}

// leastVariance is the narrowest noise that is planned: the narrowest that is calibrated
// for a loss.
const leastVariance = 0.25

// byServers plans the servers' noise.
func (p *Plan) byServers() error {
	g := &p.Goal
	room := p.room()
	fromAccuracy := g.Within != 0 && room >= leastVariance
	var err error
	switch {
	case fromAccuracy:
		if err = p.widest(room); err != nil {
			return err
		}
		if err := p.lose(); err != nil && !errors.Is(err, release.ErrNoGuarantee) {
			return err
		}
		if g.Epsilon == 0 || p.Loss.Epsilon <= g.Epsilon {
			p.Fits = true
			p.measure()
			return nil
		}
	case g.Epsilon == 0:
		// Not even the narrowest noise leaves the accuracy: plan that noise, and say what
		// it takes.
		if err := p.widest(leastVariance); err != nil {
			return err
		}
		if err := p.lose(); err != nil {
			return err
		}
		p.measure()
		p.Needs = &Need{People: p.people(), Within: outward.Up(p.Error.Part)}
		return nil
	}
	affordable := p.Loss
	if err := p.calibrate(); err != nil {
		return err
	}
	p.measure()
	if g.Within == 0 {
		p.Fits = true
		return nil
	}
	p.Needs = &Need{People: p.people(), Within: outward.Up(p.Error.Part)}
	if fromAccuracy && affordable.Finite() {
		p.Needs.Epsilon = affordable.Epsilon
	}
	return nil
}

// decimalBelow returns a decimal of the given digits that is at most x: the least that is
// not below x less a little more than one in the last digit.
func decimalBelow(x float64, digits int) (recipe.Decimal, error) {
	return recipe.DecimalAbove(x*(1-1.1*math.Pow10(1-digits)), digits)
}

// room is the widest noise of one server, as a variance, that the accuracy allows.
func (p *Plan) room() float64 {
	g := &p.Goal
	n := float64(g.People)
	wanted := g.Within * g.full(n) / p.z(g.Confidence)
	return (wanted*wanted - g.sampleVariance(n)) / (2 * p.ofMean())
}

// below writes a variance with at most six digits, rounded down.
func below(v float64) (recipe.Rational, error) {
	den := math.Pow(10, math.Max(0, math.Min(6, 5-math.Floor(math.Log10(v)))))
	return recipe.NewRational(uint64(v*den), uint64(den))
}

// measure computes the error of the servers' noise and of the sample.
func (p *Plan) measure() {
	g := &p.Goal
	n := float64(g.People)
	p.spread(math.Sqrt(2*p.drawn()*p.ofMean() + g.sampleVariance(n)))
}

// spread turns a standard deviation into an error.
func (p *Plan) spread(deviation float64) {
	g := &p.Goal
	k := float64(p.results())
	each := p.z(g.Confidence) * deviation
	p.Error = Error{Each: each, All: p.z(1-(1-g.Confidence)/k) * deviation, Part: each / g.full(float64(g.People))}
	if g.Query.Averages() {
		p.Error.Each /= float64(g.People)
		p.Error.All /= float64(g.People)
	}
	p.Error.Each *= g.Query.Unit()
	p.Error.All *= g.Query.Unit()
}

// people is how many reports the accuracy takes with the noise as it is and the same rate
// of sampling: the root of (within n C)^2 = z^2 (2 sigma^2 + s n), where s is what a
// sampled person adds.
func (p *Plan) people() uint64 {
	g := &p.Goal
	a := math.Pow(g.Within*g.largest(), 2)
	zz := p.z(g.Confidence) * p.z(g.Confidence)
	b, c := zz*g.sampleVariance(1), zz*2*p.drawn()*p.ofMean()
	return uint64(math.Ceil(outward.Up((b + math.Sqrt(b*b+4*a*c)) / (2 * a))))
}

// lose computes the loss of the noise as it is.
func (p *Plan) lose() error {
	if p.Goal.HideCount {
		return p.hide(recipe.EachDraws(p.Variance))
	}
	g, err := p.guarantee(release.Rational(p.parameter()), 1)
	if err != nil {
		p.Loss = recipe.NoPrivacy
		return err
	}
	p.Loss, p.Neighbours, p.Theorem = recipe.Loss{Epsilon: g.Epsilon, Delta: g.Delta}, g.Neighbours, g.Theorem
	return nil
}

// calibrate finds the least noise for the wanted loss.
func (p *Plan) calibrate() error {
	g := &p.Goal
	if g.HideCount {
		return p.hide(nil)
	}
	if p.laplace {
		return p.calibrateLaplace()
	}
	if g.Batches > 0 {
		v, _, err := accountant.CalibrateCorrelated(g.Epsilon, g.Delta, p.norm2(), g.contribution(), release.ReplaceOne, uint64(g.Rounds))
		if err != nil {
			return err
		}
		p.Variance, err = provable(v)
		return errors.Join(err, p.lose())
	}
	v, _, err := accountant.CalibrateDiscreteGaussian(g.Epsilon, g.Delta, g.contribution(), release.ReplaceOne, g.releases())
	if err != nil {
		return err
	}
	if g.Population != 0 {
		// No more than without sampling.
		whole := v.Float()
		x, ok, err := search.Least(search.Options{Guess: math.Max(whole*g.rate(), leastVariance), Low: leastVariance, High: math.Max(whole, 2*leastVariance),
			Precision: 1e-4, Budget: g.Epsilon}, func(v float64) (float64, error) {
			r, err := upward(v)
			if err != nil {
				return 0, err
			}
			out, err := p.guarantee(r, 1)
			if errors.Is(err, release.ErrNoGuarantee) {
				return math.Inf(1), nil
			}
			return out.Epsilon, err
		})
		if err != nil {
			return err
		}
		if ok {
			if v, err = upward(x); err != nil {
				return err
			}
		}
	}
	p.Variance, err = provable(v)
	return errors.Join(err, p.lose())
}

// provable is a variance that is larger by one part in 2^16: as little more as the proof of
// a claim takes that is calibrated to the last digit.
func provable(v release.Rational) (recipe.Rational, error) {
	more := v.Num>>16 + 1
	if v.Num > math.MaxUint64-more {
		return v, release.ErrNoGuarantee
	}
	return recipe.NewRational(v.Num+more, v.Den)
}

// upward writes a variance with six digits, rounded up.
func upward(v float64) (release.Rational, error) {
	den := math.Pow(10, math.Max(0, math.Min(6, 5-math.Floor(math.Log10(v)))))
	r, err := recipe.NewRational(uint64(math.Ceil(v*den)), uint64(den))
	return release.Rational(r), err
}

// miss is the part of delta that is spent on samples larger than accounted for.
const miss = 0.01

// guarantee is the loss of the noise over all rounds, if everyone sees the count and the
// honest people are one in crowd.
func (p *Plan) guarantee(v release.Rational, crowd float64) (release.Guarantee, error) {
	g := &p.Goal
	rounds := g.releases()
	noise := release.Times(rounds, p.mechanism(v))
	if g.Batches > 0 {
		noise.Mechanism = release.CorrelatedGaussian{Variance: v, Norm2: p.norm2(), Contribution: g.contribution()}
		return accountant.Epsilon([]release.Release{noise}, g.Delta, release.ReplaceOne)
	}
	if g.Population == 0 {
		return accountant.Epsilon([]release.Release{noise}, g.Delta, release.ReplaceOne)
	}
	spent := g.Delta * miss
	rest, err := amplify.MinimumBatch(g.Population, 1-g.rate(), spent/float64(rounds))
	if err != nil {
		return release.Guarantee{}, err
	}
	most := float64(g.Population - rest)
	rate := math.Min(1, outward.Up(most*crowd/float64(g.Population)))
	drawn := noise.Sampled(release.Fixed{Rate: rate})
	out, err := accountant.Epsilon([]release.Release{drawn}, g.Delta-outward.Up(spent), release.ReplaceOne)
	out.Delta = g.Delta
	out.Theorem += "; exact binomial quantile of the number drawn"
	return out, g.unsampled(v, err)
}

// unsampled says in words why a secret sample has no answer: one is found only by a
// distribution of losses, which lists the outcomes of the noise.
func (g *Goal) unsampled(v release.Rational, err error) error {
	if !errors.Is(err, release.ErrUnsupported) {
		return err
	}
	return fmt.Errorf("%w: a secret sample of numbers up to %.6g with noise of standard deviation %.6g, which spreads too widely to be summed",
		release.ErrUnsupported, g.largest(), math.Sqrt(v.Float()))
}
