//go:build !lean

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/starling-agg/starling/client"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/releases"
	"github.com/starling-agg/starling/recipe"
)

// TestTextFitsTheTerminal: what explains recipes, plans and guarantees fits 60 columns,
// whether a terminal has them or COLUMNS asks for them. A word is never cut.
func TestTextFitsTheTerminal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "recipe.starling")
	servers := []string{"--leader", "https://127.0.0.1:8443/", "--helper", "https://127.0.0.1:8444/"}
	for _, args := range [][]string{
		append([]string{"recipe", "new", "--name", "Pain", "--query", "mean:10", "--min-batch", "100", "--epsilon", "1"}, append(servers, file)...),
		{"recipe", "show", file},
		{"recipe", "plan", "--query", "histogram:21", "--people", "20000", "--epsilon", "0.5"},
		{"account", "--mechanism", "gaussian", "--sigma", "5.1", "--delta", "1e-8"},
	} {
		for name, e := range map[string]*env{"a terminal": {width: 60}, "COLUMNS": {asked: 60}} {
			var out, messages strings.Builder
			e.stdin, e.stdout, e.stderr = strings.NewReader(""), &out, &messages
			if args[1] == "new" {
				os.Remove(file)
			}
			if err := root().run(t.Context(), e, "", args); err != nil {
				t.Fatalf("%q: %v", args, err)
			}
			if strings.Count(out.String(), "\n") < 10 {
				t.Errorf("%q says too little:\n%s", args, &out)
			}
			for line := range strings.Lines(out.String()) {
				line = strings.TrimSuffix(line, "\n")
				if words := strings.Fields(line[min(16, len(line)):]); utf8.RuneCountInString(line) > 60 && len(words) > 1 {
					t.Errorf("%s of 60 columns, starling %s: %q", name, args[0], line)
				}
			}
		}
	}
}

// TestUnsent: of answers that were not sent the next step fits the reason.
func TestUnsent(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	x := &sending{file: "recipe.starling"}
	for _, c := range []struct {
		ctx  context.Context
		err  error
		code int
		hint string
	}{
		{t.Context(), client.ErrWindow, exitCheck, "starling recipe show recipe.starling says when"},
		{t.Context(), &dap.Problem{Type: "about:blank", Status: 500}, exitUnreachable, "a full disk"},
		{t.Context(), &dap.Problem{Type: releases.ProblemClosed, Status: 400}, exitCheck, "published in its place"},
		{t.Context(), &dap.Problem{Type: "about:blank", Status: 404}, exitUnreachable, "starling status leader.toml"},
		{stopped, errors.New("stopped"), exitInterrupted, "starling status leader.toml"},
	} {
		f := new(failure)
		if err := x.unsent(c.ctx, fmt.Errorf("send: %w", c.err)); !errors.As(err, &f) || f.code != c.code || !strings.Contains(f.hint, c.hint) {
			t.Errorf("%v: %+v; want exit %d and %q", c.err, f, c.code, c.hint)
		}
	}
}

// TestOneNumberHasItsName: a mean is not called by the number of a bucket.
func TestOneNumberHasItsName(t *testing.T) {
	var out strings.Builder
	r := &recipe.Recipe{Name: "Pain", Query: recipe.Mean{Max: 10}, MinBatch: 100, TimePrecision: 3600, Claim: recipe.NoClaim{}, Noise: recipe.NoNoise{}}
	x := &collector.Result{ReportCount: 100, Estimate: []float64{4.5}, Stderr: []float64{0.5}, Interval95: [][2]float64{{3.5, 5.5}},
		Guarantee: &recipe.Guarantee{}}
	if err := writeResult(&env{stdout: &out}, r, x); err != nil || !strings.Contains(out.String(), "the mean  4.5  (95 % interval 3.5 to 5.5)") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// TestNewFileIsWholeOrNone: a file that could not be written does not stand in the way of
// the next try.
func TestNewFileIsWholeOrNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new")
	for _, flag := range []int{os.O_RDONLY, os.O_WRONLY} {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|flag, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := fillNew(f, []byte("whole")); (err == nil) != (flag == os.O_WRONLY) {
			t.Errorf("written: %v", err)
		}
		if b, err := os.ReadFile(path); flag == os.O_RDONLY && !errors.Is(err, os.ErrNotExist) || flag == os.O_WRONLY && string(b) != "whole" {
			t.Errorf("it holds %q, %v", b, err)
		}
	}
}

// TestWarnOver: a recipe whose time has ended is warned of when it is made.
func TestWarnOver(t *testing.T) {
	end := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	at, err := dap.TimePrecision(3600).At(end)
	if err != nil {
		t.Fatal(err)
	}
	r := &recipe.Recipe{TimePrecision: 3600, Window: recipe.Between{Start: at - 1, End: at}}
	for now, want := range map[time.Time]bool{end.Add(-time.Second): false, end: true} {
		var out strings.Builder
		if warnOver(&out, r, now); strings.Contains(out.String(), "ended at 2026-01-31T00:00:00Z") != want {
			t.Errorf("at %v: %q", now, &out)
		}
	}
}
