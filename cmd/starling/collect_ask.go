//go:build !lean

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/deploy/question"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/recipe"
)

// An asking is one run of starling collect, as it speaks to people.
type asking struct {
	e        *env
	line     *progress
	file     string // the configuration
	from, to string // as typed; empty is what has come since the last time
	view     string // as typed; empty is that of one round
	timeout  time.Duration
	skip     bool
	now      func() time.Time
	run      *question.Run
	said     bool // that it waits
}

// quiet is how long collect waits before it says so where no terminal shows its line.
const quiet = 3 * time.Second

// open opens the collector's session.
func (a *asking) open(config *deploy.Collector, c collector.Options) (err error) {
	a.run, err = question.Open(config, c, question.Options{Timeout: a.timeout, Skip: a.skip, Now: a.now, Listener: a})
	if err != nil {
		return &failure{exitInput, fmt.Errorf("%s: %w", a.file, err), hintOf(err)}
	}
	return nil
}

// questions are what is asked for, by what was typed.
func (a *asking) questions() ([]question.Span, error) {
	if a.view != "" {
		if err := a.run.Session().AskView(a.view); err != nil {
			return nil, a.unasked(err)
		}
	}
	s, err := a.typed(a.recipe(), a.run.Session().Units())
	if err != nil {
		return nil, err
	}
	a.run.About(s)
	spans, err := a.run.Questions()
	if err != nil {
		err = a.unasked(err)
	}
	return spans, err
}

// recipe is what is collected.
func (a *asking) recipe() *recipe.Recipe { return a.run.Session().Recipe() }

// typed reads --from and --to, of a recipe whose releases span that many units.
func (a *asking) typed(r *recipe.Recipe, units uint64) (s question.Span, err error) {
	if a.from == "" && a.to == "" {
		return s, nil
	}
	if question.LeaderSelects(r) {
		return s, failf(exitUsage, a.command(s), "the leader selects this recipe's batches: --from and --to do not apply")
	}
	now := a.now()
	lately := a.instead(question.Lately(r, units, now))
	for _, t := range []struct {
		flag, text string
		into       *time.Time
	}{{"--from", a.from, &s.From}, {"--to", a.to, &s.To}} {
		if t.text == "" {
			continue
		}
		if *t.into, err = time.Parse(time.RFC3339, t.text); err != nil {
			return s, failf(exitUsage, lately, "%s: %q is not a time such as 2026-01-31T00:00:00Z", t.flag, t.text)
		}
	}
	if a.from != "" && a.to != "" {
		return s, nil
	}
	hint := lately
	if around, odd := question.Around(r, units, s.From, now); a.to == "" && odd == nil {
		hint = a.command(around)
	}
	return s, failf(exitUsage, hint, "--from and --to go together")
}

// command is what to type to ask for a time; a zero span is what has come since the last
// time.
func (a *asking) command(s question.Span) string {
	words := []string{"starling collect"}
	if a.view != "" {
		words = append(words, "--view", a.view)
	}
	if !s.From.IsZero() {
		words = append(words, "--from", clock(s.From), "--to", clock(s.To))
	}
	words = slices.DeleteFunc(append(words, a.file), func(w string) bool { return w == deploy.CollectorFile })
	return strings.Join(words, " ")
}

