package recipe

import (
	"errors"
	"fmt"
	"math"

	"golang.org/x/crypto/cryptobyte"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/correlated"
	"github.com/starling-agg/starling/dp/noise"
	"github.com/starling-agg/starling/dp/release"
)

// CorrelatedGaussian: each server adds whole-number Gaussian noise that cancels over
// rounds, each of its own on its share, so that one honest server is enough. Sums over
// rounds are less noisy than with [DiscreteGaussian], single rounds somewhat more. See
// package correlated, which has the numbers, and docs/proofs/correlated-noise.md.
//
// A round is [Recipe.Round]. Batches are released in the order of time, each of fewer
// rounds than Series.Separation, and a device keeps Series.Separation between any two
// rounds that it answers in; it counts them up to the claim's Rounds.
type CorrelatedGaussian struct {
	// Variance is sigma^2 of the draws behind the noise, in squared units of the aggregate.
	Variance Rational
	// Series are the strategy, of two bands or more, the separation, below 2^32, and the
	// number of batches.
	Series correlated.Series
}

func (CorrelatedGaussian) noise() uint8 { return tagCorrelatedGaussian }

func (n CorrelatedGaussian) String() string {
	return fmt.Sprintf("each server adds whole-number Gaussian noise to every number released, of which later batches take back a part: draws of standard "+
		"deviation %.4g (variance %s), each reaching %d batches, for up to %d batches in the order of time", math.Sqrt(n.Variance.Float()), n.Variance,
		n.Series.Strategy.Bands(), n.Series.Rounds)
}

// Norm2 is the squared norm of a column of the strategy.
func (n CorrelatedGaussian) Norm2() Rational {
	num, den := n.Series.Strategy.Norm2()
	return Rational{Num: num, Den: den}
}

// Errors are the variances of what one server adds, to each of the first rounds and to
// their sums, in squared units of the aggregate.
func (n CorrelatedGaussian) Errors(rounds int) correlated.Errors {
	return n.Series.Strategy.Forecast(n.Variance.Float(), rounds)
}

// variance is that of the last batch, which is the largest.
func (n CorrelatedGaussian) variance() float64 {
	if n.Series.Validate() != nil {
		return math.Inf(1)
	}
	e := n.Errors(int(n.Series.Rounds))
	return 2 * e.Round[len(e.Round)-1]
}

// Spread is that of the last batch, which strays most.
func (n CorrelatedGaussian) Spread() Spread { return normalSpread(math.Sqrt(n.variance())) }

// Sampler draws what the noise is made of (package correlated), in units of 2^-k.
func (n CorrelatedGaussian) Sampler() (noise.Sampler, error) {
	return n.Series.Strategy.Sampler(n.Variance.Num, n.Variance.Den)
}

func (CorrelatedGaussian) gaussian() Rational { return Rational{} }
func (CorrelatedGaussian) divided() bool      { return false }
func (CorrelatedGaussian) norm() int          { return 2 }

// Mechanism is one participation of a device, by the noise of one honest server.
func (n CorrelatedGaussian) Mechanism(c release.Contribution, _ int) (release.Mechanism, error) {
	return release.CorrelatedGaussian{Variance: n.Variance, Norm2: n.Norm2(), Contribution: c}, nil
}

func (CorrelatedGaussian) Pure() bool   { return false }
func (CorrelatedGaussian) AddsUp() bool { return true }

// Stated is 0: what is stated is of draws over rounds.
func (CorrelatedGaussian) Stated() float64 { return 0 }

// Parameter is the variance.
func (n CorrelatedGaussian) Parameter() Rational { return n.Variance }

// Sized is the noise with another variance.
func (n CorrelatedGaussian) Sized(variance Rational) Noise {
	n.Variance = variance
	return n
}

// Stronger is the noise with a variance that is larger by the share, rounded up.
func (n CorrelatedGaussian) Stronger(share float64) (Noise, error) {
	var err error
	n.Variance, err = larger(n.Variance, share)
	return n, err
}

// Correlated returns the recipe's noise if it is correlated over rounds.
func (r *Recipe) Correlated() (CorrelatedGaussian, bool) {
	n, ok := r.Noise.(CorrelatedGaussian)
	return n, ok
}

// Independent is the variance that each server would draw for each batch alone, for the
// same guarantee by the same accounting.
func (n CorrelatedGaussian) Independent() float64 { return n.Variance.Float() / n.Norm2().Float() }

// A DeviceRule is what a device's ledger holds it to in one recipe.
type DeviceRule struct {
	// Rounds is how often the device may decide.
	Rounds uint32
	// Separation is how many rounds after one decision the next may follow: 1, unless the
	// noise is correlated.
	Separation uint64
}

