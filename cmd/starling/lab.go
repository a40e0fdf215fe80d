package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/starling-agg/starling/lab"
	"github.com/starling-agg/starling/lab/deploy"
)

func labCommand() *command {
	return &command{
		name: "lab", args: "[--malicious N] [--keep DIR] [--out DIR] [--json]",
		short: "Play every party on this machine: a private histogram of real data",
		long: `Starts a leader and a helper on loopback, sends one sealed report for each of the 20,190 rows of the RAND Health
Insurance Experiment, verifies and adds them up, and prints the histogram with 95 % intervals beside the truth.
It also writes a picture, starling-lab.png, and a table, starling-lab.csv.`,
		examples: [][2]string{
			{"starling lab", "about ten seconds on two cores"},
			{"starling lab --malicious 200", "with 200 invalid reports among them, rejected by reason"},
			{"starling lab --keep demo", "leaves the deployment in demo/; its README.txt says what to try on it"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			keep := flags.String("keep", "", "leave the deployment behind in `DIR`, which is new or empty")
			out := flags.String("out", ".", "write picture and table into `DIR`")
			malicious := flags.Int("malicious", 0, "send `N` invalid reports too")
			rows := flags.Int("rows", 0, "take only the first `N` rows of the table")
			precision := flags.Duration("precision", 0, "cut report times to this `DURATION`, 10s if not given")
			return func(ctx context.Context, e *env, args []string) error {
				if err := noArgs("lab", args); err != nil {
					return err
				}
				watch := newProgress(e)
				o := lab.Options{Keep: *keep, Out: *out, Malicious: *malicious, Rows: *rows, Precision: *precision, Progress: watch.show}
				if err := o.Validate(); err != nil {
					return &failure{exitUsage, err, "starling lab --help"}
				}
				report, err := lab.Run(ctx, o)
				watch.end()
				switch {
				case errors.Is(err, lab.ErrOut):
					return &failure{exitInput, err, "--out DIR names a directory that can be written to"}
				case errors.Is(err, deploy.ErrNotEmpty), errors.Is(err, deploy.ErrDirectory):
					return &failure{exitInput, err, "--keep DIR names a directory that does not exist yet"}
				}
				if err != nil {
					return err
				}
				if *asJSON {
					err = e.json(report)
				} else {
					err = report.WriteText(e.stdout, e.columns(), e.plain)
					if *keep != "" {
						fmt.Fprintf(e.stdout, "Kept:    %s; cd there, and README.txt says what to try\n", *keep)
					}
				}
				if err != nil {
					return err
				}
				if err := report.Check(); err != nil {
					return &failure{exitCheck, err, ""}
				}
				return nil
			}
		},
	}
}
