package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/answer"
	"github.com/starling-agg/starling/client/sender"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/prose"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/recipe"
)

func sendCommand() *command {
	return &command{
		name: "send", args: "[--csv FILE --column NAME [--group COLUMN] [--unit COLUMN] | --stdin | --simulate N | --no-answer] [--manifest FILE] [--credentials DIR --policy FILE] [--ledger DIR --budget E] [--json] RECIPE [VALUE...]",
		short: "Answer a recipe as devices do: split, seal and upload",
		long: `Each value becomes one report of its own. A value is yes or no for a count, a number for a sum or a mean, a bucket
for a histogram, by its name or from 0, numbers with commas between them for vectors, and a number, a comma and a group for sums
by group, as 7,good; in a CSV file the group may stand in --group's column.
Rows of a CSV file with the same value in --unit's column are records of one unit of the recipe, and become one report, as the
recipe says; with --unit - each row is a unit. --person names the column of persons: one with more units than the recipe says is refused.
With --manifest everything goes through the relay that the manifest names, each report by itself. The gateway behind it
answers that it has a report; what the leader makes of it, its operator sees in starling status.
A recipe that counts devices has one report a round of each, with --credentials, which starling enrol and starling visit fill. The manifest of one that names a log is
what starling visit saw there last.
The certificate in the recipe's file is checked first; a guarantee that it does not prove, or that is weaker than --max-epsilon, is refused.
` + sendCoinsHelp,
		examples: [][2]string{
			{"starling send recipe.starling 3", "one report"},
			{"starling send --csv answers.csv --column visits recipe.starling", "one report a row"},
			{"starling send --csv visits.csv --column cost --unit patient costs.starling", "one report a patient, of all their rows"},
			{"starling send --csv visits.csv --column visits --group health visits.starling", "one number in one group a row"},
			{"starling send --simulate 20000 recipe.starling", "made-up answers, for tests"},
			{"starling send --ledger ~/.local/share/starling --budget 4 --manifest manifest.starling crashes.starling 0,0,1",
				"one person's answer, if the coin says so"},
		},
		setup: func(flags *flag.FlagSet) func(context.Context, *env, []string) error {
			asJSON := flags.Bool("json", false, "print one JSON object")
			file := flags.String("csv", "", "read values from a column of this `FILE`")
			column := flags.String("column", "", "the column's `NAME` in its first line")
			var table answer.Table
			flags.StringVar(&table.Group, "group", "", "for sums by group: the group stands in this `COLUMN`")
			flags.StringVar(&table.Unit, "unit", "", "rows with the same value in this `COLUMN` are of one unit of the recipe; - for none")
			flags.StringVar(&table.Person, "person", "", "rows with the same value in this `COLUMN` are of one person")
			stdin := flags.Bool("stdin", false, "read values from standard input, one a line")
			simulate := flags.Int("simulate", 0, "make up `N` values, small ones more often")
			most := flags.Float64("max-epsilon", 0, "refuse a recipe with a larger epsilon than `E`; 0 takes any that is finite")
			manifest := flags.String("manifest", "", "send through the relay of this manifest `FILE`")
			anchors := flags.String("anchors", "", anchorsUsage)
			anyKeys := flags.Bool("any-keys", false, "take part although the recipe names no signing keys: whoever answers for its servers can read the answer")
			dir := flags.String("credentials", "", "the directory `DIR` of the device's credentials and of what it has seen of the log, where the recipe counts devices or names a log")
			policy := flags.String("policy", "", "the log that the recipe names, its witnesses and which of them must have signed, a `FILE`")
			coins := newCoinSend(flags)
			return func(ctx context.Context, e *env, args []string) error {
				if len(args) == 0 {
					return usageOf("send", errors.New("starling send needs a recipe file"))
				}
				checked, err := openCertified(args[0])
				if err != nil {
					return err
				}
				r := checked.Recipe()
				table.File, table.Column = *file, *column
				if err := checkTable(&table, r); err != nil {
					return err
				}
				var values []client.Value
				var units answer.Tally
				if *coins.noAnswer && len(args) == 1 && *file == "" && !*stdin && *simulate == 0 {
					values = []client.Value{client.NoValue()}
				} else if *coins.noAnswer {
					return usageOf("send", errors.New("--no-answer goes with no values"))
				} else if table.Unit != "" && len(args) == 1 && !*stdin && *simulate == 0 {
					values, units, err = readTable(&table, r)
				} else {
					values, err = readValues(e.stdin, r, args[1:], &table, *stdin, *simulate)
				}
				if bad := new(answer.ValueError); errors.As(err, &bad) {
					return &failure{exitInput, err, "starling recipe show " + args[0]}
				} else if err != nil {
					return err
				}
				o := client.Options{Checked: checked, MaxEpsilon: *most, AnyKeys: *anyKeys}
				if r.Keyed() {
					if o.Anchors, err = readAnchors(*anchors); err != nil {
						return err
					}
				}
				if r.Unit != nil && *coins.ledger != "" && len(values) > 1 {
					one, err := client.Reduce(r, values)
					if err != nil {
						return &failure{exitInput, err, "starling recipe show " + args[0]}
					}
					values = []client.Value{one}
				}
				x := &sending{flags: coins, file: args[0], recipe: r, options: sender.Options{Client: o}, credentials: *dir, asJSON: *asJSON}
				if *manifest != "" {
					m, err := readManifest(*manifest)
					if err != nil {
						return err
					}
					x.options.Manifest = ohttp.Pin(m)
				}
				if err := x.openPurse(*policy, *anchors, len(values), *simulate != 0); err != nil {
					return err
				}
				if r.Sampled() || coins.given() {
					if err := x.validate(len(values), *simulate != 0); err != nil {
						return err
					}
					if *simulate != 0 {
						return x.simulate(ctx, e, values)
					}
					return x.person(ctx, e, values[0])
				}
				if _, ok := r.Correlated(); ok && len(values) == 1 && *simulate == 0 {
					return failf(exitUsage, "--ledger DIR --budget E", "this recipe counts on each device to keep its answers %d rounds apart, which only its ledger can",
						r.DeviceRule().Separation)
				}
				var tally *answer.Tally
				if table.Unit != "" {
					tally = &units
				}
				return x.many(ctx, e, values, tally, *simulate == 0)
			}
		},
	}
}