// DeviceRule is what the guarantee counts on devices for.
func (r *Recipe) DeviceRule() DeviceRule {
	rule := DeviceRule{Rounds: r.DecisionRounds(), Separation: 1}
	if n, ok := r.Correlated(); ok {
		rule.Separation = n.Series.Separation
	}
	return rule
}

// validate checks the noise, and the choices that go with it.
func (n CorrelatedGaussian) validate(v *validator, r *Recipe) {
	if !n.Variance.Valid() {
		v.add("noise.variance", "is not a positive fraction in lowest terms")
	} else if _, err := n.Series.Strategy.Sampler(n.Variance.Num, n.Variance.Den); err != nil {
		v.add("noise", "cannot be drawn: %v", err)
	}
	if err := n.Series.Validate(); err != nil {
		v.add("noise", "cannot be drawn: %v", err)
	}
	if n.Series.Strategy.Bands() == 1 {
		v.add("noise.coefficients", "are missing: noise of each batch's own is discrete-gaussian")
	}
	v.between("noise.separation", n.Series.Separation, 1, math.MaxUint32)
	if r.on().leaderSelected() {
		v.add("path.batch_mode", "is not time-interval: correlated noise follows the calendar by which devices keep their distance")
	}
	if r.Sampled() {
		v.add("participation", "by coins does not go with correlated noise, whose guarantee does not use them; let every device take part")
	}
	if c, ok := r.Claim.(ApproxDP); ok && c.HonestServers != 1 {
		v.add("claim.honest_servers", "are %d, want 1: the correlated noise of two servers is not counted together", c.HonestServers)
	}
}

func (n CorrelatedGaussian) append(b *cryptobyte.Builder) {
	s := n.Series
	if s.Separation > math.MaxUint32 || s.Rounds > correlated.MaxRounds || s.Strategy.Bands() == 0 {
		b.SetError(errors.New("correlated noise without a strategy, or of a separation or a number of batches that no field holds"))
		return
	}
	addRational(b, n.Variance)
	b.AddUint32(uint32(s.Separation))
	b.AddUint32(uint32(s.Rounds))
	b.AddUint8(s.Strategy.Bits())
	b.AddUint16LengthPrefixed(func(b *cryptobyte.Builder) {
		for _, c := range s.Strategy.Coefficients() {
			b.AddUint32(uint32(c))
		}
	})
}

// readCorrelated reads
//
//	struct {
//	  uint64 variance_num, variance_den;
//	  uint32 separation, rounds;
//	  uint8 bits;
//	  int32 coefficients<4..252>;   // c_1, c_2, ... in units of 2^-bits, the last not 0
//	}
func readCorrelated(d *decoder) Noise {
	n := CorrelatedGaussian{Variance: d.rational("variance")}
	n.Series.Separation = uint64(d.u32("separation"))
	n.Series.Rounds = uint64(d.u32("rounds"))
	bits := d.u8("bits")
	list := decoder{s: d.bytes16("coefficients"), err: d.err}
	var c []int32
	for list.err == nil && !list.s.Empty() && len(c) < correlated.MaxBands {
		c = append(c, int32(list.u32("coefficients")))
	}
	list.end("coefficients")
	if d.err = list.err; d.err != nil {
		return n
	}
	var err error
	if n.Series.Strategy, err = correlated.New(bits, c); err != nil || n.Series.Rounds > correlated.MaxRounds {
		d.fail("coefficients are those of no strategy, or there are too many batches")
	}
	return n
}

func (n CorrelatedGaussian) params() any {
	return map[string]any{
		"variance": n.Variance.String(), "separation": n.Series.Separation, "rounds": n.Series.Rounds,
		"bits": n.Series.Strategy.Bits(), "coefficients": n.Series.Strategy.Coefficients(),
	}
}

// describe says what the noise does to results.
func (n CorrelatedGaussian) describe(line func(label, format string, args ...any)) {
	e := n.Errors(int(n.Series.Rounds))
	last := len(e.Round) - 1
	line("", "what one server adds has standard deviation %.4g at most in one batch, and %.4g in the sum over all %d (%.4g if each batch had noise of its "+
		"own, at the same guarantee)", math.Sqrt(e.Round[last]), math.Sqrt(e.Prefix[last]), last+1, math.Sqrt(n.Independent()*float64(last+1)))
}

// over says what the loss covers.
func (n CorrelatedGaussian) over(participations uint32) string {
	return fmt.Sprintf("all of up to %d batches together, with its reports in at most %d of them", n.Series.Rounds, participations)
}

// duration writes a number of time units for people.
func duration(units uint64, p dap.TimePrecision) string {
	s := float64(units) * float64(p)
	for _, unit := range []struct {
		seconds float64
		name    string
	}{{86400, "days"}, {3600, "hours"}, {60, "minutes"}} {
		if s >= 2*unit.seconds {
			return fmt.Sprintf("%.4g %s", s/unit.seconds, unit.name)
		}
	}
	return fmt.Sprintf("%.4g seconds", s)
}
