//go:build !lean

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/starling-agg/starling/lab"
	"github.com/starling-agg/starling/recipe"
)

// errSenders is why credentials are not for those devices alone that send.
var errSenders = errors.New("--credentials: no \"senders\": devices that visit the attester only if they will send tell it their coins, and leader and helper " +
	"hold a round for which fewer have credentials than its dummies count on, so every device visits, and makes what it would show, whatever its coin says")

func labCommand() *command {
	return &command{
		name: "lab", args: "[--malicious N | --population N | --recipe NAME] [--keep DIR] [--out DIR] [--json]",
		short: "Play every party on this machine: a private histogram of real data",
		long: `Starts a leader and a helper on loopback, sends one sealed report for each of the 20,190 rows of the RAND Health
Insurance Experiment, verifies and adds them up, and prints the histogram with 95 % intervals beside the truth.
It also writes a picture, starling-lab.png, and a table, starling-lab.csv.

With --population the rows are resampled to so many devices, each of which decides by a secret coin whether to report, hides
the count by dummies, and sends through a relay and a gateway. --recipe needles asks about a rare answer, which is then
sampled more often, under cover. The measured error is printed beside its forecast. With --credentials all the recipe counts devices:
each enrols at an attester, gets credentials of two issuers and shows them, and takes recipe and keys from a transparency log with two witnesses.

With --recipe health each row gives its visits, at most 20, under one of four ratings of health, and proves that they add up to
no more; neither number nor rating shows.

With --recipe groups each row gives the same and both stay secret, but what is released has the sum, the size and the mean of each rating, beside the truth.
With --path shuffled or direct no server adds noise: devices blur their answers, by question & answer or the randomized group.

With --recipe quantiles each row marks the nodes over its visits in a tree over the numbers to 99, and nine deciles are printed beside the truth.

With --recipe cloak the first 2,000 rows, or as many as --population says, send shares of their visits through relay, gateway and two hops to an analyzer,
with no server to add noise, and sum and mean are printed beside the truth. With --recipe cloak-visits
1,000 send shares of the histogram.
With --recipe cloak --credentials all, and a population of some hundreds, each
shows a credential to each hop, and no hop is trusted not to pad.

With --recipe vector 2,000 devices send vectors of 10,000 real numbers made of the table, whose norm each proves; the released
mean is compared with the exact one. With --projection they send fewer numbers, for more error. With --correlated smaller
vectors are summed round after round, with noise of which later rounds take back a part; devices keep their distance, and the
error of the running sums is printed beside its forecast.`,
		examples: [][2]string{
			{"starling lab", "about ten seconds on two cores"},
			{"starling lab --malicious 200", "with 200 invalid reports among them, rejected by reason"},
			{"starling lab --population 60000 --sampling 0.1", "secret coins, dummies, relay and gateway"},
			{"starling lab --population 6000 --sampling 0.5 --credentials all", "each device counts once: attester, issuers, log and witnesses"},
			{"starling lab --recipe cloak --population 200 --credentials all", "two hops of which none is trusted not to pad"},
			{"starling lab --recipe needles", "importance sampling of a rare answer, with cover"},
			{"starling lab --recipe health", "sums that one device moves by a proved bound, wherever it moves them"},
			{"starling lab --recipe groups", "sums, sizes and means by a group that nobody sees"},
			{"starling lab --recipe groups --path direct", "the same where nobody is trusted with an answer"},
			{"starling lab --recipe groups --path shuffled --randomizer qa", "with one bit or a few from each device, through two hops"},
			{"starling lab --recipe quantiles", "all deciles of a number at once"},
			{"starling lab --recipe cloak-visits", "a histogram by way of a shuffler: no server adds noise, or holds a share"},
			{"starling lab --recipe vector", "the mean of vectors with a proved norm"},
			{"starling lab --recipe vector --projection 2500", "fewer bytes, by a public random projection"},
			{"starling lab --recipe vector --noise-device --malicious 20", "with the devices' own noise, and attackers who push"},
			{"starling lab --recipe vector --correlated --rounds 32", "noise that cancels over rounds"},
			{"starling lab --keep demo", "leaves the deployment in demo/; its README.txt says what to try on it"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			keep := flags.String("keep", "", "leave the deployment behind in `DIR`, which is new or empty")
			out := flags.String("out", ".", "write picture and table into `DIR`")
			malicious := flags.Int("malicious", 0, "send `N` invalid reports too")
			rows := flags.Int("rows", 0, "take only the first `N` rows of the table")
			population := flags.Int("population", 0, "make `N` devices that decide by secret coins")
			sampling := flags.String("sampling", "", "the coins' probability `Q`, 0.1 if not given")
			question := flags.String("recipe", "", "what is asked, visits, health, groups, quantiles, cloak, cloak-visits, needles or vector: `NAME`")
			path := flags.String("path", "", "with --recipe groups: how reports travel, `PATH`: two-server, the default, shuffled or direct")
			randomizer := flags.String("randomizer", "", "with --path shuffled or direct: `WHO` blurs, qa or randomized-group; the one with the smaller error if not given")
			rounds := flags.Int("rounds", 0, "collect `N` times from the population, or with --correlated, within the same epsilon in all")
			credentials := flags.String("credentials", "", "have the recipe count devices and stand in a log; `WHO` enrols and shows credentials: all")
			known := flags.Bool("known-sample", false, "for comparison: a known part of the population reports, without coins")
			epsilon := flags.String("epsilon", "", "calibrate the noise to this `E`; 1 if not given, for vectors 8")
			vectors := newVectorFlags(flags)
			precision := flags.Duration("precision", 0, "cut report times to this `DURATION`, 10s if not given")
			return func(ctx context.Context, e *env, args []string) error {
				if err := noArgs("lab", args); err != nil {
					return err
				}
				var none error // no rows were asked for, which would be all of them to package lab
				flags.Visit(func(f *flag.Flag) {
					if f.Name == "rows" && *rows == 0 {
						none = usageOf("lab", fmt.Errorf("--rows is 0, want %d to %d", lab.MinRows, lab.AllRows))
					}
				})
				if none != nil {
					return none
				}
				watch := newProgress(e)
				o := lab.Options{
					Frame:     lab.Frame{Keep: *keep, Out: *out, Precision: *precision, Progress: watch.show},
					Malicious: *malicious, Rows: *rows, Population: *population, Recipe: *question, Rounds: *rounds, KnownSample: *known,
					Credentials: *credentials == "all", Path: *path, Randomizer: *randomizer,
				}
				switch *credentials {
				case "", "all":
				case "senders":
					return &failure{exitUsage, errSenders, "starling lab --population 6000 --sampling 0.5 --credentials all"}
				default:
					return usageOf("lab", fmt.Errorf("--credentials: no %q; want all", *credentials))
				}
				if *epsilon != "" {
					var err error
					if o.Epsilon, err = positive(*epsilon); err != nil {
						return usageOf("lab", fmt.Errorf("--epsilon: %w", err))
					}
				}
				if *sampling != "" {
					var err error
					if o.Sampling, err = recipe.ParseRational(*sampling); err != nil {
						return usageOf("lab", fmt.Errorf("--sampling: %w", err))
					}
				}
				switch *question {
				case "", lab.Visits, lab.Health, lab.Groups, lab.Quantiles, lab.Cloak, lab.CloakVisits, lab.Needles:
				case lab.Vectors:
					return labVectors(ctx, e, watch, &o, vectors, *asJSON)
				default:
					return usageOf("lab", fmt.Errorf("--recipe: no %q; want %s, %s, %s, %s, %s, %s, %s or %s", *question, lab.Visits, lab.Health, lab.Groups, lab.Quantiles, lab.Cloak,
						lab.CloakVisits, lab.Needles, lab.Vectors))
				}
				if vectors.given() {
					return usageOf("lab", errors.New("--devices, --dimension, --proof, --projection, --noise-half, --noise-device, --correlated and "+
						"--separation go with --recipe vector"))
				}
				if err := o.Validate(); err != nil {
					return &failure{exitUsage, err, "starling lab --help"}
				}
				return labPlay(e, o.Frame, *asJSON, watch, func() (*lab.Report, error) { return lab.Run(ctx, o) },
					func(r *lab.Report) error { return r.WriteText(e.stdout, e.columns(), e.plain) })
			}
		},
	}
}