// openCertified opens a recipe as devices do, by the certificate in its file.
func openCertified(path string) (*recipe.Checked, error) {
	c, err := deploy.OpenCertified(path)
	switch {
	case errors.Is(err, recipe.ErrUncertified):
		return nil, &failure{exitCheck, err, "starling recipe certificate " + path + " makes the certificate; better is the file that its author gives out"}
	case errors.As(err, new(*recipe.CertificateError)), errors.Is(err, recipe.ErrNoCertificate):
		return nil, &failure{exitCheck, err, "nothing was sent or paid for; get the recipe's file anew from its author: starling check " + path}
	case err != nil:
		return nil, ofInput(err, noRecipe)
	}
	return c, nil
}

// A sending is one run of starling send, once its command line was read.
type sending struct {
	flags   *coinSend
	options sender.Options
	file    string
	recipe  *recipe.Recipe
	// credentials is the directory of the device's; empty where the recipe counts none.
	credentials string
	asJSON      bool
}

// many sends answers of people of whom nothing is remembered here. Units is what became
// of a table's records, if there was one; people are warned unless they are made up.
func (x *sending) many(ctx context.Context, e *env, values []client.Value, units *answer.Tally, people bool) error {
	s, err := sender.New(x.options)
	if ofTheLog(err) {
		return x.unlogged(err)
	}
	if refused := new(client.RefusedError); errors.As(err, &refused) || distrusted(err) {
		return &failure{exitCheck, err, cmp.Or(hintOfTrust(err), "starling recipe show "+x.file)}
	} else if err != nil {
		return usageOf("send", err)
	}
	if _, claimed := x.recipe.Claim.(recipe.ApproxDP); claimed && people {
		fmt.Fprintf(e.stderr, "no ledger is kept here, so the same can be sent again, and the guarantee is for a %s of whom that is not done: "+
			"--ledger DIR --budget E remembers\n", x.recipe.PrivacyUnit().Name)
	}
	sent, err := s.Send(ctx, values)
	if err != nil {
		return x.unsent(ctx, err)
	}
	return x.printSent(e, sent, units)
}

