package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
	"github.com/starling-agg/starling/recipe/plan"
)

// noiseFlags are the flags of `recipe new` about what any one answer may show. None of
// them stands for exact results by its absence: those are --no-noise, spelled out.
type noiseFlags struct {
	epsilon, delta, kind *string
	correlate, apart     *uint64
	half, none           *bool
}

func newNoiseFlags(flags *flag.FlagSet) *noiseFlags {
	return &noiseFlags{
		epsilon:   flags.String("epsilon", "", "the privacy loss `E` to calibrate the noise to, above 0"),
		delta:     flags.String("delta", "0.000000001", "the probability `D` beside it; 0 with --noise discrete-laplace"),
		kind:      flags.String("noise", string(account.GaussianNoise), "discrete-gaussian, discrete-laplace or correlated-gaussian: `KIND`"),
		correlate: flags.Uint64("correlate", 0, "with --noise correlated-gaussian: over `N` batches, in the order of time"),
		apart:     flags.Uint64("separation", 0, "with --noise correlated-gaussian: people stay away `S` rounds from one answer to the next"),
		half:      flags.Bool("noise-half", false, "each server draws half of the noise, and both must be honest for the guarantee"),
		none:      flags.Bool("no-noise", false, "release exact results, without any differential privacy"),
	}
}

// set fills in the options, once the randomizer is known: one that says how much it
// blurs needs no epsilon beside it.
func (f *noiseFlags) set(o *account.Options) (err error) {
	o.Kind = account.NoiseKind(*f.kind)
	if o.Delta, err = recipe.ParseDecimal(*f.delta); err != nil {
		return fmt.Errorf("--delta: %w", err)
	}
	if o.Delta == (recipe.Decimal{}) && !*f.none {
		if o.Pure = true; o.Kind != account.LaplaceNoise || o.Randomizer != nil {
			return errors.New("--delta is 0, which only whole-number Laplace noise of the servers gives, --noise discrete-laplace: other noise lets a result " +
				"tell any amount, with a chance above 0; leave --delta out for the default, a chance of 0.000000001")
		}
	}
	series := o.Kind == account.CorrelatedNoise
	if series != (*f.correlate != 0) || series != (*f.apart != 0) {
		return errors.New("--noise correlated-gaussian, --correlate and --separation go together")
	}
	if series {
		if o.Series, err = plan.Series(*f.correlate, *f.apart); err != nil {
			return err
		}
	}
	if *f.half {
		o.Share, o.HonestServers = recipe.DrawsHalf, 2
	}
	switch {
	case *f.none && (*f.epsilon != "" || *f.half || series || o.Randomizer != nil):
		return errors.New("--no-noise goes with no --epsilon, --noise-half, --correlate and --randomizer: its results are exact")
	case *f.none, *f.epsilon == "" && o.Randomizer != nil:
		return nil
	case *f.epsilon == "":
		return errors.New("--epsilon is missing: how much a result may show of any one answer, as 1; exact results, which hide nothing, are --no-noise")
	}
	if o.Epsilon, err = recipe.ParseDecimal(*f.epsilon); err != nil {
		return fmt.Errorf("--epsilon: %w; exact results, which hide nothing, are --no-noise", err)
	}
	if o.Epsilon == (recipe.Decimal{}) {
		return errors.New("--epsilon is 0, a result that shows nothing of anybody, which no noise gives: want one above 0, as 1; exact results, " +
			"which hide nothing, are --no-noise")
	}
	return nil
}

// parsePrecision reads the unit of a recipe's times, in whole seconds.
func parsePrecision(d time.Duration) (dap.TimePrecision, error) {
	const most = recipe.MaxTimePrecision * time.Second
	if d < time.Second || d > most || d%time.Second != 0 {
		return 0, fmt.Errorf("--precision is %v, want whole seconds from 1s to %v", d, most)
	}
	return dap.TimePrecision(d / time.Second), nil
}

// loose is how many times the computed epsilon a claim may be before it is told: those
// that are calibrated are hardly above it.
const loose = 1.5

// warnLoose says where a recipe claims a much larger epsilon than it computes to: it
// would use up a person's budget for nothing.
func warnLoose(w io.Writer, r *recipe.Recipe) {
	claim, ok := r.Claim.(recipe.ApproxDP)
	g, err := account.Guarantee(r)
	if !ok || err != nil || !g.Finite() || claim.Epsilon.FloatDown() <= loose*g.Epsilon {
		return
	}
	fmt.Fprintf(w, "It claims epsilon %s, and %s is what its choices give: --epsilon %[2]s claims no more than that\n", claim.Epsilon, recipe.Above(g.Epsilon))
}

// positive reads a loss, of which zero would be taken for a default.
func positive(text string) (recipe.Decimal, error) {
	d, err := recipe.ParseDecimal(text)
	if err == nil && d == (recipe.Decimal{}) {
		err = errors.New("0; want more")
	}
	return d, err
}