// instead is the command that asks for whole rounds, where there are any.
func (a *asking) instead(s question.Span, err error) string {
	if err != nil || s.IsZero() {
		return "starling collect --help"
	}
	return a.command(s)
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

// Resumed implements question.Listener.
func (a *asking) Resumed() { fmt.Fprintln(a.e.stderr, "going on with the question asked before") }

// Waits implements question.Listener.
func (a *asking) Waits(asked time.Duration, p collector.Progress) {
	if !a.said && !a.e.watched && asked > quiet {
		a.said = true
		fmt.Fprintf(a.e.stderr, "asked; waiting for the leader's answer, %v at most. What was asked is kept: stop this, and collect goes on with it later\n", a.timeout)
	}
	a.line.tell(fmt.Sprintf("waiting %s: %s; asked %d times", asked.Round(time.Second), waitsFor(p.For), p.Polls))
}

// Waited implements question.Listener.
func (a *asking) Waited() { a.line.end() }

// LeftOut implements question.Listener.
func (a *asking) LeftOut(end time.Time) {
	fmt.Fprintf(a.e.stderr, "left out the round up to %s: it is over, and not ready\n", clock(end))
}

// Widened implements question.Listener.
func (a *asking) Widened(end, later time.Time) {
	fmt.Fprintf(a.e.stderr, "too few reports came up to %s: asking for those up to %s\n", clock(end), clock(later))
}

// Notice implements question.Listener.
func (a *asking) Notice(words string) { fmt.Fprintf(a.e.stderr, "starling: warning: %s\n", words) }

// unasked gives exit codes and hints to what keeps a question from being asked.
func (a *asking) unasked(err error) error {
	span, future, early := new(question.SpanError), new(question.FutureError), new(question.EarlyError)
	view := new(recipe.ViewError)
	switch {
	case errors.Is(err, deploy.ErrNothingNew):
		return &failure{exitNotYet, err, "starling send, then collect again"}
	case errors.As(err, &view):
		hint := "starling recipe show: it has no views, and starling collect asks for its rounds"
		if len(view.Names) > 0 {
			hint = "starling collect --view " + view.Names[len(view.Names)-1]
		}
		return &failure{exitUsage, err, hint}
	case errors.Is(err, deploy.ErrPending):
		a.view = ""
		return &failure{exitUsage, err, a.command(question.Span{}) + ", without --from and --to, goes on with it; --restart gives it up"}
	case errors.As(err, &span):
		return &failure{exitUsage, err, a.instead(span.Around, nil)}
	case errors.As(err, new(*question.WindowError)):
		return &failure{exitUsage, err, "starling collect " + a.file}
	case errors.As(err, &future):
		return &failure{exitUsage, err, a.instead(future.Lately, nil)}
	case errors.As(err, &early):
		wait := early.Wait.Round(time.Second) + time.Minute
		return failf(exitNotYet, fmt.Sprintf("the same after that time, or with --timeout %v now", wait),
			"nothing of %s to %s is released before %s, which is past --timeout %v: nothing was asked", clock(early.Asked.From), clock(early.Asked.To),
			clock(early.Due), a.timeout)
	}
	return usageOf("collect", err)
}

// failure gives exit codes and hints to what ends a run.
func (a *asking) failure(ctx context.Context, err error) error {
	few, asked := new(question.TooFewError), new(question.AskError)
	switch {
	case errors.As(err, &few):
		hint := "starling send, and when more have answered " + a.command(question.Span{}) + ": it asks for all up to then"
		if few.Alone {
			hint = a.command(question.Span{}) + " --skip goes on with the round behind it"
		} else if !few.Wider.IsZero() {
			hint = "when more have answered, after the end of their round: " + a.command(few.Wider)
		}
		return &failure{exitNotYet, err, hint}
	case errors.Is(err, question.ErrNoneReady):
		return &failure{exitNotYet, err, "starling why leader.toml; starling send, then collect again"}
	case errors.As(err, &asked):
		return a.unanswered(ctx, asked)
	case errors.As(err, new(*question.SpanError)), errors.As(err, new(*question.WindowError)), errors.As(err, new(*question.FutureError)),
		errors.As(err, new(*question.EarlyError)), errors.Is(err, deploy.ErrPending):
		return a.unasked(err)
	}
	return err
}

// unanswered tells a batch that is not ready from one that cannot be had.
func (a *asking) unanswered(ctx context.Context, asked *question.AskError) error {
	problem, err := new(dap.Problem), asked.Err
	switch {
	case ctx.Err() != nil && asked.Pending:
		return &failure{exitInterrupted, errors.New("interrupted; what was asked is kept, and the leader goes on with it"),
			"starling collect " + a.file + " goes on waiting for the same answer; starling why leader.toml says what it waits for"}
	case ctx.Err() != nil:
		return &failure{exitInterrupted, errors.New("interrupted before anything was asked"), "starling collect begins again"}
	case errors.Is(err, context.DeadlineExceeded):
		what := "the result"
		if s := asked.Asked; !s.From.IsZero() {
			what = fmt.Sprintf("the result of %s to %s", clock(s.From), clock(s.To))
		}
		return failf(exitNotYet, "starling why leader.toml says what it waits for; collect goes on, collect --skip "+
			"goes on behind a round in which too few reports came, and --restart with --from and --to asks for other rounds",
			"%s is not ready yet: %s", what, waitsFor(asked.Waits))
	case errors.As(err, &problem) && problem.HTTPStatus() == http.StatusUnauthorized:
		return failf(exitCheck, "give leader and collector the same file: collector_token in leader.toml, token in "+a.file+"; starling doctor "+a.file+" tries it",
			"the leader does not take this collector's token: %w", err)
	case errors.As(err, &problem):
		switch problem.Type {
		case dap.ProblemInvalidBatchSize:
			return &failure{exitNotYet, err, "starling why leader.toml"}
		case releases.ProblemForgotten:
			return &failure{exitCheck, err, "ask who runs the leader: its store was put back, and has to be exchanged for the newest files " +
				"(\"When a store is refused\" in docs/operating.md); collector.state is what noticed, keep it"}
		case dap.ProblemBatchOverlap:
			return &failure{exitCheck, err, "give --from the end of what was collected: starling status leader.toml"}
		}
		return err
	case errors.Is(err, collector.ErrQuery):
		return usageOf("collect", err)
	case errors.Is(err, collector.ErrSealed):
		return &failure{exitCheck, err, "nothing is lost: have that server's collector_hpke be the public half of this collector's hpke_key, " +
			"which starling key collector wrote, and the server started again; then, a minute later, starling collect. Not --restart, which gives the result up"}
	case errors.Is(err, collector.ErrAnswer), errors.Is(err, collector.ErrState):
		return err
	}
	return &failure{exitUnreachable, err, "starling doctor " + a.file + " says what answers; who runs the leader sees more with starling status leader.toml"}
}