// unsent gives exit codes and hints to what kept answers from being sent.
func (x *sending) unsent(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return &failure{exitInterrupted, err, x.unanswered()}
	case distrusted(err):
		return &failure{exitCheck, err, cmp.Or(hintOfTrust(err), "starling recipe show "+x.file)}
	case errors.Is(err, client.ErrNoCredentials):
		return x.sitsOut(err)
	case ofTheLog(err):
		return x.unlogged(err)
	case errors.Is(err, client.ErrWindow):
		return &failure{exitCheck, err, "starling recipe show " + x.file + " says when it is answered: wait, or get the recipe that follows it"}
	case errors.As(err, new(*client.ValueError)):
		return &failure{exitInput, err, "starling recipe show " + x.file}
	case closedForGood(err):
		return &failure{exitCheck, err, hintOfAnswer(err)}
	}
	return &failure{exitUnreachable, err, hintOfAnswer(err)}
}

// unanswered says who may be away when somebody stopped waiting.
func (x *sending) unanswered() string {
	if x.options.Manifest != nil {
		return "it was tried again and again: relay and gateway have to run, and who runs them sees it with starling status relay.toml or gateway.toml"
	}
	return "send again what was not acknowledged; who runs leader and helper sees how they are with starling status leader.toml or helper.toml"
}

// printSent says what became of answers of many people.
func (x *sending) printSent(e *env, sent *sender.Sent, units *answer.Tally) error {
	refused, rejected := sent.RefusedReports(), map[string]int{}
	for reason, n := range sent.Refused {
		rejected[reason.String()] = n
	}
	out := map[string]any{"reports_sent": sent.Values}
	if units != nil {
		unit := x.recipe.PrivacyUnit().Name
		out["unit"], out["records"], out["units"], out["records_left_out"] = unit, units.Records, units.Units, units.LeftOut
		if !x.asJSON {
			fmt.Fprintf(e.stdout, "%s records, each %s's made one; %s left out\n", prose.Count(float64(units.Records)), unit, prose.Count(float64(units.LeftOut)))
		}
	}
	all := prose.Count(float64(sent.Values))
	var err error
	switch relayed := x.options.Manifest != nil; {
	case relayed && x.asJSON:
		out["reports_taken"] = sent.Values
		err = e.json(out)
	case relayed:
		// The leader's verdict on a report is told to nobody, or it could tell who sent
		// one.
		fmt.Fprintf(e.stdout, "%s sent, %s taken by the gateway, which passes them on\n", all, all)
	case x.asJSON:
		out["reports_acknowledged"], out["reports_refused"] = sent.Values-refused, rejected
		err = e.json(out)
	default:
		fmt.Fprintf(e.stdout, "%s sent, %s acknowledged\n", all, prose.Count(float64(sent.Values-refused)))
		for _, reason := range slices.Sorted(maps.Keys(rejected)) {
			fmt.Fprintf(e.stdout, "%s refused: %s\n", prose.Count(float64(rejected[reason])), reason)
		}
	}
	if err == nil && refused == sent.Values {
		hint := "starling why leader.toml"
		if sent.Refused[dap.BatchCollected] > 0 {
			hint = fmt.Sprintf("this round has been collected; send again when the next begins, within %d s", x.recipe.BatchUnits()*uint64(x.recipe.TimePrecision))
		}
		return failf(exitCheck, hint, "the leader refused every report")
	}
	return err
}

