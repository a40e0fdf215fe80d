package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/fl/outlook"
	"github.com/starling-agg/starling/recipe"
)

func flPlanCommand() *command {
	return &command{
		name: "plan", args: "--devices N --dimension D [--sample Q] [--rounds N] [--epsilon E] [--json]",
		short: "Say what the rounds of a training will be like, before anything is published",
		long: `Calibrates the noise of a training's rounds and prints what they will be like: reports, how often a round is skipped for
want of them, the noise beside the longest signal that there can be, what a report costs devices and servers (measured on this
machine), and epsilon as it is spent; then the same for other choices. Nothing is written or published. Noise and sums are
what "starling recipe new" with a vector query of as many entries and the same numbers would have.`,
		examples: [][2]string{
			{"starling fl plan --devices 8000 --dimension 7850 --sample 1/8 --rounds 120", "a model of 7,850 numbers over 8,000 devices"},
			{"starling fl plan --devices 50 --dimension 26010 --rounds 5 --epsilon 8", "a few sites, all of them in each round"},
			{"starling fl plan --devices 100000 --dimension 100000 --donate 1/2:8:1 --rounds 20", "each device in a random one of eight slots of a round"},
			{"starling fl plan --devices 100000 --dimension 100000 --checkin fixed:1/2:8:1 --rounds 20", "the same by random check-ins, whose secret counts"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			var o outlook.Options
			flags.Uint64Var(&o.Devices, "devices", 0, "how many devices decide in a round: `N`")
			dimension := flags.Uint64("dimension", 0, "how many parameters the model has: `D`")
			sample := flags.String("sample", "", "each device reports with probability `Q`, as 1/8")
			donate := flags.String("donate", "", "it reports with probability Q in a random one of M slots of L units: `Q:M:L`")
			checkin := flags.String("checkin", "", "it checks in at a secret slot, as for recipe new: `KIND`")
			rounds := flags.Uint64("rounds", 100, "train for `N` rounds")
			epsilon := flags.String("epsilon", "4", "all rounds together cost (`E`, delta)")
			delta := flags.String("delta", "1e-5", "all rounds together cost (epsilon, `D`)")
			flags.Uint64Var(&o.MinBatch, "min-batch", 0, "release no round of fewer than `B` answers; half of what is expected if not given")
			precision := flags.Uint64("time-precision", 60, "report times are multiples of `SECONDS`")
			flags.Uint64Var(&o.Round, "round", 0, "length of a round in units of the precision; 1, or all slots, if not given: `N`")
			return func(ctx context.Context, e *env, args []string) error {
				if err := noArgs("fl plan", args); err != nil {
					return err
				}
				wrong := func(err error) error { return usageOf("fl plan", err) }
				if o.Devices == 0 || *dimension == 0 {
					return wrong(errors.New("--devices and --dimension are required: how many devices decide in a round, and how many parameters the model has"))
				}
				if *rounds == 0 {
					return wrong(errors.New("--rounds is 0, want 1 or more"))
				}
				o.Dimension, o.Rounds = uint32(min(*dimension, recipe.MaxElements+1)), uint32(min(*rounds, recipe.MaxRounds+1))
				o.Precision = dap.TimePrecision(*precision)
				var err error
				if o.Epsilon, err = positive(*epsilon); err != nil {
					return wrong(fmt.Errorf("--epsilon: %w", err))
				}
				if o.Delta, err = positive(*delta); err != nil {
					return wrong(fmt.Errorf("--delta: %w", err))
				}
				switch {
				case *sample != "" && *donate != "", *checkin != "" && *sample+*donate != "":
					return wrong(errors.New("--sample, --donate and --checkin exclude each other"))
				case *checkin != "":
					o.Participation, err = recipe.ParseCheckIn(*checkin)
				case *sample != "":
					o.Participation, err = recipe.ParseBernoulli(*sample)
				case *donate != "":
					o.Participation, err = recipe.ParseDonationTime(*donate)
				}
				if err != nil {
					return wrong(err)
				}
				speed, err := e.speed()
				if err != nil {
					return err
				}
				p, err := remembered(ctx, e, o, func() (*outlook.Plan, error) { return outlook.Make(o, speed) })
				if invalid := new(recipe.InvalidError); errors.As(err, &invalid) || errors.Is(err, release.ErrNoGuarantee) {
					return &failure{exitUsage, err, "ask for more devices, more epsilon or fewer rounds: starling fl plan --help"}
				}
				if err != nil {
					return err
				}
				if *asJSON {
					return e.json(p)
				}
				return p.WriteText(e.stdout, e.prose())
			}
		},
	}
}
