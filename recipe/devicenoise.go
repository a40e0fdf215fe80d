package recipe

import (
	"errors"
	"fmt"
	"math"

	"github.com/starling-agg/starling/dp/accountant"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/internal/search"
	"github.com/starling-agg/starling/vdaf/pine"
)

// Gaussian is noise of the devices' own on a [Vector]: the device scales its vector to a norm of at most Clip, adds an exact
// discrete Gaussian of this variance to each integer, draws again while the norm is above the query's Bound, and proves Bound. The
// noise of all honest devices adds up in the sum, and each report carries its own wherever it is read. A device without an answer
// sends noise alone. See docs/proofs/device-noise.md.
type Gaussian struct {
	// Variance of one device's noise in each entry, in squared units of 2^-FracBits; at least MinDeviceVariance. [New] calibrates it
	// to Options.Epsilon where it is zero.
	Variance Rational
	// Clip is the norm before the noise, in units: the sensitivity, and twice it where one vector replaces another. Where it is zero
	// [New] takes the query's Bound for it, and makes Bound the least that vector and noise exceed with probability 2^-TailBits.
	Clip uint64
}

// TailBits: what a device proves about a draw of its own noise, a norm or a number of ones, is exceeded with probability at most
// 2^-TailBits. Longer draws are drawn again, and what that costs is charged to delta.
const TailBits = 40

// MinDeviceVariance is the least variance of a device's noise: below it, sums of draws are not close enough to a discrete Gaussian.
const MinDeviceVariance = 8

func (Gaussian) randomizer() uint8 { return tagDeviceGaussian }

func (z Gaussian) String() string {
	return fmt.Sprintf("the device scales its vector to a length of at most %d units and adds whole-number Gaussian noise of standard "+
		"deviation %.4g units (variance %s) to each number", z.Clip, math.Sqrt(z.Variance.Float()), z.Variance)
}

// Sampler draws the noise of one device.
func (z Gaussian) Sampler() (*noise.DiscreteGaussian, error) {
	if !z.Variance.valid() {
		return nil, errors.New("recipe: the variance is not a positive fraction in lowest terms")
	}
	return noise.NewDiscreteGaussian(z.Variance.Num, z.Variance.Den)
}

// noisyBound is the least bound that vector and noise exceed with probability at most 2^-bits.
func (z Gaussian) noisyBound(dimension uint32, bits int) (uint64, error) {
	return pine.NoisyBound(z.Clip, int(dimension), math.Sqrt(z.Variance.Float()), bits)
}

// redraws bounds the probability that a device draws again.
func (z Gaussian) redraws(q Vector) (float64, error) {
	return pine.NoisyOdds(z.Clip, int(q.Dimension), math.Sqrt(z.Variance.Float()), q.Bound)
}

func (v *validator) deviceNoise(r *Recipe, z Gaussian) {
	q, ok := r.Query.(Vector)
	if !ok {
		v.add("query", "is not vector, which noise of the devices' own needs: proofs of other queries leave no room for numbers below 0")
		return
	}
	if pineTypes[q.Proof] == 0 {
		v.add("query.proof", "of %v proves norm 1 of real numbers; with noise of the devices' own take a proof of package pine", q.Proof)
	}
	if r.Noise != (NoNoise{}) {
		v.add("noise", "is added by devices and servers; choose one")
	}
	if _, err := z.Sampler(); err != nil {
		v.add("randomizer.variance", "cannot be drawn: %v", err)
	} else if z.Variance.Float() < MinDeviceVariance {
		v.add("randomizer.variance", "is %s squared units, want at least %d: take more fractional bits", z.Variance, MinDeviceVariance)
	}
	if !v.between("randomizer.clip", z.Clip, 1, pine.MaxBound) || len(v.errs) > 0 {
		return
	}
	least, err := z.noisyBound(q.Dimension, TailBits)
	if err != nil {
		v.add("randomizer.variance", "is so large that no bound can be proved: %v", err)
	} else if q.Bound < least {
		v.add("query.bound", "is %d units, which vectors of %d units exceed with their noise more often than 2^-%d; want at least %d", q.Bound, z.Clip,
			TailBits, least)
	}
}

// A ProvedBound is what devices with a randomizer prove about what they send, which is more than an answer can be.
type ProvedBound struct {
	// Bound is what is proved, C': a norm in units of a [Vector], or the number of ones of a [Multihot].
	Bound uint64 `json:"bound"`
	// Answer is the most that an answer has before it is randomized, C.
	Answer uint64 `json:"answer"`
	// Ratio is C'/C: a device that lies moves the sum by this many times as much as an answer could.
	Ratio float64 `json:"ratio"`
	// Redraw bounds the probability that a device draws again.
	Redraw float64 `json:"redraw"`
	// Delta is what that costs, of the claim's, in one round.
	Delta float64 `json:"delta"`
}

