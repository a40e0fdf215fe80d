package main

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/lab/chart"
	"github.com/starling-agg/starling/recipe"
)

// sendChunk is how many reports are made before they are uploaded.
const sendChunk = 500

func sendCommand() *command {
	return &command{
		name: "send", args: "[--csv FILE --column NAME [--unit COLUMN] | --stdin | --simulate N | --no-answer] [--manifest FILE] [--ledger DIR --budget E] [--json] RECIPE [VALUE...]",
		short: "Answer a recipe as devices do: split, seal and upload",
		long: `Each value becomes one report of its own. A value is yes or no for a count, a number for a sum or a mean, a bucket
for a histogram, by its name or from 0, and numbers with commas between them for vectors.
Rows of a CSV file with the same value in --unit's column are records of one unit of the recipe, and become one report, as the
recipe says; with --unit - each row is a unit. --person names the column of persons: one with more units than the recipe says is refused.
With --manifest everything goes through the relay that the manifest names, each report by itself. The gateway behind it
answers that it has a report; what the leader makes of it, its operator sees in starling status.
The recipe's guarantee is computed first; one that does not hold, or is weaker than --max-epsilon, is refused.
` + sendCoinsHelp,
		examples: [][2]string{
			{"starling send recipe.starling 3", "one report"},
			{"starling send --csv answers.csv --column visits recipe.starling", "one report a row"},
			{"starling send --csv visits.csv --column cost --unit patient costs.starling", "one report a patient, of all their rows"},
			{"starling send --simulate 20000 recipe.starling", "made-up answers, for tests"},
			{"starling send --ledger ~/.local/share/starling --budget 4 --manifest manifest.starling crashes.starling 0,0,1",
				"one person's answer, if the coin says so"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			file := flags.String("csv", "", "read values from a column of this `FILE`")
			column := flags.String("column", "", "the column's `NAME` in its first line")
			var table unitTable
			flags.StringVar(&table.unit, "unit", "", "rows with the same value in this `COLUMN` are of one unit of the recipe; - for none")
			flags.StringVar(&table.person, "person", "", "rows with the same value in this `COLUMN` are of one person")
			stdin := flags.Bool("stdin", false, "read values from standard input, one a line")
			simulate := flags.Int("simulate", 0, "make up `N` values, small ones more often")
			most := flags.Float64("max-epsilon", 0, "refuse a recipe with a larger epsilon than `E`; 0 takes any that is finite")
			manifest := flags.String("manifest", "", "send through the relay of this manifest `FILE`")
			anchors := flags.String("anchors", "", anchorsUsage)
			anyKeys := flags.Bool("any-keys", false, "take part although the recipe names no signing keys: whoever answers for its servers can read the answer")
			coins := newCoinSend(flags)
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) == 0 {
					return usageOf("send", errors.New("starling send needs a recipe file"))
				}
				checked, err := deploy.OpenRecipe(args[0])
				if err != nil {
					return ofInput(err, noRecipe)
				}
				r := checked.Recipe()
				table.file, table.column = *file, *column
				if err := table.validate(r); err != nil {
					return err
				}
				var values []client.Value
				var units unitTally
				if *coins.noAnswer && len(args) == 1 && *file == "" && !*stdin && *simulate == 0 {
					values = []client.Value{client.NoValue()}
				} else if *coins.noAnswer {
					return usageOf("send", errors.New("--no-answer goes with no values"))
				} else if table.unit != "" && len(args) == 1 && !*stdin && *simulate == 0 {
					values, units, err = table.read(r)
				} else {
					values, err = readValues(e.stdin, r, args[1:], *file, *column, *stdin, *simulate)
				}
				if bad := new(valueError); errors.As(err, &bad) {
					return &failure{exitInput, err, "starling recipe show " + args[0]}
				} else if err != nil {
					return err
				}
				o := client.Options{Checked: checked, MaxEpsilon: *most, AnyKeys: *anyKeys}
				if r.ServerKeys != nil {
					if o.Anchors, err = readAnchors(*anchors); err != nil {
						return err
					}
				}
				if o.Certificate, err = readCertificate(args[0]); err != nil {
					return ofInput(err, "move the file away to send without a certificate")
				}
				if r.Unit != nil && *coins.ledger != "" && len(values) > 1 {
					one, err := client.Reduce(r, values)
					if err != nil {
						return &failure{exitInput, err, "starling recipe show " + args[0]}
					}
					values = []client.Value{one}
				}
				device := &coinDevice{flags: coins, file: args[0], recipe: r, options: o}
				if *manifest != "" {
					if device.manifest, err = readManifest(*manifest); err != nil {
						return err
					}
				}
				if r.Participation != (recipe.Always{}) || coins.given() {
					if err := device.validate(len(values), *simulate != 0); err != nil {
						return err
					}
					if *simulate != 0 {
						return device.simulate(ctx, e, values, *asJSON)
					}
					return device.send(ctx, e, values[0], *asJSON)
				}
				if _, ok := r.Correlated(); ok && len(values) == 1 && *simulate == 0 {
					return failf(exitUsage, "--ledger DIR --budget E", "this recipe counts on each device to keep its answers %d rounds apart, which only its ledger can",
						r.DeviceRule().Separation)
				}
				if err := device.way(client.Forgetful()); err != nil {
					return &failure{exitCheck, err, cmp.Or(hintOfTrust(err), "starling recipe show "+args[0])}
				}
				c, err := client.New(device.options)
				if refused := new(client.RefusedError); errors.As(err, &refused) {
					return &failure{exitCheck, err, cmp.Or(hintOfTrust(err), "starling recipe show "+args[0])}
				} else if err != nil {
					return usageOf("send", err)
				}
				if *simulate == 0 {
					if _, claimed := r.Claim.(recipe.ApproxDP); claimed {
						fmt.Fprintf(e.stderr, "no ledger is kept here, so the same can be sent again, and the guarantee is for a %s of whom that is not done: "+
							"--ledger DIR --budget E remembers\n", r.PrivacyUnit().Name)
					}
				}
				sent, rejected := 0, map[string]int{}
				for chunk := range slices.Chunk(values, sendChunk) {
					refused, err := c.Send(ctx, chunk)
					if err != nil {
						code, hint := exitUnreachable, hintOfAnswer(err)
						if ctx.Err() != nil {
							code, hint = exitInterrupted, ""
						} else if distrusted(err) {
							code, hint = exitCheck, cmp.Or(hintOfTrust(err), "starling recipe show "+args[0])
						} else if errors.As(err, new(*client.ValueError)) {
							code, hint = exitInput, "starling recipe show "+args[0]
						}
						if sent > 0 {
							err = fmt.Errorf("after the first %d values, which have been sent: %w", sent, err)
						}
						return &failure{code, err, hint}
					}
					sent += len(chunk)
					for _, x := range refused {
						rejected[x.Reason.String()]++
					}
				}
				refused := 0
				for _, n := range rejected {
					refused += n
				}
				out := map[string]any{"reports_sent": sent}
				if table.unit != "" {
					out["unit"], out["records"], out["units"], out["records_left_out"] = r.PrivacyUnit().Name, units.Records, units.Units, units.LeftOut
					if !*asJSON {
						fmt.Fprintf(e.stdout, "%s records, each %s's made one; %s left out\n", chart.Count(float64(units.Records)), r.PrivacyUnit().Name,
							chart.Count(float64(units.LeftOut)))
					}
				}
				switch {
				case device.upload != nil && *asJSON:
					out["reports_taken"] = sent
					err = e.json(out)
				case device.upload != nil:
					// What the leader says of a report is told to nobody, or it could tell who sent one.
					fmt.Fprintf(e.stdout, "%s sent, %s taken by the gateway, which passes them on\n", chart.Count(float64(sent)), chart.Count(float64(sent)))
				case *asJSON:
					out["reports_acknowledged"], out["reports_refused"] = sent-refused, rejected
					err = e.json(out)
				default:
					fmt.Fprintf(e.stdout, "%s sent, %s acknowledged\n", chart.Count(float64(sent)), chart.Count(float64(sent-refused)))
					for _, reason := range slices.Sorted(maps.Keys(rejected)) {
						fmt.Fprintf(e.stdout, "%s refused: %s\n", chart.Count(float64(rejected[reason])), reason)
					}
				}
				if err == nil && refused == sent {
					hint := "starling why leader.toml"
					if rejected[dap.BatchCollected.String()] > 0 {
						hint = fmt.Sprintf("this round has been collected; send again when the next begins, within %d s", r.BatchUnits()*uint64(r.TimePrecision))
					}
					return failf(exitCheck, hint, "the leader refused every report")
				}
				return err
			}
		},
	}
}

