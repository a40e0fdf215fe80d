package main

import (
	"context"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"

	"github.com/starling-agg/starling/anonymity/ohttp"
	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/client/sender"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/recipe"
)

const sendCoinsHelp = `
A recipe whose devices decide by coins is answered once a round, by one person, with --ledger: the round is paid for there
first, heads or tails, out of --budget. The coin's outcome is not printed, the exit code is the same either way, and so is
the message where a report did not arrive: --tell shows both, to the person alone. With --no-answer a
device that has none takes part like all others.
Where devices donate at a random time of the next round, that time is drawn once and kept beside the ledger until it has
come. --wait waits for it and for the round to end, so that not even the end of the command tells the time; without it,
run the same command again during the round (from a timer, say): it sends if the time has come and looks alike if not.
--tell says when the time is. The answer is never kept, so give it each time.`

// coinSend are the flags of send that recipes with coins need.
type coinSend struct {
	ledger, counter, attributes, certificate *string
	budget, budgetDelta                      *float64
	noAnswer, tell, wait                     *bool
}

func newCoinSend(flags *flag.FlagSet) *coinSend {
	return &coinSend{
		ledger:      flags.String("ledger", "", "the directory `DIR` of the person's ledger, made where there is none"),
		counter:     flags.String("counter", "", "a `FILE` outside of DIR that is not put back with it: a ledger put back as a whole is then found out"),
		attributes:  flags.String("attributes", "", "what this device declares to targeted recipes: a `FILE` of lines such as platform=linux"),
		certificate: flags.String("certificate", "", "the log entry `HASH` of a targeted recipe's certificate, which you have looked up"),
		budget:      flags.Float64("budget", 0, "all recipes together may cost epsilon `E`; needed with --ledger, inf is no limit"),
		budgetDelta: flags.Float64("budget-delta", 1e-4, "and the probability `D` beside it"),
		noAnswer:    flags.Bool("no-answer", false, "take part without an answer"),
		wait:        flags.Bool("wait", false, "where devices donate at a random time, wait for it"),
		tell:        flags.Bool("tell", false, "say what the coin said and whether it arrived; whoever reads the output learns it too"),
	}
}

func (s *coinSend) given() bool {
	return *s.ledger != "" || *s.counter != "" || *s.attributes != "" || *s.certificate != "" || *s.budget != 0 || *s.noAnswer || *s.tell || *s.wait
}

// readAttributes reads a file of what the device declares.
func readAttributes(path string) (map[recipe.Attribute]string, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, ofInput(err, "starling send --help")
	}
	defer f.Close()
	list, err := sender.ReadAttributes(f)
	const hint = "lines are ATTRIBUTE=VALUE, as platform=linux"
	if bad := new(sender.AttributesError); errors.As(err, &bad) && bad.Line > 0 {
		return nil, failf(exitInput, hint, "%s:%d: %w", path, bad.Line, bad.Err)
	} else if err != nil {
		return nil, failf(exitInput, hint, "%s: %w", path, err)
	}
	return list, nil
}

// certified accepts the one log entry that the person has looked up.
func (s *coinSend) certified() (func(*recipe.Targeting) error, error) {
	if *s.certificate == "" {
		return nil, nil
	}
	entry, err := hex.DecodeString(*s.certificate)
	if err != nil || len(entry) != len(recipe.Hash{}) {
		return nil, usageOf("send", errors.New("--certificate wants the hexadecimal SHA-256 of a log entry"))
	}
	return sender.LookedUp(recipe.Hash(entry)), nil
}

// validate refuses combinations of flags before anything is opened.
func (x *sending) validate(values int, simulated bool) error {
	f := x.flags
	_, donates := x.recipe.Slotted()
	switch {
	case *f.wait && !donates:
		return usageOf("send", errors.New("--wait is for recipes whose devices donate at a random time, and this one asks at once"))
	case x.recipe.Relay != nil && x.options.Manifest == nil:
		return failf(exitUsage, "starling send --manifest manifest.starling ...", "%s goes through a relay: --manifest is missing", x.file)
	case simulated && (*f.ledger != "" || *f.tell):
		return usageOf("send", errors.New("devices that are made up have no ledger and no coin to tell: --ledger, --tell and --simulate exclude each other"))
	case simulated && donates && !*f.wait:
		return usageOf("send", errors.New("devices that are made up keep no time for later: --simulate needs --wait here"))
	case simulated:
		return nil
	case *f.ledger == "":
		return failf(exitUsage, "starling send --ledger DIR --budget E ...", "%s is decided by a coin, which a person pays for: --ledger is missing", x.file)
	case !(*f.budget > 0) || !(*f.budgetDelta > 0 && *f.budgetDelta <= 1):
		return usageOf("send", errors.New("--ledger needs --budget above 0, and a --budget-delta above 0 and at most 1"))
	case values != 1:
		return usageOf("send", errors.New("a person gives one answer a round: one value, or --no-answer"))
	}
	return nil
}

