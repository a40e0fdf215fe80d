//go:build !lean

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strings"

	"github.com/starling-agg/starling/figures"
)

func figuresCommand() *command {
	return &command{
		name: "figures", args: "--out DIR [--json] [NAME...]",
		short: "Draw what the papers claim, beside what comes out here",
		long: `Draws figures 1 to 3 and 5 to 8 and the numbers of examples 3 to 6 of paper 000, figure 1 of paper 001 with numbers, figure
2 of paper 002, the communication table of paper 003 with the sizes of this program's reports, and figure 2 and table 1 of
paper 004, each as PNG and SVG with the CSV behind it. docs/figures.md shows them beside what the papers state and explains
every difference. With --measured those of papers 001 and 002 have points of the running encoders and analyzers, measured at the call; and there
are the check-ins of paper 004 as they run, and what accuracy a model comes to at which epsilon, here and in other systems: in two minutes.
Parameters that the text of paper 000 does not give, N, K and T of its panels, are flags.

The names are paper-000-figure-1, -2, -3, -5, -6, -7, -8, paper-000-examples, paper-001-figure-1, paper-002-figure-2,
paper-003-communication, paper-004-figure-2 and paper-004-table-1; and measured alone paper-004-check-ins, learning-accuracy and
learning-partitions.`,
		examples: [][2]string{
			{"starling figures --out figs", "all of them, in some seconds"},
			{"starling figures --out figs paper-004-figure-2", "one of them"},
			{"starling figures --out figs --measured paper-001-figure-1 paper-002-figure-2", "with points that are measured at this call"},
			{"starling figures --out figs --measured learning-accuracy", "accuracy against epsilon, of eight systems"},
			{"starling figures --out figs --people 1e8 paper-000-figure-2", "for a hundred million people"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			out := flags.String("out", "", "write the files into `DIR`, which is made if missing")
			epsilon := flags.Float64("epsilon", 1, "all tasks of a curve together cost (`E`, delta)")
			delta := flags.Float64("delta", 1e-6, "all tasks of a curve together cost (epsilon, `D`)")
			people := flags.Float64("people", 1e6, "the curves are about `N` people")
			var alphabets numbers[float64]
			flags.Var(&alphabets, "alphabets", "one to four values `K,K` of the alphabet (default 1e3,1e4,1e5)")
			measured := flags.Bool("measured", false, "add what is measured by running, in some two minutes")
			var tasks numbers[uint64]
			flags.Var(&tasks, "tasks", "one to four numbers `T,T` of tasks (default 1,10,100,1000)")
			return func(ctx context.Context, e *env, args []string) error {
				if *out == "" {
					return failf(exitUsage, "starling figures --out figs", "starling figures needs a directory")
				}
				watch := newProgress(e)
				o := figures.Options{Dir: *out, Only: args, Epsilon: *epsilon, Delta: *delta, People: *people,
					Alphabets: alphabets, Tasks: tasks, Measured: *measured}
				o.Progress = func(f figures.Output) {
					if !*asJSON {
						watch.end()
						fmt.Fprintf(e.stdout, "%-23s %s\n", f.Name, f.Title)
					}
					watch.tell("drawing the one after " + f.Name)
				}
				watch.tell("drawing the first")
				done, err := figures.Draw(ctx, o)
				watch.end()
				if errors.Is(err, figures.ErrOptions) {
					return &failure{exitUsage, err, "starling figures --help"}
				}
				if err != nil {
					return err
				}
				if *asJSON {
					return e.json(map[string]any{"dir": *out, "outputs": done})
				}
				fmt.Fprintf(e.stdout, "Each as .png, .svg and .csv in %s\n", *out)
				return nil
			}
		},
	}
}

// numbers is a flag of numbers with commas between them.
type numbers[T float64 | uint64] []T

func (n *numbers[T]) String() string { return "" }

func (n *numbers[T]) Set(s string) error {
	*n = nil
	for _, field := range strings.Split(s, ",") {
		var v T
		// Sscan alone would take "1x" for 1.
		if count, err := fmt.Sscanf(strings.TrimSpace(field)+"\n", "%v\n", &v); err != nil || count != 1 {
			return fmt.Errorf("%q is not a number", field)
		}
		*n = append(*n, v)
	}
	return nil
}
