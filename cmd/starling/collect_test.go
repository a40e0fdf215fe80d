//go:build !lean

package main

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/deploy/question"
	"github.com/starling-agg/starling/recipe"
)

// noon is when it is asked, a little after.
var noon = time.Date(2026, 1, 31, 12, 20, 0, 0, time.UTC)

// hour is a time so many hours from noon, and at how it is typed.
func hour(n int) time.Time { return noon.Truncate(time.Hour).Add(time.Duration(n) * time.Hour) }
func at(n int) string      { return hour(n).Format(time.RFC3339) }

// hours is a span of time.
func hours(from, to int) question.Span { return question.Span{From: hour(from), To: hour(to)} }

// collecting is an asking at noon.
func collecting(from, to string) *asking {
	return &asking{file: deploy.CollectorFile, from: from, to: to, timeout: 10 * time.Second, now: func() time.Time { return noon }}
}

// TestCollectTyped: the hint of each odd time is a command that asks for whole rounds.
func TestCollectTyped(t *testing.T) {
	hourly := &recipe.Recipe{Path: recipe.TwoServer{BatchMode: dap.TimeInterval}, TimePrecision: 3600, Window: recipe.NoWindow{}}
	selected := &recipe.Recipe{Path: recipe.TwoServer{BatchMode: dap.LeaderSelected}, TimePrecision: 3600}
	for name, c := range map[string]struct {
		recipe     *recipe.Recipe
		from, to   string
		says, hint string
	}{
		"no end":       {hourly, at(-3), "", "--from and --to go together", "starling collect --from " + at(-3) + " --to " + at(1)},
		"no beginning": {hourly, "", at(-3), "--from and --to go together", "starling collect --from " + at(-24) + " --to " + at(0)},
		"no time":      {hourly, "yesterday", "today", `--from: "yesterday" is not a time`, "starling collect --from " + at(-24)},
		"selected":     {selected, at(-3), at(-2), "--from and --to do not apply", "starling collect"},
	} {
		_, err := collecting(c.from, c.to).typed(c.recipe, c.recipe.BatchUnits())
		f := new(failure)
		if !errors.As(err, &f) || f.code != exitUsage || !strings.Contains(f.Error(), c.says) || !strings.HasPrefix(f.hint, c.hint) {
			t.Errorf("%s: %+v; want %s; hint %s", name, f, c.says, c.hint)
		}
	}
	if s, err := collecting(at(-3), at(-2)).typed(hourly, hourly.BatchUnits()); err != nil || s != hours(-3, -2) {
		t.Errorf("%v, %v", s, err)
	}
}

// TestCollectFailures: what ends a collection has its exit code, and a hint that can be
// typed.
func TestCollectFailures(t *testing.T) {
	few := question.TooFewError{Threshold: 20, Asked: hours(-5, -3), End: hour(-3)}
	alone, wider := few, few
	alone.Alone, wider.Wider = true, hours(-5, 1)
	odd := errors.New("not a multiple of 3600 seconds")
	for _, c := range []struct {
		err        error
		code       int
		says, hint string
	}{
		{&few, exitNotYet, "fewer than the 20 reports", "when more have answered starling collect: it asks for all"},
		{&alone, exitNotYet, "from " + at(-5), "starling collect --skip goes on with the round behind it"},
		{&wider, exitNotYet, "to " + at(-3), "starling collect --from " + at(-5) + " --to " + at(1)},
		{question.ErrNoneReady, exitNotYet, "no round is ready", "starling why leader.toml"},
		{&question.EarlyError{Asked: hours(0, 1), Due: hour(1), Wait: 40 * time.Minute}, exitNotYet, "which is past --timeout 10s: nothing was asked", "--timeout 41m0s"},
		{&question.FutureError{From: hour(24), Lately: hours(-24, 0)}, exitUsage, "has not begun", "starling collect --from " + at(-24) + " --to " + at(0)},
		{&question.WindowError{Window: hours(-9, -6), Asked: hours(-5, -3)}, exitUsage, "none of " + at(-5), "starling collect collector.toml"},
		{&question.SpanError{Err: odd, Around: hours(-4, -2)}, exitUsage, odd.Error(), "starling collect --from " + at(-4) + " --to " + at(-2)},
		{&question.SpanError{Err: odd}, exitUsage, odd.Error(), "starling collect --help"},
		{deploy.ErrPending, exitUsage, "pending", "starling collect, without --from and --to"},
		{&question.AskError{Err: context.DeadlineExceeded, Waits: collector.ForReports}, exitNotYet, "the result is not ready yet: fewer reports came", "collect goes on"},
		{&question.AskError{Err: context.DeadlineExceeded, Asked: hours(-5, -3)}, exitNotYet, "the result of " + at(-5) + " to " + at(-3), "collect goes on"},
		{&question.AskError{Err: &dap.Problem{Type: dap.ProblemBatchOverlap}}, exitCheck, "", "starling status leader.toml"},
		{&question.AskError{Err: errors.New("no line")}, exitUnreachable, "no line", "starling status"},
	} {
		f := new(failure)
		if err := collecting("", "").failure(t.Context(), c.err); !errors.As(err, &f) || f.code != c.code || !strings.Contains(f.Error(), c.says) || !strings.Contains(f.hint, c.hint) {
			t.Errorf("%v: %+v; want exit %d, %s; hint %s", c.err, f, c.code, c.says, c.hint)
		}
	}
	if err := collecting("", "").failure(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if err := collecting("", "").unasked(deploy.ErrNothingNew); say(new(strings.Builder), err) != exitNotYet {
		t.Error(err)
	}
}

// TestCollectWrongToken: a collector that the leader does not know is told what to compare.
func TestCollectWrongToken(t *testing.T) {
	err := collecting("", "").failure(t.Context(), &question.AskError{Err: &dap.Problem{Status: http.StatusUnauthorized}})
	f := new(failure)
	if !errors.As(err, &f) || f.code != exitCheck || !strings.Contains(f.Error(), "does not take this collector's token") || !strings.Contains(f.hint, "starling doctor collector.toml") {
		t.Errorf("%v", err)
	}
}

// TestLeftOut: batches that a result leaves out are named, each with why.
func TestLeftOut(t *testing.T) {
	said := leftOutWords(&collector.Result{LeftOut: []recipe.Part{
		{Number: 3, Contributions: 1200, Why: recipe.LeftApart}, {Number: 5, Contributions: 900, Why: recipe.LeftMissing},
		{Number: 6, Contributions: 901, Why: recipe.LeftUnusable}, {Number: 9, Why: recipe.LeftNone},
	}})
	for _, want := range []string{"batch 3, of 1,200 contributions: its sums are further", "batch 5, of 900 contributions: messages", "batch 6, of 901 contributions: its messages",
		"batch 9, of 0 contributions: there is no result", "scaled to the contributions of all"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in %s", want, said)
		}
	}
}
