package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
)

// An asking is one run of starling collect, from what was typed to its results.
type asking struct {
	e        *env
	line     *progress
	session  *deploy.Session
	file     string // the configuration
	from, to string // as typed; empty is what has come since the last time
	timeout  time.Duration
	skip     bool
	now      func() time.Time

	begun time.Time // of the question under way
	said  bool      // that it waits
	waits collector.Waiting
	few   int // answers in a row that too few reports came
	stop  context.CancelCauseFunc
}

// quiet is how long collect waits before it says so where no terminal shows its line.
const quiet = 3 * time.Second

// fewTwice is how many answers in a row have to say that too few reports came: the first
// may be older than a report that was verified since.
const fewTwice = 2

// errTooFew: the time that was asked for is over, and too few reports of it came.
var errTooFew = errors.New("too few reports")

// watch tells what a question waits for, and ends one that can never be answered.
func (a *asking) watch(p collector.Progress) {
	a.waits = p.For
	if !a.said && !a.e.watched && time.Since(a.begun) > quiet {
		a.said = true
		fmt.Fprintf(a.e.stderr, "asked; waiting for the leader's answer, %v at most. What was asked is kept: stop this, and collect goes on with it later\n", a.timeout)
	}
	a.line.tell(fmt.Sprintf("waiting %s: %s; asked %d times", time.Since(a.begun).Round(time.Second), waitsFor(p.For), p.Polls))
	if end := a.session.Asked(); p.For != collector.ForReports || end.IsZero() || !a.session.Over(end, a.now()) {
		a.few = 0
		return
	}
	if a.few++; a.few >= fewTwice {
		a.stop(errTooFew)
	}
}

// waitsFor says what the leader waits for, as far as it tells.
func waitsFor(w collector.Waiting) string {
	switch w {
	case collector.ForRound:
		return "that time is not over yet, or its grace"
	case collector.ForReports:
		return "fewer reports came than are released about"
	}
	return "the servers are still at work on it"
}

// ask asks one question, or goes on with the pending one, for at most the timeout. The
// error is errTooFew where it can never be answered.
func (a *asking) ask(ctx context.Context, b [2]time.Time) (*collector.Result, error) {
	ctx, a.stop = context.WithCancelCause(ctx)
	defer a.stop(nil)
	wait, cancel := context.WithTimeout(ctx, a.timeout)
	defer cancel()
	a.begun, a.few, a.waits = time.Now(), 0, ""
	result, err := a.session.Collect(wait, b[0], b[1])
	a.line.end()
	a.notice()
	if err != nil && errors.Is(context.Cause(ctx), errTooFew) {
		return nil, errTooFew
	}
	return result, err
}

// notice tells what a person should know of the collector's state file.
func (a *asking) notice() {
	if words := a.session.Notice(); words != "" {
		fmt.Fprintf(a.e.stderr, "starling: warning: %s\n", words)
	}
}

// each asks one question after the other and hands out the results.
func (a *asking) each(ctx context.Context, batches [][2]time.Time, show func(*collector.Result) error) error {
	released, passed := 0, false
	a.notice()
	if a.session.Pending() {
		fmt.Fprintln(a.e.stderr, "going on with the question asked before")
	}
	for len(batches) > 0 {
		b, pending := batches[0], a.session.Pending()
		if !pending {
			if err := a.early(b, a.now()); err != nil {
				return err
			}
		}
		result, err := a.ask(ctx, b)
		end := a.session.Asked()
		switch {
		case err == nil:
			batches, released = batches[1:], released+1
			if err := show(result); err != nil {
				return err
			}
		case a.skip && (errors.Is(err, errTooFew) || ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) && !end.IsZero() && a.session.Over(end, a.now())):
			gone, err := a.session.Skip(ctx)
			if err != nil {
				return a.failure(ctx, a.session.Pending(), b, err)
			} else if !gone {
				continue // its answer is there
			}
			fmt.Fprintf(a.e.stderr, "left out the round up to %s: it is over, and not ready\n", end.UTC().Format(time.RFC3339))
			batches, passed = batches[1:], true
			// what comes behind it was not asked for yet
			if pending && len(batches) == 0 && a.from == "" {
				if batches, err = a.questions(); err != nil && !errors.Is(err, deploy.ErrNothingNew) {
					return err
				}
			}
		case errors.Is(err, errTooFew):
			gone, err := a.session.Withdraw(ctx)
			if err != nil {
				return a.failure(ctx, a.session.Pending(), b, err)
			} else if !gone {
				continue
			}
			if !pending {
				return a.tooFew(b, end)
			}
			later, err := a.later(end) // this one was asked earlier
			if err != nil {
				return a.tooFew(b, end)
			}
			fmt.Fprintf(a.e.stderr, "too few reports came up to %s: asking for those up to %s\n", end.UTC().Format(time.RFC3339), later[1].UTC().Format(time.RFC3339))
			batches = [][2]time.Time{later}
		default:
			return a.failure(ctx, a.session.Pending(), b, err)
		}
	}
	if released == 0 && passed {
		return &failure{exitNotYet, errors.New("no round is ready"), "starling why leader.toml; starling send, then collect again"}
	}
	return nil
}

