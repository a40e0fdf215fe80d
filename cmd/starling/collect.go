//go:build !lean

package main

import (
	"context"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/dp/release"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/lab/chart"
	"github.com/starling-agg/starling/recipe"
)

func collectCommand() *command {
	return &command{
		name: "collect", args: "[--view NAME] [--from TIME --to TIME] [--timeout D] [--skip] [--restart] [--png FILE] [--csv FILE] [--json] [CONFIG]",
		short: "Ask for a batch and print the result with its error",
		long: `CONFIG is collector.toml by default. In a time-interval recipe the reports from the end of the last collection up to
now are asked for, unless --from and --to say otherwise. Rounds are released whole, after their end and the recipe's grace; the
one that runs is asked for if it ends before --timeout, and what could not be answered by then is not asked. Where one person
may be in several rounds, or devices toss coins, each round is a question of its own, and all from --from to --to are asked one
after the other. Of a time that is over with too few reports nothing will come: that is said at once, the question is withdrawn,
and the next one asks for all that came since; rounds that are released alone are passed by --skip. A collection that was
interrupted goes on where it was, and the same question always gets the same answer: noise is drawn once.
Where a recipe has views, --view asks for whole spans of one of them, as a week: those since its last one, or the last that is over.
Each view has its own answer, once; without --view the rounds are asked for.
A recipe of the shuffled or the direct path has an analyzer in the leader's place: it is asked with the same token, for the last round
that is over, or for each from --from to --to, and asking changes nothing. Where messages of a cloak are missing the round has no value.`,
		examples: [][2]string{
			{"starling collect collector.toml", "what has come since the last time"},
			{"starling collect --skip --timeout 10s", "the same, without rounds that have too few reports"},
			{"starling collect --view week --json", "the weeks that are over and were not collected yet"},
			{"starling collect --json --from 2026-01-31T00:00:00Z --to 2026-02-01T00:00:00Z", "one day, for a program: an object a round"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			from := flags.String("from", "", "reports from this `TIME`")
			to := flags.String("to", "", "reports up to this `TIME`")
			view := flags.String("view", "", "ask for spans of the view of this `NAME`, where the recipe has views")
			timeout := flags.Duration("timeout", time.Minute, "stop waiting for a batch after this `DURATION`; asking again goes on")
			skip := flags.Bool("skip", false, "leave out a round that is over and is not ready by --timeout, and go on with the next")
			restart := flags.Bool("restart", false, "give up a pending question and ask anew; an answer that is just ready is lost")
			picture := flags.String("png", "", "draw a histogram into this `FILE`")
			table := flags.String("csv", "", "write a row for each number of the result into this `FILE`")
			asked := flags.String("ask", "", "of a query that is answered by texts: count those of this `FILE` too, one a line")
			return func(ctx context.Context, e *env, args []string) error {
				path, err := oneFile("collect", args, deploy.CollectorFile)
				if err != nil {
					return err
				}
				config, err := deploy.LoadCollector(path)
				if err != nil {
					return ofInput(err, noDeployment)
				}
				// A result comes once: what cannot be written is found out before it is
				// asked for.
				for _, out := range []struct{ flag, file string }{{"--png", *picture}, {"--csv", *table}} {
					if dir := filepath.Dir(out.file); out.file != "" && !exists(dir) {
						return failf(exitInput, "mkdir -p "+dir, "%s %s: there is no directory %s", out.flag, out.file, dir)
					}
				}
				texts, err := readLines(*asked)
				if err != nil {
					return err
				}
				released := 0
				show := func(r *recipe.Recipe, result *collector.Result) (err error) {
					if released++; released > 1 && !*asJSON {
						fmt.Fprintln(e.stdout)
					}
					if len(texts) > 0 {
						if err := askTexts(r, result, texts); err != nil {
							return err
						}
					}
					if *asJSON {
						err = e.json(result)
					} else {
						err = writeResult(e, r, result)
					}
					if *picture != "" && err == nil {
						err = drawResult(*picture, r, result)
					}
					if *table != "" {
						err = errors.Join(err, writeTable(*table, r, result))
					}
					return err
				}
				one := func(n int) error {
					switch {
					case n > 1 && *picture != "":
						return usageOf("collect", fmt.Errorf("--png draws one round, and these are %d", n))
					case n > 1 && *table != "":
						return usageOf("collect", fmt.Errorf("--csv writes one round, and these are %d", n))
					}
					return nil
				}
				if read, err := proves(string(config.Recipe)); err == nil && !read {
					if *view != "" {
						return usageOf("collect", errors.New("--view is for recipes with views, which an analyzer has none of"))
					}
					if *restart {
						return usageOf("collect", errors.New("--restart is for questions that are pending, and an analyzer is asked none"))
					}
					x := &reading{e: e, line: newProgress(e), file: path, from: *from, to: *to, timeout: *timeout, skip: *skip}
					defer x.line.end()
					return x.run(ctx, config, one, show)
				}
				a := &asking{e: e, line: newProgress(e), file: path, view: *view, from: *from, to: *to, timeout: *timeout, skip: *skip, now: time.Now}
				defer a.line.end()
				if err := a.open(config, collector.Options{}); err != nil {
					return err
				}
				if *restart {
					if err := a.run.Session().Drop(ctx); err != nil {
						return err
					}
				}
				spans, err := a.questions()
				if err == nil {
					err = one(len(spans))
				}
				if err != nil {
					return err
				}
				err = a.run.Ask(ctx, spans, func(result *collector.Result) error { return show(a.recipe(), result) })
				return a.failure(ctx, err)
			}
		},
	}
}

// resultChart is a result as a histogram, where it has few enough numbers to be drawn.
func resultChart(r *recipe.Recipe, x *collector.Result) *chart.Histogram {
	h := &chart.Histogram{
		Title: r.Name, XLabel: "bucket", YLabel: "reports", Estimate: x.Estimate, Interval: x.Interval95,
		Subtitle: fmt.Sprintf("%s reports from %s to %s", prose.Count(float64(x.ReportCount)), x.From.Format(time.RFC3339), x.To.Format(time.RFC3339)),
		Caption:  fmt.Sprintf("Guarantee: %s. Noise: %s.", guaranteeOf(x.Guarantee), x.Of(r).Noise),
	}
	if x.View != "" {
		h.Subtitle = "the " + x.View + ", " + h.Subtitle
		h.Caption = fmt.Sprintf("Guarantee of all %d views: %s. Noise of this one: %s.", len(r.Granularities()), guaranteeOf(x.Guarantee), x.Of(r).Noise)
	}
	if d := x.Distribution; d != nil {
		h.XLabel, h.Estimate, h.Interval = "numbers", nil, nil
		for _, in := range d.Ranges {
			h.Labels = append(h.Labels, rangeLabel(in))
			h.Estimate, h.Interval = append(h.Estimate, in.Count), append(h.Interval, in.Interval95)
		}
		return h
	}
	if t := x.Groups; t != nil {
		h.XLabel, h.YLabel, h.Estimate, h.Interval = "group", "sum", nil, nil
		for _, row := range t.Groups {
			addCell(h, row.Group, row.Sum)
		}
		return h
	}
	if x.Table != nil {
		h.Estimate, h.Interval = nil, nil
		for _, row := range x.Table.Rows {
			addCell(h, row.Label, row.Cell)
		}
		return h
	}
	if x.Sampled != nil {
		h.YLabel, h.Sampled = "devices", true
		h.Caption += " " + sampledWords(x)
	}
	for i := range x.Estimate {
		h.Labels = append(h.Labels, r.Label(i))
	}
	return h
}

// rangeLabel names the numbers of a range.
func rangeLabel(r recipe.Range) string {
	if r.From == r.To {
		return strconv.FormatUint(r.From, 10)
	}
	return fmt.Sprintf("%d-%d", r.From, r.To)
}

// guaranteeOf says what the people in a batch have, what counts on nobody's word first.
func guaranteeOf(g *recipe.Guarantee) string {
	about := map[release.Neighbours]string{
		release.ReplaceOne: "replacing the report of any one " + g.Unit,
		release.AddRemove:  "any one " + g.Unit + "'s answer against no answer",
		release.ZeroOut:    "the report of any one " + g.Unit + " against that of no answer",
	}
	words := fmt.Sprintf("%s, for %s", g.Unconditional, about[g.UnconditionalNeighbours])
	if g.PerPerson > 1 {
		words += fmt.Sprintf("; %s, for a person with at most %d of them", g.Person, g.PerPerson)
	}
	if len(g.Conditions) == 0 {
		return words
	}
	return words + fmt.Sprintf(", even where it is known who sent what; %s, for %s, holds if %s", g.Loss, about[g.Neighbours],
		strings.Join(g.Conditions, ", and "))
}

// sampledWords says what a batch of coins had to reach, and what was taken off it to get
// to all devices that decided.
func sampledWords(x *collector.Result) string {
	s, count := x.Sampled, func(n float64) string { return prose.Count(math.Round(n)) }
	words := fmt.Sprintf("Estimates are for about %s devices that decided. Released from %s reports on: %s answers",
		count(s.Devices), count(float64(s.Threshold)), count(float64(s.MinBatch)))
	if s.DummiesAllowed > 0 {
		words += fmt.Sprintf(" and up to %s dummies", count(float64(s.DummiesAllowed)))
	}
	words += fmt.Sprintf(". Subtracted: about %s dummies among the reports", count(s.Dummies))
	if s.Baseline > 0 {
		words += fmt.Sprintf(", and %.4g from each sum for what randomizers put there", s.Baseline)
	}
	return words + fmt.Sprintf("; what was left was multiplied by %.4g.", s.Weight)
}

// leftOutWords names the independent batches of a round that its result leaves out.
func leftOutWords(x *collector.Result) string {
	why := map[recipe.LeftOut]string{
		recipe.LeftMissing: "messages of it are missing", recipe.LeftUnusable: "its messages add up to no answers",
		recipe.LeftApart: "its sums are further from the others' than chance and noise put them", recipe.LeftNone: "there is no result of it, as of fewer than the least batch",
	}
	var each []string
	for _, p := range x.LeftOut {
		each = append(each, fmt.Sprintf("batch %d, of %s contributions: %s", p.Number, prose.Count(float64(p.Contributions)), why[p.Why]))
	}
	return "Left out: " + strings.Join(each, "; ") + ". Estimates are scaled to the contributions of all batches, and their errors are wider by as much as these may differ; tables and deciles are of the others."
}

func drawResult(path string, r *recipe.Recipe, x *collector.Result) error {
	h := resultChart(r, x)
	if err := h.Validate(); err != nil {
		return fmt.Errorf("--png %s: %w", path, err)
	}
	if err := chart.WriteFile(path, h.WritePNG); err != nil {
		return ofInput(fmt.Errorf("--png: %w", err), "the result stands above and is not lost: ask again with --png FILE in a directory that can be written to")
	}
	return nil
}

// writeTable writes a line for each number of a result: its name, the estimate with its
// standard error, and the 95 % interval; of a distribution a line for each decile, of groups
// and of a table one for each cell, in which what its state leaves out is empty.
func writeTable(path string, r *recipe.Recipe, x *collector.Result) error {
	rows := [][]string{{"bucket", "estimate", "stderr", "low95", "high95"}}
	if d := x.Distribution; d != nil {
		rows = [][]string{{"share", "value", "low95", "high95"}}
		for _, q := range d.Deciles {
			rows = append(rows, []string{digits(q.Share), digits(float64(q.Value)), digits(float64(q.Interval95[0])), digits(float64(q.Interval95[1]))})
		}
		return writeRows(path, rows)
	}
	if x.Groups != nil || x.Table != nil {
		return writeRows(path, cellRows(x))
	}
	for i, v := range x.Estimate {
		rows = append(rows, []string{r.Label(i), digits(v), digits(x.Stderr[i]), digits(x.Interval95[i][0]), digits(x.Interval95[i][1])})
	}
	return writeRows(path, rows)
}

func writeRows(path string, rows [][]string) error {
	if err := chart.WriteFile(path, func(w io.Writer) error { return csv.NewWriter(w).WriteAll(rows) }); err != nil {
		return ofInput(fmt.Errorf("--csv: %w", err), "the result stands above and is not lost: ask again with --csv FILE in a directory that can be written to")
	}
	return nil
}

// shownEntries is how many entries of a vector are printed for people.
const shownEntries = 20

// writeVector writes the first entries of a sum and of its mean, with their standard
// errors.
func writeVector(w io.Writer, x *collector.Result) {
	mean, stderr := x.Mean()
	fmt.Fprintf(w, "%8s  %12s  %12s  %12s  %12s\n", "entry", "sum", "stderr", "mean", "stderr")
	for i := range min(len(mean), shownEntries) {
		fmt.Fprintf(w, "%8d  %12.5g  %12.5g  %12.5g  %12.5g\n", i, x.Estimate[i], x.Stderr[i], mean[i], stderr[i])
	}
	if more := len(mean) - shownEntries; more > 0 {
		fmt.Fprintf(w, "and %s more, which --json prints\n", prose.Count(float64(more)))
	}
}

// writeDeciles writes the deciles of numbers, with their 95 % intervals.
func writeDeciles(w io.Writer, d *recipe.Distribution) {
	fmt.Fprintf(w, "%8s  %12s  %s\n", "decile", "number", "95 % interval")
	for _, q := range d.Deciles {
		note := ""
		if !q.Detected {
			note = ", which is all: too few reports for the noise"
		}
		fmt.Fprintf(w, "%6.0f %%  %12d  %d to %d%s\n", 100*q.Share, q.Value, q.Interval95[0], q.Interval95[1], note)
	}
	fmt.Fprintln(w)
}

func writeResult(e *env, r *recipe.Recipe, x *collector.Result) error {
	h := resultChart(r, x)
	fmt.Fprintf(e.stdout, "%s\n%s\n\n", h.Title, h.Subtitle)
	if x.Distribution != nil {
		writeDeciles(e.stdout, x.Distribution)
	}
	if x.Groups != nil {
		writeGroups(e.stdout, x.Groups)
	}
	if x.Table != nil {
		writeCells(e.stdout, x.Table)
	} else if r.Query.Form() == recipe.Reals {
		writeVector(e.stdout, x)
	} else if h.Validate() == nil && len(h.Estimate) > 1 {
		if err := h.WriteText(e.stdout, e.columns(), e.plain); err != nil {
			return err
		}
		if note := h.BelowZero(); note != "" && x.Groups == nil {
			fmt.Fprintf(e.stdout, "\n%s\n", strings.Join(prose.Wrap(note, min(e.columns(), 100)), "\n"))
		}
	} else if x.Groups == nil {
		for i, v := range x.Estimate {
			label := r.Label(i)
			if form := r.Query.Form(); form == recipe.YesOrNo || form == recipe.Number {
				label = r.Query.Part()
			}
			fmt.Fprintf(e.stdout, "%6s  %.6g  (95 %% interval %.6g to %.6g)\n", label, v, x.Interval95[i][0], x.Interval95[i][1])
		}
	}
	words := h.Caption
	if len(x.LeftOut) > 0 {
		words = leftOutWords(x) + " " + words
	}
	_, err := io.WriteString(e.stdout, "\n"+strings.Join(prose.Wrap(words, min(e.columns(), 100)), "\n")+"\n")
	return err
}
