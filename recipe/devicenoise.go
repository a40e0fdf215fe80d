package recipe

import (
	"errors"
	"fmt"
	"math"
	"math/bits"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/outward"
	"github.com/starling-agg/starling/vdaf/pine"
)

// Gaussian is noise of the devices' own on a [Vector]: the device scales its vector to a
// norm of at most Clip, adds an exact discrete Gaussian of this variance to each integer,
// draws again while the norm is above the query's Bound, and proves Bound. The noise of
// all honest devices adds up in the sum, and each report carries its own wherever it is
// read. A device without an answer sends noise alone. See docs/proofs/device-noise.md.
type Gaussian struct {
	// Variance of one device's noise in each entry, in squared units of 2^-FracBits; at
	// least MinDeviceVariance. account.New calibrates it to Options.Epsilon where it is
	// zero.
	Variance Rational
	// Clip is the norm before the noise, in units: the sensitivity, and twice it where
	// one vector replaces another. Where it is zero account.New takes the query's Bound
	// for it, and makes Bound the least that vector and noise exceed with probability
	// 2^-TailBits.
	Clip uint64
}

// TailBits: what a device proves about a draw of its own noise, a norm or a number of
// ones, is exceeded with probability at most 2^-TailBits. Longer draws are drawn again,
// and what that costs is charged to delta.
const TailBits = 40

// MinDeviceVariance is the least variance of a device's noise: below it, sums of draws
// are not close enough to a discrete Gaussian.
const MinDeviceVariance = 8

func (Gaussian) randomizer() uint8 { return tagDeviceGaussian }

func (z Gaussian) append(b *cryptobyte.Builder) {
	addRational(b, z.Variance)
	b.AddUint64(z.Clip)
}

func readGaussian(d *decoder) Randomizer {
	return Gaussian{Variance: d.rational("variance"), Clip: d.u64("clip")}
}

// parseGaussian reads a variance; nothing is one that account.New calibrates.
func parseGaussian(s string) (Randomizer, error) {
	if s == "" {
		return Gaussian{}, nil
	}
	v, err := ParseRational(s)
	return Gaussian{Variance: v}, err
}

func (z Gaussian) params() any {
	return map[string]any{"variance": z.Variance.String(), "clip": z.Clip}
}

func (Gaussian) conditions(r *Recipe) []string {
	return []string{fmt.Sprintf("at least %d reports of each batch are of devices that follow the recipe, and all but one of those keep "+
		"their noise to themselves", r.MinBatch)}
}

// given is of norm Clip.
func (z Gaussian) given(q Query) Query {
	if v, ok := q.(Vector); ok {
		v.Bound = z.Clip
		return v
	}
	return q
}

// Proves is Bound, of Clip.
func (z Gaussian) Proves(q Query) (bound, answer uint64, ok bool) {
	v, ok := q.(Vector)
	return v.Bound, z.Clip, ok
}

// sum is the sum of vectors, with the noise of a number of devices.
func (z Gaussian) sum(q Vector, draws uint64) []release.Release {
	return []release.Release{release.One(release.DiscreteGaussian{
		Variance: z.Variance, Contribution: release.Ball(uint64(q.Dimension), float64(z.Clip)), Honest: int(draws), Rounded: true,
	})}
}

func (z Gaussian) round(r *Recipe, s Situation, delta float64) (Disclosure, error) {
	q, ok := r.Query.(Vector)
	if !ok {
		return Disclosure{}, uncomputed(errNoVector)
	}
	cost, err := r.deviceTail(z, q, s, delta)
	if err != nil {
		return Disclosure{}, uncomputed(err)
	}
	return Disclosure{Releases: z.sum(q, r.Draws(s.Half)), Odds: cost.Odds, Redrawn: cost.Spent}, nil
}

// report implements [VectorRandomizer]: an observer of a report sees that it is within
// the bound, so that delta is divided by 1-b for a redraw of probability b, and nothing
// is added.
func (z Gaussian) report(r *Recipe, delta float64) (Disclosure, error) {
	q, ok := r.Query.(Vector)
	if !ok {
		return Disclosure{}, uncomputed(errNoVector)
	}
	odds, err := z.Redraws(q)
	if err == nil && odds >= 1 {
		err = errors.New("reports are always drawn again")
	}
	if err != nil {
		return Disclosure{}, uncomputed(err)
	}
	return Disclosure{Releases: z.sum(q, 1), Odds: odds, Redrawn: RedrawCost(delta * odds)}, nil
}

var errNoVector = errors.New("recipe: noise on no vector")

// Noised clips, adds the device's noise, and draws again while the sum is longer than
// what is proved.
func (z Gaussian) Noised(q Query) (func(x []float64) ([]int64, error), error) {
	v, ok := q.(Vector)
	if !ok {
		return nil, errNoVector
	}
	sampler, err := z.Sampler()
	if err != nil {
		return nil, err
	}
	proved, ok := v.VDAFConfig().(dap.PineConfig)
	if !ok {
		return nil, fmt.Errorf("recipe: no noise on vectors of %v", v.Proof)
	}
	proved.Bound = z.Clip
	clipped, err := pine.New(proved.PineParams())
	if err != nil {
		return nil, err
	}
	return func(x []float64) ([]int64, error) {
		e, err := pine.Encode(clipped, x, v.Encoding())
		if err != nil {
			return nil, err
		}
		defer clear(e)
		units := make([]int64, len(e))
		for range maxRedraws {
			sampler.Sample(units)
			for i, x := range e {
				units[i] += x
			}
			if normWithin(units, v.Bound) {
				return units, nil
			}
		}
		panic("recipe: internal error: the source of random bits is stuck")
	}, nil
}

