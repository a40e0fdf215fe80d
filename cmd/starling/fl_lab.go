//go:build !lean

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"

	"github.com/starling-agg/starling/lab"
	"github.com/starling-agg/starling/recipe"
)

func flLabCommand() *command {
	return &command{
		name: "lab", args: "--sites N --dimension D [--keep DIR] [flags]",
		short: "Run all parties and the agents of some sites, for training processes of yours",
		long: `Starts leader, helper, relay, gateway and a controller on this machine, and an agent for each of N sites, and runs until it is
interrupted. Sites' processes contribute at the agents' sockets, and a training process of the organisation's begins rounds and reads
sums at the controller's: docs/agent.md and docs/learning.md have what they answer, docs/flower.md how Flower does all that. Sockets
and files are in DIR; keys, reports, proofs and noise are real.

With --persons K a contribution may have the updates of K people of a site, each cut to the norm and counting a K-th, and epsilon is
one person's: each trusts the own site with the cutting, and nobody else. Without it epsilon is a site's.
With --sample sites toss coins, which count for nothing with --persons: a site has one coin for all of them.`,
		examples: [][2]string{
			{"starling fl lab --sites 4 --dimension 650 --keep parties", "four sites, rounds of 10 seconds"},
			{"starling fl lab --sites 4 --dimension 650 --persons 360 --epsilon 4", "four sites of 360 people, for whom epsilon is"},
			{"starling fl lab --sites 20 --dimension 26010 --round 5s --epsilon 8", "twenty, of which training processes are ready"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object once all parties run")
			var o lab.SitesOptions
			flags.IntVar(&o.Sites, "sites", 0, "how many sites there are: `N`")
			flags.IntVar(&o.Dimension, "dimension", 0, "how many parameters the model has: `D`")
			flags.IntVar(&o.Rounds, "rounds", 10, "train for `N` rounds at most")
			flags.IntVar(&o.Persons, "persons", 1, "a contribution has the updates of `K` people at most")
			flags.Float64Var(&o.Clip, "clip", 1, "cut updates to the norm `C`")
			flags.DurationVar(&o.Precision, "round", 10*time.Second, "length of a round, whole seconds: `DURATION`")
			flags.StringVar(&o.Keep, "keep", "", "leave the deployment behind in `DIR`, which is new or empty")
			epsilon := flags.String("epsilon", "4", "all rounds together cost (`E`, delta)")
			delta := flags.String("delta", "1e-5", "all rounds together cost (epsilon, `D`)")
			sample := flags.String("sample", "1", "a site takes part in a round with probability `Q`, by its agent's secret coin")
			return func(ctx context.Context, e *env, args []string) error {
				if err := noArgs("fl lab", args); err != nil {
					return err
				}
				var err error
				if o.Epsilon, err = positive(*epsilon); err != nil {
					return usageOf("fl lab", fmt.Errorf("--epsilon: %w", err))
				}
				if o.Delta, err = positive(*delta); err != nil {
					return usageOf("fl lab", fmt.Errorf("--delta: %w", err))
				}
				if o.Sample, err = recipe.ParseRational(*sample); err != nil {
					return usageOf("fl lab", fmt.Errorf("--sample: %w", err))
				}
				if o.Dimension == 0 {
					return usageOf("fl lab", errors.New("--dimension is missing: how many parameters the model has"))
				}
				if err := o.Validate(); err != nil {
					return usageOf("fl lab", err)
				}
				watch := newProgress(e)
				defer watch.end()
				o.Progress = watch.show
				var said error
				o.Ready = func(s lab.Sites) {
					if *asJSON {
						said = json.NewEncoder(e.stdout).Encode(s) // a line, for who reads one
						return
					}
					fmt.Fprint(e.stdout, s.Text())
					fmt.Fprintln(e.stderr, "all parties run; Ctrl-C stops them ("+strconv.Itoa(len(s.Agents))+" agents)")
				}
				if err := lab.RunSites(ctx, o); err != nil {
					return err
				}
				return said
			}
		},
	}
}