// home is where the person's ledger is.
func (s *coinSend) home() sender.Home {
	return sender.Home{Dir: *s.ledger, Counter: *s.counter, Limits: participate.LedgerOptions{MaxEpsilon: *s.budget, MaxDelta: *s.budgetDelta}}
}

// open says how a recipe with coins is answered, as far as files and flags say it.
func (x *sending) open() (err error) {
	if x.options.Attributes, err = readAttributes(*x.flags.attributes); err == nil {
		x.options.Certificate, err = x.flags.certified()
	}
	return err
}

// person decides one round for one person.
func (x *sending) person(ctx context.Context, e *env, v client.Value) (err error) {
	if err := x.open(); err != nil {
		return err
	}
	home := x.flags.home()
	if err := home.Validate(); err != nil {
		return usageOf("send", err)
	}
	p, err := sender.OpenPerson(ctx, x.options, home)
	if err != nil {
		return x.refusal(ctx, err)
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	decision, err := p.Decide(ctx, v)
	if err != nil {
		return x.refusal(ctx, err)
	}
	if _, donates := x.recipe.Slotted(); donates {
		return x.donate(ctx, e, p, decision)
	}
	// From here on nothing but --tell says what was decided: not an exit code, not an
	// error. An upload that fails says that there was one.
	sent := decision.Send(ctx)
	return x.report(e, p.Ledger(), decision, sent)
}

// refusal gives errors from before the coin their exit codes.
func (x *sending) refusal(ctx context.Context, err error) error {
	hint := "starling recipe show " + x.file
	manifest, refused, value := new(participate.ManifestError), new(client.RefusedError), new(client.ValueError)
	dir, busy, waited, answer := new(sender.DirError), new(sender.BusyError), new(sender.WaitError), dap.ReportError(0)
	if more := hintOfTrust(err); more != "" {
		hint = more
	}
	switch {
	case errors.As(err, &dir):
		return &failure{exitInput, err, "--ledger DIR names a directory of yours, made where there is none, and --counter a file in one"}
	case errors.As(err, &busy):
		return &failure{exitFailed, err, "wait for the other starling send to end"}
	case errors.As(err, &waited):
		return &failure{exitInterrupted, err, "the time that was drawn is kept: run this again"}
	case ctx.Err() != nil:
		return &failure{exitInterrupted, err, ""}
	case errors.Is(err, client.ErrMemory):
		return &failure{exitCheck, err, "do not delete it: a device that forgot can be given another manifest. Put the newest copy of " +
			filepath.Join(*x.flags.ledger, client.MemoryDir) + " back, all of it of one time (docs/recovery.md)"}
	case errors.Is(err, client.ErrClock):
		return &failure{exitNotYet, err, "set the clock right"}
	case errors.Is(err, client.ErrConflict):
		return &failure{exitCheck, err, "leader, helper and gateway have signed both; show them to others: " + filepath.Join(*x.flags.ledger, client.MemoryDir)}
	case errors.Is(err, participate.ErrLedger):
		return &failure{exitCheck, err, "do not delete it: an empty ledger would forget what is spent. Put the newest copies of ledger, charged and draws back into " +
			*x.flags.ledger + ", all of one time; if they are gone for good, this device sends nothing any more under the recipes that it knew (docs/recovery.md)"}
	case errors.Is(err, client.ErrNoCredentials):
		return x.sitsOut(err)
	case ofTheLog(err):
		return x.unlogged(err)
	case errors.Is(err, participate.ErrDecided):
		return &failure{exitNotYet, err, "a round is decided once; send again in the next: starling budget --recipe " + x.file + " " + *x.flags.ledger}
	case errors.Is(err, participate.ErrTooSoon):
		return &failure{exitNotYet, err, "send again in that round; what the recipe says of it: " + hint}
	case errors.Is(err, participate.ErrBudget):
		return &failure{exitCheck, err, "starling budget " + *x.flags.ledger}
	case errors.As(err, &value):
		return &failure{exitInput, err, hint}
	case errors.As(err, &manifest), errors.As(err, &refused), errors.Is(err, participate.ErrNotAsked),
		errors.Is(err, participate.ErrCertificate), errors.Is(err, client.ErrWindow), distrusted(err):
		return &failure{exitCheck, err, hint}
	case errors.As(err, &answer) && answer == dap.BatchCollected: // of made-up devices; a person's are not told
		return &failure{exitCheck, err, "this round has been collected; send again when the next begins"}
	case errors.As(err, &answer):
		return &failure{exitCheck, err, "starling why leader.toml"}
	}
	return &failure{exitUnreachable, err, hintOfAnswer(err)}
}

// distrusted says whether a manifest or a list of keys was refused, or who vouches for
// them.
func distrusted(err error) bool {
	return errors.Is(err, ohttp.ErrManifest) || errors.Is(err, ohttp.ErrUnsigned) || errors.As(err, new(*ohttp.SendingError)) || errors.Is(err, client.ErrSharedKey) ||
		errors.Is(err, recipe.ErrNoServerKeys) || errors.As(err, new(*recipe.AnchorError)) || errors.As(err, new(*client.KeysError))
}

// hintOfTrust says what to do about a manifest or a list of keys that was refused, where
// the recipe does not say it.
func hintOfTrust(err error) string {
	switch {
	case errors.As(err, new(*ohttp.SendingError)):
		return hintOf(err)
	case errors.Is(err, recipe.ErrNoServerKeys):
		return "nobody vouches for the keys of this recipe's servers: ask its author for one with --leader-key, or --any-keys on one machine"
	case errors.As(err, new(*recipe.AnchorError)):
		return "--anchors FILE, or $" + anchorsEnv + ", names the keys that came with the software; ask their owners before you add one: starling key anchor --help"
	case errors.Is(err, ohttp.ErrUnsigned):
		return "get the finished manifest from where this one came: starling manifest verify says who has not signed"
	case errors.Is(err, client.ErrSharedKey), errors.As(err, new(*client.KeysError)):
		return "send nothing; ask the owners of leader and helper: starling recipe show names them, starling doctor is for their operators"
	}
	return ""
}

// report says what was paid, and with --tell what for.
func (x *sending) report(e *env, ledger *participate.Ledger, d *participate.Decision, sent error) error {
	if !x.recipe.Sampled() {
		return x.certain(e, ledger, sent)
	}
	outcome := ""
	if *x.flags.tell {
		outcome = tell(d)
		if sent != nil {
			outcome += ", which did not arrive: " + sent.Error()
		}
	}
	if x.asJSON {
		return e.json(x.paid(ledger, outcome))
	}
	x.printPaid(e, ledger)
	if outcome == "" {
		outcome = "it is not told here, nor whether anything was sent or arrived; --tell tells you"
	}
	_, err := fmt.Fprintf(e.stdout, "the coin: %s\n", outcome)
	return err
}

// certain is report where everybody who is asked reports, so that there is no coin, and
// nothing to hide, in whether a report arrived.
func (x *sending) certain(e *env, ledger *participate.Ledger, sent error) error {
	out := x.paid(ledger, "")
	if out["report"] = "arrived"; sent != nil {
		out["report"] = "did not arrive"
	}
	var err error
	if x.asJSON {
		err = e.json(out)
	} else {
		x.printPaid(e, ledger)
		_, err = fmt.Fprintf(e.stdout, "the report: it %s\n", out["report"])
	}
	if sent != nil && err == nil {
		return failf(exitUnreachable, hintOfAnswer(sent), "the report did not arrive, and its round is paid for: answer again in the next one: %w", sent)
	}
	return err
}

// paid is what --json says of every decision; outcome is empty but with --tell.
func (x *sending) paid(ledger *participate.Ledger, outcome string) map[string]any {
	spent, entries := ledger.Spent(), ledger.Entries()
	out := map[string]any{"decided": true, "epsilon_spent": finite(spent.Epsilon), "delta_spent": spent.Delta, "budget": finite(*x.flags.budget),
		"conditions": participate.Conditions(entries), "unconditional": recipe.Loss(participate.Unconditional(entries))}
	if outcome != "" {
		out["coin"] = outcome
	}
	return out
}

// printPaid says what is spent: first what counts on nobody's word, and behind it what the
// budget is charged, with whose word that holds on.
func (x *sending) printPaid(e *env, ledger *participate.Ledger) {
	spent, entries, most := ledger.Spent(), ledger.Entries(), *x.flags.budget
	charged := "epsilon " + above(spent.Epsilon)
	if !math.IsInf(most, 1) {
		charged += fmt.Sprintf(" of %.4g", most)
	}
	word := ""
	switch conditions := participate.Conditions(entries); {
	case len(x.recipe.Conditions()) > 0:
		word = "what the recipe's author says is true: starling recipe show " + x.file
	case len(conditions) > 0:
		word = "what the authors of earlier recipes say is true: starling budget --log " + *x.flags.ledger
	default:
		fmt.Fprintf(e.stdout, "decided and paid for: %s is spent\n", charged)
		return
	}
	fmt.Fprintf(e.stdout, "decided and paid for: epsilon %s is spent%s; %s, holds if %s\n", above(participate.Unconditional(entries).Epsilon), anyhow,
		charged, word)
}

// above writes an epsilon that is spent with four digits, never below it.
func above(epsilon float64) string {
	if math.IsInf(epsilon, 1) {
		return "without bound"
	}
	return recipe.Above(epsilon)
}

// tell names what the coins said.
func tell(d *participate.Decision) string {
	var t participate.Tally
	t.Add(d)
	switch {
	case t.Reports() > 0:
		return "report, the answer"
	case t.Dummies() > 0:
		return "report, a dummy without an answer"
	case t.NoOps() > 0:
		return "no report; cover, which the gateway drops"
	}
	return "no report, nothing to send"
}