// ProvedBound is false for recipes without [Gaussian] and [RAPPOR], and for those that are not valid.
func (r *Recipe) ProvedBound() (ProvedBound, bool) {
	var b ProvedBound
	s := situation{servers: 1, hidden: r.amplified()}
	switch z := r.Randomizer.(type) {
	case Gaussian:
		q, ok := r.Query.(Vector)
		if !ok {
			return b, false
		}
		delta := 0.0
		if claim, ok := r.Claim.(ApproxDP); ok {
			delta = claim.Delta.FloatDown()
		}
		c, err := r.tail(z, q, s, delta)
		if err != nil {
			return b, false
		}
		b = ProvedBound{Bound: q.Bound, Answer: z.Clip, Redraw: c.odds, Delta: c.spent}
	case RAPPOR:
		q, ok := r.Query.(Multihot)
		if !ok {
			return b, false
		}
		odds, err := z.overweight(q.Length, q.MaxWeight)
		if err != nil {
			return b, false
		}
		b = ProvedBound{Bound: q.MaxWeight, Answer: 1, Redraw: odds}
		if claim, ok := r.Claim.(ApproxDP); ok {
			of := claim.Delta.FloatDown() / float64(max(1, claim.Rounds)) * shuffleShare
			if e, err := r.shuffled(s, of); err == nil {
				b.Delta = e.(accountant.ApproxDP).Delta - of
			}
		}
	default:
		return b, false
	}
	b.Ratio = float64(b.Bound) / float64(b.Answer)
	return b, true
}

// draws is how many devices' noise counts in a sum: of those that follow the recipe, all but one who takes part, sees the result and
// knows their own.
func (r *Recipe) draws(s situation) uint64 {
	n := r.MinBatch
	if s.half {
		n /= 2
	}
	return max(n, 2) - 1
}

// tailCost is what drawing again costs a round.
type tailCost struct {
	odds  float64 // that one device draws again
	spent float64 // of delta
}

// redrawError bounds the relative error of what redraws cost, generously: they are so
// unlikely that a part in 10^9 of it is nothing.
const redrawError = 1e-9

// redrawing rounds up what redraws cost.
func redrawing(cost float64) float64 { return outward.Widened(cost, redrawError) }

// tail is theorem 1 of docs/proofs/device-noise.md, for one of the rounds that share delta.
func (r *Recipe) tail(z Gaussian, q Vector, s situation, delta float64) (tailCost, error) {
	n := r.draws(s)
	odds, err := z.redraws(q)
	if err != nil {
		return tailCost{}, err
	}
	moved := z.Clip + (2*z.Clip+n-1)/n
	if moved > pine.MaxBound {
		return tailCost{}, errors.New("recipe: the clip is too large for so few reports")
	}
	away, err := pine.NoisyOdds(moved, int(q.Dimension), math.Sqrt(z.Variance.Float()), q.Bound)
	if err != nil {
		return tailCost{}, err
	}
	seen := away
	if s.hidden {
		seen = away + odds // with coins, the onlooker may believe in either side of a mixture
	}
	return tailCost{odds, redrawing(float64(n) * (seen + delta*odds))}, nil
}

// deviceSum is one release of the sum of noisy vectors, with the noise of the given number of devices.
func (z Gaussian) deviceSum(q Vector, draws uint64) accountant.Event {
	return accountant.DiscreteGaussian{
		Sigma2: accountant.Rational(z.Variance), Contribution: accountant.Ball(uint64(q.Dimension), float64(z.Clip)), Honest: int(draws),
	}
}

// noisySum is one round of a recipe with noise of the devices' own in a situation, and the delta that it costs beside.
func (r *Recipe) noisySum(z Gaussian, s situation, delta float64) (accountant.Event, float64, error) {
	q, ok := r.Query.(Vector)
	if !ok {
		return nil, 0, &InvalidError{"query", "is not vector"}
	}
	c, err := r.tail(z, q, s, delta)
	if err != nil {
		return nil, 0, &InvalidError{"guarantee", fmt.Sprintf("cannot be computed: %v", err)}
	}
	return z.deviceSum(q, r.draws(s)), c.spent, nil
}

// redrawn adds to a loss of so many rounds what the devices' redraws do to epsilon: laws given events of probability 1-b differ by a
// factor of at most 1/(1-b) more.
func (r *Recipe) redrawn(l Loss, rounds uint32) Loss {
	z, ok := r.Randomizer.(Gaussian)
	if !ok || !l.Finite() {
		return l
	}
	odds, err := z.redraws(r.Query.(Vector))
	if err != nil || odds >= 1 {
		return NoPrivacy
	}
	l.Epsilon += redrawing(float64(rounds) * -math.Log1p(-odds))
	return l
}

