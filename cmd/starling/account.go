package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/starling-agg/starling/dp/calculator"
	"github.com/starling-agg/starling/dp/release"
)

func accountCommand() *command {
	return &command{
		name: "account", args: "--mechanism NAME [flags] --delta D | --serve",
		short: "Compute what some noise guarantees, or what a guarantee takes",
		long: `--delta alone asks for epsilon, --epsilon alone for delta; with --solve both are given and the named parameter is computed,
rounded to its safe side.

NAME is one of
  gaussian, discrete-gaussian   noise of the servers, --sigma
  correlated-gaussian           noise of the servers that cancels over rounds, --sigma, --bands and --rounds; --steps are the
                                rounds that a person takes part in, at least --bands apart
  laplace, discrete-laplace     noise of the servers, --scale
  rr, rappor                    randomized reports of devices, --epsilon0 and --k

Each person adds at most --sensitivity to the sum; replacing a person's record may move it by twice that.
--steps counts releases, and runs of all the steps of an --allocation. Without --neighbours, records are present or
absent (add-remove) while the count is hidden, and replaced by another (replace) for rr, rappor, whatever is shuffled
and wherever the count is public. With --count public a sample has a fixed size, --sampling of the people; with
--population they toss a coin each.

--method auto takes the tightest bound that is proved; the others are its parts, or bounds of papers for comparison:
  closed-form              a formula; for what is shuffled and for check-ins the paper's
  pld, rdp, zcdp           privacy loss distributions, Renyi divergences (at --orders), zero-concentrated privacy
  zcdp-simple              the same by the textbook's conversion, rho + 2 sqrt(rho ln(1/delta))
  clones                   shuffled reports as of any randomizer, summed exactly, whatever more is proved of rr
  bkmtt, efmrtt            the formulas for shuffled reports of 2020 (random check-ins, theorem 5.1) and 2019

Every answer is rounded up and names the theorem it rests on (docs/accounting.md).

--serve keeps the process: each line of standard input is a question, and is answered by a line on standard output with
what the command would print with --json. It ends when standard input does.`,
		examples: [][2]string{
			{"starling account --mechanism gaussian --sigma 5.1 --sampling 0.02 --steps 2500 --delta 1e-8",
				"2,500 releases, each about a secret fiftieth of the people"},
			{"starling account --mechanism gaussian --solve sigma --epsilon 1 --delta 1e-8", "the least noise for epsilon 1"},
			{"starling account --mechanism rr --epsilon0 4 --k 10 --shuffle-n 10000 --delta 1e-10",
				"answers randomized on 10,000 devices, then shuffled"},
			{"starling account --mechanism gaussian --sigma 5 --sampling 0.1 --steps 50 --delta 1e-9 --json", "for programs"},
			{"starling account --events releases.json --delta 1e-9", "a list of different releases, all of them together:\n" +
				`      [{"mechanism": "gaussian", "sigma": 5.1, "sampling": 0.02, "count": 2500}, {"mechanism": "laplace", "scale": 20}]`},
			{"starling account --serve", "for programs that ask often, a line each:\n" +
				`      {"id": 1, "method": "account", "args": ["--mechanism", "gaussian", "--sigma", "5", "--delta", "1e-9"]}`},
		},
		setup: accountSetup,
	}
}