// later is what to ask for in the place of a time in which too few reports came: the same
// and what came since, where several rounds are released together.
func (a *asking) later(end time.Time) ([2]time.Time, error) {
	if a.from != "" || a.session.Recipe().Alone() {
		return [2]time.Time{}, errTooFew
	}
	list, err := a.questions()
	if err == nil && (len(list) != 1 || !list[0][1].After(end) || a.early(list[0], a.now()) != nil) {
		err = errTooFew
	}
	if err != nil {
		return [2]time.Time{}, err
	}
	return list[0], nil
}

// tooFew says that a question can never be answered, and which one may be.
func (a *asking) tooFew(b [2]time.Time, end time.Time) error {
	what := "up to " + end.UTC().Format(time.RFC3339)
	if !b[0].IsZero() {
		what = fmt.Sprintf("from %s to %s", b[0].Format(time.RFC3339), b[1].Format(time.RFC3339))
	}
	hint := "starling send, and when more have answered " + a.command(time.Time{}, time.Time{}) + ": it asks for all up to then"
	if a.session.Recipe().Alone() {
		hint = a.command(time.Time{}, time.Time{}) + " --skip goes on with the round behind it"
	} else if a.from != "" {
		if _, next, err := a.rounds(b[0], a.now()); err == nil && next.After(end) {
			hint = "when more have answered, after the end of their round: " + a.command(b[0], next)
		}
	}
	return failf(exitNotYet, hint, "fewer than the %d reports that are released about came %s, and that time is over: nothing more will come of it",
		a.session.Recipe().Threshold(), what)
}

// early refuses a question that could not be answered before the timeout: it would keep
// later ones waiting.
func (a *asking) early(b [2]time.Time, now time.Time) error {
	if b[1].IsZero() {
		return nil // the leader selects
	}
	r := a.session.Recipe()
	if w, bounded := r.Window.(recipe.Between); bounded {
		first, err1 := r.TimePrecision.Begin(w.Start)
		last, err2 := r.TimePrecision.Begin(w.End)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if !b[0].Before(last) || !first.Before(b[1]) {
			return failf(exitUsage, "starling collect "+a.file, "the recipe takes reports from %s to %s, and none of %s to %s",
				first.Format(time.RFC3339), last.Format(time.RFC3339), b[0].Format(time.RFC3339), b[1].Format(time.RFC3339))
		}
	}
	switch due := b[1].Add(r.Grace()); {
	case b[0].After(now.Add(a.timeout)):
		return failf(exitUsage, a.lately(now), "the time from %s on has not begun, so nothing has been reported of it", b[0].Format(time.RFC3339))
	case due.After(now.Add(a.timeout)):
		wait := due.Sub(now).Round(time.Second) + time.Minute
		return failf(exitNotYet, fmt.Sprintf("the same after that time, or with --timeout %v now", wait),
			"nothing of %s to %s is released before %s, which is past --timeout %v: nothing was asked", b[0].Format(time.RFC3339), b[1].Format(time.RFC3339),
			due.Format(time.RFC3339), a.timeout)
	}
	return nil
}