// A valueError names the first value that does not answer the recipe, by its place; what it says stays unsaid.
type valueError struct {
	place, of int // from 1
	recipe    *recipe.Recipe
}

func (e *valueError) Error() string {
	which := "the value"
	if e.of > 1 {
		which = fmt.Sprintf("number %d of the %d values", e.place, e.of)
	}
	return fmt.Sprintf("%s does not answer the recipe: %s; want %s; nothing was sent", which, e.recipe.Given(), wanted(e.recipe))
}

// wanted says what is typed to answer a recipe.
func wanted(r *recipe.Recipe) string {
	switch q := r.Given().(type) {
	case recipe.Count:
		return "yes or no"
	case recipe.Sum, recipe.Mean:
		return "a whole number"
	case recipe.Histogram:
		numbers := fmt.Sprintf("a number from 0 to %d", q.Length-1)
		if len(r.Labels) == 0 {
			return numbers
		}
		return strings.Join(r.Labels, ", ") + ", or " + numbers
	}
	return fmt.Sprintf("%d numbers with commas between them", r.Entries())
}

// readValues gathers the values from exactly one source.
func readValues(in io.Reader, r *recipe.Recipe, args []string, file, column string, stdin bool, simulate int) ([]client.Value, error) {
	sources := 0
	for _, given := range []bool{len(args) > 0, file != "", stdin, simulate != 0} {
		if given {
			sources++
		}
	}
	if sources != 1 {
		return nil, usageOf("send", errors.New("give values, --csv, --stdin or --simulate, and one of them only"))
	}
	switch {
	case simulate != 0:
		if simulate < 0 || simulate > 10_000_000 {
			return nil, usageOf("send", fmt.Errorf("--simulate %d: want 1 to 10,000,000", simulate))
		}
		values := make([]client.Value, simulate)
		for i := range values {
			values[i] = made(r.Given())
		}
		return values, nil
	case file != "":
		f, err := os.Open(file)
		if err != nil {
			return nil, ofInput(err, "starling send --help")
		}
		defer f.Close()
		if args, err = readColumn(f, column); err != nil {
			return nil, failf(exitInput, "starling send --help", "%s: %w", file, err)
		}
	case stdin:
		s := bufio.NewScanner(in)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			if line := strings.TrimSpace(s.Text()); line != "" {
				args = append(args, line)
			}
		}
		if err := s.Err(); err != nil {
			return nil, failf(exitInput, "", "standard input: %w", err)
		}
	}
	values := make([]client.Value, len(args))
	for i, text := range args {
		v, ok := parseValue(r, text)
		if !ok {
			return nil, &valueError{i + 1, len(args), r}
		}
		values[i] = v
	}
	if len(values) == 0 {
		return nil, failf(exitInput, "starling send --help", "there are no values")
	}
	return values, nil
}