// checkTable says which of a recipe and of flags do not go together.
func checkTable(x *answer.Table, r *recipe.Recipe) error {
	u := r.PrivacyUnit()
	switch {
	case x.File == "" && (x.Group != "" || x.Unit != "" || x.Person != ""):
		return usageOf("send", errors.New("--group, --unit and --person name columns of the --csv file"))
	case x.Group != "" && r.Given().Form() != recipe.Grouped:
		return usageOf("send", errors.New("--group goes with sums by group, and the recipe asks for something else"))
	case x.File != "" && x.Column == "":
		return usageOf("send", errors.New("--csv needs --column, the name of a column in the file's first line"))
	case x.File != "" && x.Unit == "" && r.Unit != nil:
		return failf(exitUsage, "--unit COLUMN says whose each row is, --unit "+answer.EachRow+" that each is of another "+u.Name,
			"this recipe protects one %s, whatever the number of its rows, and --unit is missing", u.Name)
	case x.Person != "" && u.PerPerson == 0:
		return usageOf("send", fmt.Errorf("the recipe says nothing of how many of its unit, %s, a person has: --person has nothing to hold", u.Name))
	}
	return nil
}

// readTable reads a table of records by unit.
func readTable(x *answer.Table, r *recipe.Recipe) ([]client.Value, answer.Tally, error) {
	f, err := os.Open(x.File)
	if err != nil {
		return nil, answer.Tally{}, ofInput(err, "starling send --help")
	}
	defer f.Close()
	values, tally, err := x.Read(f, r)
	if bad := new(answer.TableError); errors.As(err, &bad) {
		code, hint := exitInput, ""
		switch bad.Fault {
		case answer.FaultColumn, answer.FaultEmpty:
			hint = "starling send --help"
		case answer.FaultValue, answer.FaultReduce:
			hint = "starling recipe show"
		case answer.FaultUnnamed:
			hint = "every row names its unit, or --unit " + answer.EachRow + " says that each is one"
		case answer.FaultPerson:
			code, hint = exitCheck, "what a person with more would have, nobody has computed"
		case answer.FaultRecords:
			hint = "a recipe says which by starling recipe new --unit " + r.PrivacyUnit().Name + " --reduce first"
		}
		err = &failure{code, err, hint}
	}
	return values, tally, err
}

// readValues gathers the values from exactly one source.
func readValues(in io.Reader, r *recipe.Recipe, args []string, x *answer.Table, stdin bool, simulate int) ([]client.Value, error) {
	sources := 0
	for _, given := range []bool{len(args) > 0, x.File != "", stdin, simulate != 0} {
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
			values[i] = answer.MadeUp(r)
		}
		return values, nil
	case x.File != "":
		f, err := os.Open(x.File)
		if err != nil {
			return nil, ofInput(err, "starling send --help")
		}
		defer f.Close()
		if args, err = answer.Column(f, x.Column, x.Group); err != nil {
			return nil, failf(exitInput, "starling send --help", "%s: %w", x.File, err)
		}
	case stdin:
		var err error
		if args, err = answer.Lines(in); err != nil {
			return nil, failf(exitInput, "one value a line", "standard input: %w", err)
		}
	}
	values, err := answer.Typed(r, args)
	if err == nil && len(values) == 0 {
		err = failf(exitInput, "starling send --help", "there are no values")
	}
	return values, err
}

// closedForGood reports whether a server that was restored takes nothing more of the task.
func closedForGood(err error) bool {
	problem := new(dap.Problem)
	return errors.As(err, &problem) && problem.Type == releases.ProblemClosed
}

// hintOfAnswer says what to look at where an upload was not answered as it should be.
func hintOfAnswer(err error) string {
	if refused := new(ohttp.RefusedError); errors.As(err, &refused) && refused.Reason == ohttp.ReasonKey {
		return "the manifest is of an epoch that is over: get the present one from where this one came"
	}
	if closedForGood(err) {
		return "nothing more is taken under this recipe, however often it is sent: get the one that was published in its place from where this one came"
	}
	if problem := new(dap.Problem); errors.As(err, &problem) && problem.HTTPStatus() >= http.StatusInternalServerError {
		return "the server is there and cannot take it: who runs it finds the reason in its log, a full disk (df -h) say; starling doctor leader.toml. Then send again"
	}
	return cmp.Or(hintOfCertificate(err), "leader and helper have to run: who runs them sees it with starling status leader.toml or helper.toml; then send again")
}