// alone is what one report a round of a device with noise of its own gives against who
// reads it.
func (r *Recipe) alone(z Gaussian, delta Decimal, rounds uint32) (Loss, error) {
	q := r.Query.(Vector)
	odds, err := z.redraws(q)
	if err != nil {
		return Loss{}, &InvalidError{"guarantee", fmt.Sprintf("cannot be computed: %v", err)}
	}
	// Who sees the report sees that it is within the bound: delta is divided by (1-b)^rounds, and nothing is added.
	spent := redrawing(delta.FloatDown() * float64(rounds) * odds)
	l, _, err := loss(z.deviceSum(q, 1), rounds, delta, spent, accountant.ReplaceOne)
	return r.redrawn(l, rounds), err
}

// withDeviceNoise fills in what Options leave to [New] about noise of the devices' own: the clip, the variance and what is proved.
func withDeviceNoise(o *Options) error {
	if z, ok := o.Randomizer.(RAPPOR); ok {
		if q, ok := o.Query.(Multihot); ok && q.MaxWeight == 0 {
			// Where it cannot be computed, Validate says why.
			q.MaxWeight, _ = RAPPORWeight(q.Length, z.Epsilon0, TailOdds(o.MinBatch, o.Rounds, o.delta().FloatDown()))
			o.Query = q
		}
		return nil
	}
	z, ok := o.Randomizer.(Gaussian)
	q, vector := o.Query.(Vector)
	if !ok || !vector || z.Clip != 0 {
		return nil
	}
	z.Clip = q.Bound
	if z.Variance == (Rational{}) {
		return calibrateDevices(o, q, z)
	}
	return boundFor(o, q, z)
}

// boundFor sets randomizer and query with the least bound for the noise. Where a batch is so large, or delta so small, that redraws
// would cost more than a hundredth of delta, they are made rarer.
func boundFor(o *Options, q Vector, z Gaussian) error {
	if !z.Variance.valid() || z.Variance.Float() < MinDeviceVariance || q.Dimension < 1 || q.Dimension > MaxElements {
		o.Randomizer = z // for Validate to say why
		return nil
	}
	bits := math.Ceil(-math.Log2(TailOdds(o.MinBatch, o.Rounds, o.delta().FloatDown())))
	bound, err := z.noisyBound(q.Dimension, int(min(bits, 900)))
	if err != nil {
		return &InvalidError{"randomizer.variance", fmt.Sprintf("is so large that no bound can be proved: %v", err)}
	}
	q.Bound = bound
	o.Query, o.Randomizer = q, z
	return nil
}

// calibrateDevices finds the least variance of a device at which the claim holds.
func calibrateDevices(o *Options, q Vector, z Gaussian) error {
	if o.Epsilon == (Decimal{}) {
		return &InvalidError{"randomizer.variance", "is missing, and there is no epsilon to calibrate it to"}
	}
	const digits = 1 << 6
	set := func(x float64) (*Options, error) {
		t := *o
		v, err := NewRational(uint64(math.Ceil(x*digits)), digits)
		if err != nil {
			return nil, err
		}
		z.Variance = v
		return &t, boundFor(&t, q, z)
	}
	clip := float64(z.Clip)
	draws := float64(max(o.MinBatch, 2) - 1)
	x, ok, err := search.Least(search.Options{
		Guess: math.Max(MinDeviceVariance, clip*clip/draws), Low: MinDeviceVariance, High: 1 << 52, Precision: 1e-3, Budget: o.Epsilon.FloatDown(),
	}, func(x float64) (float64, error) {
		t, err := set(x)
		if err != nil {
			return 0, err
		}
		return t.deviceLoss()
	})
	if err != nil {
		return fmt.Errorf("recipe: calibrate: %w", err)
	}
	if !ok {
		return fmt.Errorf("recipe: calibrate: %w", accountant.ErrNoGuarantee)
	}
	t, err := set(x)
	if err == nil {
		o.Query, o.Randomizer = t.Query, t.Randomizer
	}
	return err
}

// deviceLoss is epsilon of the options' recipe while it is calibrated.
func (o *Options) deviceLoss() (float64, error) {
	r := &Recipe{
		Query: o.Query, Randomizer: o.Randomizer, Participation: o.Participation, Noise: NoNoise{}, MinBatch: o.MinBatch,
		Rate: o.Rate, Dummies: o.Dummies, Cover: o.Cover, Relay: o.Relay, Targeting: o.Targeting,
	}
	if r.Participation == nil {
		r.Participation = Always{}
	}
	s := situation{servers: 1, hidden: r.amplified()}
	if s.hidden && r.Dummies == nil {
		// Those that New chooses for this noise.
		if r.Rate == nil {
			return 0, &InvalidError{"rate", "is missing: sampled recipes say how many devices decide"}
		}
		if err := r.defaultDummies(Rational{1, 2}); err != nil {
			return 0, err
		}
		if err := r.settleDummies(nil); err != nil {
			return 0, err
		}
	}
	l, _, err := r.proved(s, o.delta(), max(1, o.Rounds), r.Neighbours())
	return l.Epsilon, err
}

// delta of the claim.
func (o *Options) delta() Decimal {
	if o.Delta == (Decimal{}) {
		return Decimal{1, 9}
	}
	return o.Delta
}
