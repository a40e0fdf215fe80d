package main

import (
	"errors"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// waitingLeader answers every question with what it waits for.
type waitingLeader struct {
	task     dap.TaskID
	waits    releases.Waiting
	asked    int // questions
	withdraw int // answers to withdrawals
}

func (l *waitingLeader) Do(r *http.Request) (*http.Response, error) {
	answer := &http.Response{StatusCode: http.StatusOK, Header: http.Header{releases.WaitingHeader: {string(l.waits)}}, Body: http.NoBody, Request: r}
	switch r.Method {
	case http.MethodPost:
		l.asked++
		answer.StatusCode = http.StatusCreated
		answer.Header.Set("Location", "/"+dap.ResourcePath(l.task, dap.CollectionJobsResource, "job"))
	case http.MethodDelete:
		answer.StatusCode = l.withdraw
	}
	return answer, nil
}

// hourly is an asking of a recipe with rounds of an hour, of which devices are in so many.
func hourly(t *testing.T, leader *waitingLeader, rounds uint32, from, to string) *asking {
	t.Helper()
	addresses, err := deploy.Loopback()
	if err != nil {
		t.Fatal(err)
	}
	addresses.Close()
	epsilon, err := recipe.ParseDecimal("1")
	if err != nil {
		t.Fatal(err)
	}
	r, err := account.New(account.Options{
		Name: "hourly", Query: recipe.Count{}, Leader: addresses.LeaderURL(), Helper: addresses.HelperURL(), MinBatch: 20,
		Epsilon: epsilon, Rounds: rounds,
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "d")
	if err := deploy.Create(dir, r, addresses); err != nil {
		t.Fatal(err)
	}
	config, err := deploy.LoadCollector(filepath.Join(dir, deploy.CollectorFile))
	if err != nil {
		t.Fatal(err)
	}
	e := &env{stdout: new(strings.Builder), stderr: new(strings.Builder)}
	a := &asking{e: e, line: newProgress(e), file: deploy.CollectorFile, from: from, to: to, timeout: 10 * time.Second, now: func() time.Time { return noon }}
	if a.session, err = config.Open(collector.Options{HTTP: leader, Progress: a.watch, Poll: time.Millisecond, MaxPoll: time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	task, err := r.Task()
	if err != nil {
		t.Fatal(err)
	}
	leader.task = task.TaskID()
	return a
}

// collects asks what was typed; nothing ever comes.
func (a *asking) collects(t *testing.T) *failure {
	t.Helper()
	batches, err := a.questions()
	if err == nil {
		err = a.each(t.Context(), batches, func(*collector.Result) error { return errors.New("a result") })
	}
	f := new(failure)
	if !errors.As(err, &f) {
		t.Fatalf("no failure: %v", err)
	}
	return f
}

// noon is when it is asked, a little after.
var noon = time.Date(2026, 1, 31, 12, 20, 0, 0, time.UTC)

// at is so many hours from noon.
func at(hours int) string {
	return noon.Truncate(time.Hour).Add(time.Duration(hours) * time.Hour).Format(time.RFC3339)
}

// TestCollectNeverFills: a question whose time is over with too few reports is ended at
// once, does not stay in the way of later ones, and comes with one that can be answered.
func TestCollectNeverFills(t *testing.T) {
	for name, c := range map[string]struct {
		rounds   uint32
		from, to string
		hint     string
	}{
		"several rounds together": {1, at(-5), at(-3), "starling collect --from " + at(-5) + " --to " + at(1)},
		"each round alone":        {2, at(-5), at(-4), "starling collect --skip goes on with the round behind it"},
	} {
		leader := &waitingLeader{waits: releases.ForReports, withdraw: http.StatusNoContent}
		a := hourly(t, leader, c.rounds, c.from, c.to)
		f := a.collects(t)
		if f.code != exitNotYet || !strings.Contains(f.Error(), "fewer than the 20 reports") || !strings.Contains(f.Error(), c.from) || !strings.Contains(f.hint, c.hint) {
			t.Errorf("%s: exit %d, %v; hint %s, want %s", name, f.code, f, f.hint, c.hint)
		}
		if leader.asked != 1 || a.session.Pending() {
			t.Errorf("%s: asked %d times, pending %v", name, leader.asked, a.session.Pending())
		}
	}
}

// TestCollectTooEarlyBefore: a question that was asked before there were enough reports does
// not pin what a later one gets: that is asked for all that has come since.
func TestCollectTooEarlyBefore(t *testing.T) {
	leader := &waitingLeader{withdraw: http.StatusNoContent}
	a := hourly(t, leader, 1, "", "")
	now := noon.Add(-3 * time.Hour)
	a.now, a.timeout = func() time.Time { return now }, 50*time.Millisecond
	hours := uint64(noon.Unix() / 3600)
	a.session.Recipe().Window = recipe.Between{Start: dap.Time(hours - 5), End: dap.Time(hours + 24)}
	if f := a.collects(t); f.code != exitNotYet || !a.session.Pending() {
		t.Fatalf("exit %d, %v", f.code, f)
	}
	now, leader.waits, a.timeout = noon, releases.ForReports, 10*time.Second
	f := a.collects(t)
	if f.code != exitNotYet || leader.asked != 2 || a.session.Pending() {
		t.Errorf("exit %d, %v; asked %d times, pending %v", f.code, f, leader.asked, a.session.Pending())
	}
	if said := a.e.stderr.(*strings.Builder).String(); !strings.Contains(said, "too few reports came up to "+at(-3)+": asking for those up to "+at(0)) {
		t.Errorf("said %s", said)
	}
}

// TestCollectGivesNothingUp: a question that waits for something else, or that has its
// answer when it is to be withdrawn, stays.
func TestCollectGivesNothingUp(t *testing.T) {
	leader := &waitingLeader{withdraw: http.StatusNoContent}
	a := hourly(t, leader, 1, at(-5), at(-3))
	a.timeout = 50 * time.Millisecond
	if f := a.collects(t); f.code != exitNotYet || !strings.Contains(f.Error(), "still at work") || !a.session.Pending() {
		t.Errorf("at work: exit %d, %v, pending %v", f.code, f, a.session.Pending())
	}
	leader.waits, leader.withdraw = releases.ForReports, http.StatusPreconditionFailed
	if gone, err := a.session.Withdraw(t.Context()); gone || err != nil || !a.session.Pending() {
		t.Errorf("withdrawn with its answer: %v, %v", gone, err)
	}
}

// TestCollectTooEarly: what cannot be answered in time is not asked, and so keeps nothing
// waiting; the hint of each odd time is a command that asks for whole rounds.
func TestCollectTooEarly(t *testing.T) {
	for name, c := range map[string]struct {
		from, to   string
		code       int
		says, hint string
	}{
		"the round that runs":    {at(0), at(1), exitNotYet, "nothing was asked", "--timeout"},
		"the far future":         {"2136-01-01T00:00:00Z", "2136-01-02T00:00:00Z", exitUsage, "has not begun", "starling collect --from " + at(-24) + " --to " + at(0)},
		"no end":                 {at(-3), "", exitUsage, "--from and --to go together", "starling collect --from " + at(-3) + " --to " + at(1)},
		"no beginning":           {"", at(-3), exitUsage, "--from and --to go together", "starling collect --from " + at(-24) + " --to " + at(0)},
		"no time":                {"yesterday", "today", exitUsage, `--from: "yesterday" is not a time`, "starling collect --from " + at(-24)},
		"no window":              {"", "", exitUsage, "has no window", "starling collect --from " + at(-24) + " --to " + at(0)},
		"no multiple of an hour": {at(-4)[:14] + "30:00Z", at(-2), exitUsage, "not a multiple of 3600 seconds", "starling collect --from " + at(-4) + " --to " + at(-2)},
		"nothing":                {at(-2), at(-2), exitUsage, "empty", "starling collect --help"},
	} {
		leader := &waitingLeader{}
		a := hourly(t, leader, 1, c.from, c.to)
		f := a.collects(t)
		if f.code != c.code || !strings.Contains(f.Error(), c.says) || !strings.Contains(f.hint, c.hint) {
			t.Errorf("%s: exit %d, %v; hint %s; want exit %d, %s; hint %s", name, f.code, f, f.hint, c.code, c.says, c.hint)
		}
		if leader.asked != 0 || a.session.Pending() {
			t.Errorf("%s: asked %d times", name, leader.asked)
		}
	}
}

// TestCollectWrongToken: a collector that the leader does not know is told what to compare.
func TestCollectWrongToken(t *testing.T) {
	err := (&asking{file: "collector.toml"}).failure(t.Context(), false, [2]time.Time{}, &dap.Problem{Status: http.StatusUnauthorized})
	f := new(failure)
	if !errors.As(err, &f) || f.code != exitCheck || !strings.Contains(f.Error(), "does not take this collector's token") || !strings.Contains(f.hint, "starling doctor collector.toml") {
		t.Errorf("%v", err)
	}
}