// maxRedraws ends a loop where only a stuck source of bits can be: it is passed with
// probability 2^-2560.
const maxRedraws = 64

// normWithin says whether the norm of e is at most bound, below 2^50, in time that
// depends on the length alone. Entries are below 2^63 in absolute value.
func normWithin(e []int64, bound uint64) bool {
	var hi, lo, over uint64
	for _, x := range e {
		y := uint64((x ^ x>>63) - x>>63)
		var h, l, c uint64
		h, l = bits.Mul64(y, y)
		lo, c = bits.Add64(lo, l, 0)
		hi, c = bits.Add64(hi, h, c)
		over |= c
	}
	h, l := bits.Mul64(bound, bound)
	_, b := bits.Sub64(l, lo, 0)
	_, b = bits.Sub64(h, hi, b)
	return b|over == 0
}

func (Gaussian) counts(sums []int64) ([]int64, error) { return sums, nil }
func (z Gaussian) gaussian() Rational                 { return z.Variance }
func (Gaussian) exact() bool                          { return false }

func (z Gaussian) blurs(p *probabilities, _ Query) { p.added = z.Variance.Float() }

func (z Gaussian) String() string {
	return fmt.Sprintf("the device scales its vector to a length of at most %d units and adds whole-number Gaussian noise of standard "+
		"deviation %.4g units (variance %s) to each number", z.Clip, math.Sqrt(z.Variance.Float()), z.Variance)
}

// Sampler draws the noise of one device.
func (z Gaussian) Sampler() (*noise.DiscreteGaussian, error) {
	if !z.Variance.Valid() {
		return nil, errors.New("recipe: the variance is not a positive fraction in lowest terms")
	}
	return noise.NewDiscreteGaussian(z.Variance.Num, z.Variance.Den)
}

// NoisyBound is the least bound that vector and noise exceed with probability at most
// 2^-bits.
func (z Gaussian) NoisyBound(dimension uint32, bits int) (uint64, error) {
	return pine.NoisyBound(z.Clip, int(dimension), math.Sqrt(z.Variance.Float()), bits)
}

// Redraws bounds the probability that a device draws again.
func (z Gaussian) Redraws(q Vector) (float64, error) {
	return pine.NoisyOdds(z.Clip, int(q.Dimension), math.Sqrt(z.Variance.Float()), q.Bound)
}

func (z Gaussian) validate(v *validator, r *Recipe) {
	q, ok := r.Query.(Vector)
	if !ok {
		v.add("query", "is not vector, which noise of the devices' own needs: proofs of other queries leave no room for numbers below 0")
		return
	}
	if pineTypes[q.Proof] == 0 {
		v.add("query.proof", "of %v proves norm 1 of real numbers; with noise of the devices' own take a proof of package pine", q.Proof)
	}
	if r.Noisy() {
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
	least, err := z.NoisyBound(q.Dimension, TailBits)
	if err != nil {
		v.add("randomizer.variance", "is so large that no bound can be proved: %v", err)
	} else if q.Bound < least {
		v.add("query.bound", "is %d units, which vectors of %d units exceed with their noise more often than 2^-%d; want at least %d", q.Bound, z.Clip,
			TailBits, least)
	}
}

// A ProvedBound is what devices with a randomizer prove about what they send, which is
// more than an answer can be.
type ProvedBound struct {
	// Bound is what is proved, C': a norm in units of a [Vector], or the number of ones
	// of a [Multihot].
	Bound uint64 `json:"bound"`
	// Answer is the most that an answer has before it is randomized, C.
	Answer uint64 `json:"answer"`
	// Ratio is C'/C: a device that lies moves the sum by this many times as much as an
	// answer could.
	Ratio float64 `json:"ratio"`
	// Redraw bounds the probability that a device draws again.
	Redraw float64 `json:"redraw"`
	// Delta is what that costs, of the claim's, in one round.
	Delta float64 `json:"delta"`
}

// Draws is how many devices' noise counts in a sum: of those that follow the recipe, all
// but one who takes part, sees the result and knows their own.
func (r *Recipe) Draws(half bool) uint64 {
	n := r.MinBatch
	if half {
		n /= 2
	}
	return max(n, 2) - 1
}

// A tailCost is what drawing again costs a round.
type tailCost struct {
	Odds  float64 // that one device draws again
	Spent float64 // of delta
}

// redrawError bounds the relative error of what redraws cost, generously: they are so
// unlikely that a part in 10^9 of it is nothing.
const redrawError = 1e-9

// RedrawCost rounds up what redraws cost.
func RedrawCost(cost float64) float64 { return outward.Widened(cost, redrawError) }

// deviceTail is theorem 1 of docs/proofs/device-noise.md, for one of the rounds that
// share delta.
func (r *Recipe) deviceTail(z Gaussian, q Vector, s Situation, delta float64) (tailCost, error) {
	n := r.Draws(s.Half)
	odds, err := z.Redraws(q)
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
	if s.Hidden {
		seen = away + odds // with coins, the onlooker may believe in either side of a mixture
	}
	return tailCost{odds, RedrawCost(float64(n) * (seen + delta*odds))}, nil
}