func accountSetup(flags *flag.FlagSet) func(context.Context, *env, []string) error {
	var q calculator.Ask
	asJSON := flags.Bool("json", false, "print one JSON object")
	serve := flags.Bool("serve", false, "answer questions of a program, a JSON object a line, until standard input ends")
	mechanism := flags.String("mechanism", "", "what blurs the release: `NAME`")
	flags.Float64Var(&q.Sigma, "sigma", 0, "standard deviation of Gaussian noise: `S`")
	flags.IntVar(&q.Bands, "bands", 0, "how many rounds a draw of correlated noise reaches: `B`")
	flags.IntVar(&q.Rounds, "rounds", 0, "how many rounds correlated noise is made for: `N`")
	flags.Float64Var(&q.Scale, "scale", 0, "scale of Laplace noise: `B`")
	flags.Float64Var(&q.Epsilon0, "epsilon0", 0, "local epsilon `E0` of a device's report")
	flags.Uint64Var(&q.K, "k", 0, "number of answers of rr and rappor, 2 if not given: `K`")
	flags.Float64Var(&q.Sensitivity, "sensitivity", 0, "the most that one person adds to the sum, 1 if not given: `C`")
	flags.Float64Var(&q.Sampling, "sampling", 0, "each record takes part with this probability `Q`, secretly")
	flags.Uint64Var(&q.Steps, "steps", 0, "how many releases there are, 1 if not given: `T`")
	flags.Uint64Var(&q.Population, "population", 0, "how many people toss the coin of --sampling, where the count is public: `N`")
	flags.Uint64Var(&q.ShuffleN, "shuffle-n", 0, "how many honest people's reports are shuffled together, or check in to be averaged: `N`")
	allocation := flags.String("allocation", "", "each record is in k of every t releases, secretly: `k/t`")
	checkin := flags.String("checkin", "", "random check-ins in a fixed, averaged or sliding window: `KIND`")
	flags.Uint64Var(&q.Window, "window", 0, "how many slots a person checks in to: `M`")
	flags.Float64Var(&q.P0, "p0", 0, "probability `P` of checking in at all, 1 if not given")
	neighbours := flags.String("neighbours", "", "add-remove, replace or zero-out: `RELATION`")
	count := flags.String("count", "", "hidden or public: whether the number of records shows: `WHICH`")
	ldp := flags.String("ldp", "", "deletion or replacement: what a device's report hides: `SENSE`")
	flags.IntVar(&q.Honest, "servers-honest", 1, "how many of the two servers keep their noise secret: `1|2`")
	method := flags.String("method", "auto", calculator.MethodNames+": `METHOD`")
	orders := flags.String("orders", "", "Renyi orders of --method rdp: integer, or a `LIST` as 1.5,2,16")
	direction := flags.String("direction", "", "remove or add: bound only one of the two directions of add-remove and zero-out: `WAY`")
	events := flags.String("events", "", "account for the JSON list in `FILE` (- is standard input)")
	flags.Float64Var(&q.Epsilon, "epsilon", 0, "ask for delta at this epsilon `E`, or solve for it")
	flags.Float64Var(&q.Delta, "delta", 0, "ask for epsilon at this delta `D`")
	solve := flags.String("solve", "", "compute sigma, scale, sampling or steps: `WHAT`")
	return func(ctx context.Context, e *env, args []string) error {
		if err := noArgs("account", args); err != nil {
			return err
		}
		if *serve {
			return serveAccount(ctx, e, flags)
		}
		// A zero that was typed is not a default.
		var zero error
		flags.Visit(func(f *flag.Flag) {
			if v := f.Value.String(); zero == nil && (v == "0" || v == "-0" || v == "") {
				zero = failf(exitUsage, "leave it out, or give a number above 0", "--%s is %q", f.Name, v)
			}
		})
		if zero != nil {
			return zero
		}
		q.Mechanism, q.Count, q.LDP = *mechanism, calculator.Count(*count), calculator.LDP(*ldp)
		q.Solve = calculator.Parameter(*solve)
		var err error
		if *allocation != "" {
			if q.Picks, q.Of, err = calculator.ParseAllocation(*allocation); err != nil {
				return ofCalculator(err)
			}
		}
		if *checkin != "" {
			if q.CheckIn, err = release.ParseSchedule(*checkin); err != nil {
				return failf(exitUsage, "--checkin fixed, averaged or sliding", "--checkin is %q", *checkin)
			}
		}
		if *neighbours != "" {
			if q.Neighbours, err = release.ParseNeighbours(*neighbours); err != nil {
				return failf(exitUsage, "--neighbours add-remove, replace or zero-out", "--neighbours is %q", *neighbours)
			}
		}
		if q.Method, err = calculator.ParseMethod(*method); err != nil {
			return ofCalculator(err)
		}
		if *orders != "" {
			if q.Orders, err = calculator.ParseOrders(*orders); err != nil {
				return ofCalculator(err)
			}
		}
		if *direction != "" {
			if q.Direction, err = release.ParseDirection(*direction); err != nil {
				return failf(exitUsage, "--direction remove or add; without it the larger of both is answered", "--direction is %q", *direction)
			}
		}
		if *events != "" {
			if q.Lines, err = readEvents(e, *events); err != nil {
				return err
			}
		}
		a, err := remembered(ctx, e, q, q.Answer)
		if err != nil {
			return ofCalculator(err)
		}
		if *asJSON {
			return e.json(a)
		}
		var text strings.Builder
		if err := a.WriteText(&text, e.prose()); err != nil {
			return err
		}
		_, err = fmt.Fprint(e.stdout, text.String())
		return err
	}
}

// readEvents reads a list of events from a file or from standard input.
func readEvents(e *env, path string) ([]calculator.Line, error) {
	in := e.stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, &failure{exitInput, err, "--events names a file with a JSON list"}
		}
		defer f.Close()
		in = f
	}
	list, err := calculator.ReadEvents(in)
	var refused *calculator.Error
	if errors.As(err, &refused) {
		return nil, &failure{exitInput, err, refused.Hint} // the file is wrong, not the command line
	}
	return list, err
}

// ofCalculator gives a refusal its hint.
func ofCalculator(err error) error {
	var refused *calculator.Error
	if errors.As(err, &refused) {
		code := exitUsage
		if refused.Event != 0 {
			code = exitInput // as an event in a file
		}
		return &failure{code, err, refused.Hint}
	}
	return err
}