// questions are what is asked for, one after the other: the ends of a time, which are
// zero in a leader-selected recipe and where a question is pending.
func (a *asking) questions() ([][2]time.Time, error) {
	begin, end, err := a.interval(a.now())
	if err != nil {
		return nil, err
	}
	if begin.IsZero() {
		return [][2]time.Time{{begin, end}}, nil
	}
	list, err := a.session.Batches(begin, end)
	if err != nil {
		hint := "starling collect --help"
		if from, to, odd := a.rounds(begin, end); odd == nil {
			hint = a.command(from, to)
		}
		return nil, &failure{exitUsage, err, hint}
	}
	if !a.session.Pending() {
		return list, nil
	}
	for i, b := range list { // the ones before were answered
		if err = a.session.PendingFor(b[0], b[1]); err == nil {
			return list[i:], nil
		} else if !errors.Is(err, deploy.ErrPending) {
			return nil, usageOf("collect", err)
		}
	}
	return nil, &failure{exitUsage, deploy.ErrPending, a.command(time.Time{}, time.Time{}) + ", without --from and --to, goes on with it; --restart gives it up"}
}

// interval is the time that is asked about; both ends are zero in a leader-selected
// recipe, and where a question is pending.
func (a *asking) interval(now time.Time) (begin, end time.Time, err error) {
	if path, ok := a.session.Recipe().Path.(recipe.TwoServer); ok && path.BatchMode == dap.LeaderSelected {
		if a.from != "" || a.to != "" {
			return begin, end, failf(exitUsage, a.command(begin, end), "the leader selects this recipe's batches: --from and --to do not apply")
		}
		return begin, end, nil
	}
	if a.from == "" && a.to == "" {
		if a.session.Pending() {
			return begin, end, nil // what was asked is in the state
		}
		begin, end, err = a.session.Interval(now, a.timeout)
		switch {
		case errors.Is(err, deploy.ErrNothingNew):
			return begin, end, &failure{exitNotYet, err, "starling send, then collect again"}
		case err != nil:
			return begin, end, &failure{exitUsage, err, a.lately(now)}
		}
		return begin, end, nil
	}
	for _, t := range []struct {
		flag, text string
		into       *time.Time
	}{{"--from", a.from, &begin}, {"--to", a.to, &end}} {
		if t.text == "" {
			continue
		}
		if *t.into, err = time.Parse(time.RFC3339, t.text); err != nil {
			return begin, end, failf(exitUsage, a.lately(now), "%s: %q is not a time such as 2026-01-31T00:00:00Z", t.flag, t.text)
		}
	}
	if a.from != "" && a.to != "" {
		return begin, end, nil
	}
	hint := a.lately(now)
	if from, to, odd := a.rounds(begin, now); a.to == "" && odd == nil && from.Before(to) {
		hint = a.command(from, to)
	}
	return begin, end, failf(exitUsage, hint, "--from and --to go together")
}

// rounds is the least run of whole rounds, or slots, around a time.
func (a *asking) rounds(from, to time.Time) (time.Time, time.Time, error) {
	r := a.session.Recipe()
	edge := func(t time.Time, up bool) (time.Time, error) {
		unit, err := r.TimePrecision.At(t)
		if err != nil {
			return t, err
		}
		first := r.ReportTime(unit)
		begin, err := r.TimePrecision.Begin(first)
		if err != nil || !up || begin.Equal(t) {
			return begin, err
		}
		return r.TimePrecision.Begin(first + dap.Time(r.BatchUnits()))
	}
	begin, err1 := edge(from, false)
	end, err2 := edge(to, true)
	if err := errors.Join(err1, err2); err != nil {
		return from, to, err
	}
	if !begin.Before(end) {
		return from, to, errors.New("the time is empty")
	}
	return begin, end, nil
}

// lately is the command that asks for the rounds of the last day that are over.
func (a *asking) lately(now time.Time) string {
	r := a.session.Recipe()
	unit, err := r.TimePrecision.At(now)
	if err != nil {
		return "starling collect --help"
	}
	end, err1 := r.TimePrecision.Begin(r.ReportTime(unit))
	begin, _, err2 := a.rounds(end.Add(-24*time.Hour), end)
	if errors.Join(err1, err2) != nil {
		return "starling collect --help"
	}
	return a.command(begin, end)
}

// command is what to type to ask for a time; zero ends are what has come since the last time.
func (a *asking) command(from, to time.Time) string {
	words := []string{"starling collect"}
	if !from.IsZero() {
		words = append(words, "--from", from.UTC().Format(time.RFC3339), "--to", to.UTC().Format(time.RFC3339))
	}
	words = slices.DeleteFunc(append(words, a.file), func(w string) bool { return w == deploy.CollectorFile })
	return strings.Join(words, " ")
}