func readColumn(in io.Reader, column string) ([]string, error) {
	r := csv.NewReader(bufio.NewReader(in))
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("its first line: %w", err)
	}
	at := slices.Index(head, column)
	if at < 0 {
		return nil, fmt.Errorf("no column %q; it has %s", column, strings.Join(head, ", "))
	}
	var values []string
	for {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return values, nil
		}
		if err != nil {
			return nil, err
		}
		values = append(values, strings.Clone(row[at]))
	}
}

// parseValue reads one answer. Whether it is in range is for the client to say, which never repeats it.
func parseValue(r *recipe.Recipe, text string) (client.Value, bool) {
	text = strings.TrimSpace(text)
	q := r.Given()
	switch q.(type) {
	case recipe.Count:
		switch strings.ToLower(text) {
		case "yes", "true", "1":
			return client.Bool(true), true
		case "no", "false", "0":
			return client.Bool(false), true
		}
		return client.Value{}, false
	case recipe.Sum, recipe.Mean:
		n, err := strconv.ParseUint(text, 10, 64)
		return client.Number(n), err == nil
	case recipe.Histogram:
		n, ok := r.Bucket(text)
		return client.Bucket(n), ok
	}
	parts := strings.Split(text, ",")
	if q, ok := q.(recipe.Vector); ok {
		v := make([]float64, len(parts))
		for i, part := range parts {
			var err error
			if v[i], err = strconv.ParseFloat(strings.TrimSpace(part), 64); err != nil {
				return client.Value{}, false
			}
		}
		return client.Reals(v), len(v) == q.Aggregates()
	}
	v := make([]uint64, len(parts))
	for i, part := range parts {
		n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 64)
		if err != nil {
			return client.Value{}, false
		}
		v[i] = n
	}
	return client.Vector(v), len(v) == q.Aggregates()
}

// made makes up an answer: each value twice as likely as the next, up to the largest.
func made(q recipe.Query) client.Value {
	n := coins()
	switch q := q.(type) {
	case recipe.Count:
		return client.Bool(n == 0)
	case recipe.Sum:
		return client.Number(min(n, q.Max))
	case recipe.Mean:
		return client.Number(min(n, q.Max))
	case recipe.Histogram:
		return client.Bucket(uint32(min(n, uint64(q.Length)-1)))
	case recipe.Multihot:
		v := make([]uint64, q.Length)
		for range min(n, q.MaxWeight) {
			v[min(coins(), uint64(q.Length)-1)] = 1
		}
		return client.Vector(v)
	case recipe.SumVec:
		v := make([]uint64, q.Length)
		for i := range v {
			v[i] = min(coins(), q.Max)
		}
		return client.Vector(v)
	case recipe.L1BoundSum:
		v := make([]uint64, q.Length)
		for range min(coins(), q.Max) {
			v[min(coins(), uint64(q.Length)-1)]++
		}
		return client.Vector(v)
	case recipe.Vector:
		// Each entry has about the part of the norm that a long vector's entries have, and every second one is below zero.
		v := make([]float64, q.Dimension)
		for i := range v {
			v[i] = q.Norm() / math.Sqrt(float64(q.Dimension)) * (1 - float64(coins()))
		}
		return client.Reals(v)
	}
	return client.Value{}
}

// coins counts the tails before the first head, at most 63.
func coins() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return uint64(bits.TrailingZeros64(binary.LittleEndian.Uint64(b[:])&math.MaxInt64 | 1<<63))
}

// hintOfAnswer says what to look at where an upload was not answered as it should be.
func hintOfAnswer(err error) string {
	if refused := new(ohttp.RefusedError); errors.As(err, &refused) && refused.Reason == ohttp.ReasonKey {
		return "the manifest is of an epoch that is over: get the present one from where this one came"
	}
	return "check that leader and helper run: starling status"
}
