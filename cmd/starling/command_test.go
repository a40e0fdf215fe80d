//go:build !lean

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/collector"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/deploy/question"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/lab"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		args, rest []string
		n          int
		asJSON     bool
		fails      bool
	}{
		{args: nil},
		{args: []string{"a", "--n", "3", "b", "-json"}, rest: []string{"a", "b"}, n: 3, asJSON: true},
		{args: []string{"--n=4", "--", "--json", "a"}, rest: []string{"--json", "a"}, n: 4},
		{args: []string{"a", "--", "-n"}, rest: []string{"a", "-n"}},
		{args: []string{"--n"}, fails: true},
		{args: []string{"a", "--unknown"}, fails: true},
	} {
		flags := flag.NewFlagSet("x", flag.ContinueOnError)
		flags.SetOutput(io.Discard)
		n, asJSON := flags.Int("n", 0, ""), flags.Bool("json", false, "")
		rest, err := parse(flags, c.args)
		if (err != nil) != c.fails || (err == nil && (!slices.Equal(rest, c.rest) || *n != c.n || *asJSON != c.asJSON)) {
			t.Errorf("%q: got %q, n %d, json %v, %v", c.args, rest, *n, *asJSON, err)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"lab", "lab", 0}, {"lba", "lab", 2}, {"", "abc", 3}, {"kitten", "sitting", 3}, {"serv", "serve", 1}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

// TestExitCodes holds docs/compatibility.md to the codes.
func TestExitCodes(t *testing.T) {
	doc, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := []int{exitDone, exitFailed, exitUsage, exitInput, exitUnreachable, exitNotYet, exitCheck, exitInterrupted}
	for _, code := range codes {
		if !strings.Contains(string(doc), fmt.Sprintf("| %d | ", code)) {
			t.Errorf("docs/compatibility.md does not explain exit code %d", code)
		}
	}
	var w strings.Builder
	for _, c := range []struct {
		err  error
		code int
		want string
	}{
		{nil, 0, ""},
		{errors.New("a cause"), exitFailed, "starling: error: a cause\nstarling: hint: " + whereToLook + "\n"},
		{failf(exitFailed, "", "a cause"), exitFailed, "starling: error: a cause\nstarling: hint: " + whereToLook + "\n"},
		{fmt.Errorf("store: %w", disk.ErrLocked), exitFailed, "starling: error: store: disk: directory is in use by another process\n" +
			"starling: hint: a directory is for one process: stop the other one, which starling status finds\n"},
		{context.Canceled, exitInterrupted, "starling: error: context canceled\n"},
		{fmt.Errorf("read: %w", os.ErrNotExist), exitInput, "starling: error: read: file does not exist\n"},
		{failf(exitNotYet, "wait", "too few"), exitNotYet, "starling: error: too few\nstarling: hint: wait\n"},
		{fmt.Errorf("collect: %w", failf(exitNotYet, "wait", "too few")), exitNotYet, "starling: error: collect: too few\nstarling: hint: wait\n"},
	} {
		w.Reset()
		if code := say(&w, c.err); code != c.code || w.String() != c.want {
			t.Errorf("%v: code %d, text %q", c.err, code, w.String())
		}
	}
}

// TestCommandsSpeak: every command explains itself, with examples, and offers JSON.
func TestCommandsSpeak(t *testing.T) {
	var walk func(c *command, path string)
	walk = func(c *command, path string) {
		var out strings.Builder
		e := &env{stdout: &out, stderr: &out}
		path = strings.TrimSpace(path + " " + c.name)
		if err := c.run(t.Context(), e, strings.TrimSuffix(path, c.name), []string{"--help"}); err != nil {
			t.Errorf("%s --help: %v", path, err)
		}
		if !strings.Contains(out.String(), "Usage: "+path) || c.short == "" || strings.HasSuffix(c.short, ".") {
			t.Errorf("%s --help:\n%s", path, out.String())
		}
		if c.sub == nil {
			if len(c.examples) == 0 {
				t.Errorf("%s has no example", path)
			}
			if !strings.Contains(out.String(), "--json") {
				t.Errorf("%s has no --json", path)
			}
		}
		for _, s := range c.sub {
			walk(s, path)
		}
	}
	walk(root(), "")
}

func TestKept(t *testing.T) {
	until := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	batch := status.Batch{State: "open", Verified: 10}
	for _, c := range []struct {
		task status.Task
		want string
	}{
		{status.Task{Phase: status.Retired}, "retired"},
		{status.Task{Phase: status.Running}, "for ever"},
		{status.Task{Phase: status.Running, RetiresAt: until, MinBatch: 10, Batches: []status.Batch{batch}}, "kept until 2026-05-01T00:00:00Z"},
		{status.Task{Phase: status.Over, RetiresAt: until, MinBatch: 10, Batches: []status.Batch{batch}}, "erased with 1 batches that nobody collected"},
	} {
		if got := kept(&c.task); !strings.Contains(got, c.want) || strings.Contains(got, "erased with") != strings.Contains(c.want, "erased with") {
			t.Errorf("%+v: %q, want %q", c.task, got, c.want)
		}
	}
}

func TestProgress(t *testing.T) {
	s := lab.Progress{Phase: 3, Phases: 5, Name: "verify", Rate: 1234.5, Left: 3200 * time.Millisecond,
		Counts: []lab.Count{{Party: "leader", Done: 1000, Total: 20190}, {Party: "helper", Done: 900, Total: 20190}}}
	const want = "[3/5] verify  leader 1,000/20,190  helper 900/20,190  1,235/s  3s left"
	for width, want := range map[int]string{
		0: want, 80: want, len(want): want,
		60: "[3/5] verify  leader 1,000/20,190  1,235/s  3s left",
		40: "[3/5] verify  1,235/s  3s left",
		10: "[3/5] verify  1,235/s  3s left", // whoever draws it cuts it
	} {
		if got := progressLine(s, width); got != want {
			t.Errorf("in %d columns: got %q, want %q", width, got, want)
		}
	}
	var quiet, watched strings.Builder
	over := lab.Progress{Phase: 3, Phases: 5, Name: "verify", Over: true, Took: 1500 * time.Millisecond}
	for _, c := range []struct {
		e    *env
		want string
		out  *strings.Builder
	}{
		{&env{stderr: &quiet}, "[3/5] verify 1.5 s\n", &quiet},
		{&env{stderr: &watched, watched: true, width: 21}, "[3/5] verify  1,235/\r                    \r[3/5] verify 1.5 s\n", &watched},
	} {
		p := newProgress(c.e)
		p.show(s)
		p.show(over)
		p.end()
		if c.out.String() != c.want {
			t.Errorf("got %q, want %q", c.out.String(), c.want)
		}
	}
}

func TestParseQuery(t *testing.T) {
	for text, want := range map[string]recipe.Query{
		"count": recipe.Count{}, "sum:255": recipe.Sum{Max: 255}, "mean:7": recipe.Mean{Max: 7},
		"histogram:21": recipe.Histogram{Length: 21}, "multihot:8:3": recipe.Multihot{Length: 8, MaxWeight: 3},
		"sumvec:100:15":           recipe.SumVec{Length: 100, Max: 15},
		"l1:12:30":                recipe.L1BoundSum{Length: 12, Max: 30},
		"quantiles:5:104:2:7":     recipe.Quantiles{Min: 5, Max: 104, Width: 2, Branching: 7},
		"quantiles:0:2:1:0":       recipe.Quantiles{Max: 2, Width: 1, Branching: 3},
		"groups:0:20:4":           recipe.GroupSums{Max: 20, Groups: 4},
		"groups:-7:-2:3":          recipe.GroupSums{Min: -7, Max: -2, Groups: 3},
		"vector:9:1.5:10":         recipe.Vector{Dimension: 9, Bound: 1536, FracBits: 10},
		"vector:9:1:15:l2fixed16": recipe.Vector{Dimension: 9, Bound: 1 << 15, FracBits: 15, Proof: recipe.L2Fixed16},
	} {
		if got, err := parseQuery(text); err != nil || got != want {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "sum", "count:3", "histogram:x", "histogram:-1", "multihot:8", "l1:8", "l1:8:1:1", "quantiles:0:9:1", "groups", "groups:0:9", "groups:0:9:4:1", "groups:0:9:-1", "groups:0:9.5:2", "groups:0:9:9999999999", "histogram:9999999999", "sum:1:2", "histogram:3:",
		"vector", "vector:9:1", "vector:9:0:15", "vector:9:NaN:15", "vector:9:1:300", "vector:-9:1:15", "vector:9:1:15:pine33"} {
		if q, err := parseQuery(text); err == nil {
			t.Errorf("%q: accepted as %v", text, q)
		}
	}
}

// TestKeptReadme holds the commands that a kept deployment's README.txt shows to those
// there are.
func TestKeptReadme(t *testing.T) {
	a, err := deploy.Loopback()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	r, err := account.New(account.Options{Name: "Test", Query: recipe.Count{}, Leader: a.LeaderURL(), Helper: a.HelperURL(), MinBatch: 100})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := deploy.Create(dir, r, a); err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(dir, "README.txt"))
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for line := range strings.Lines(string(readme)) {
		words, ok := strings.CutPrefix(line, "  starling ")
		if !ok {
			continue
		}
		shown++
		c := root()
		for _, word := range strings.Fields(words) {
			at := slices.IndexFunc(c.sub, func(s *command) bool { return s.name == word })
			if at < 0 {
				t.Errorf("README.txt shows %q; there is no %s in %s", strings.TrimSpace(line), word, c.name)
				break
			}
			if c = c.sub[at]; c.sub == nil {
				break
			}
		}
	}
	if shown < 9 || !strings.Contains(string(readme), "fewer than 100 reports") || !strings.Contains(string(readme), "--simulate 111 ") {
		t.Errorf("README.txt shows %d commands:\n%s", shown, readme)
	}
}

// TestDrawResult: a picture of what has numbers to draw; where it cannot be written the
// error says so.
func TestDrawResult(t *testing.T) {
	r, err := account.New(account.Options{Name: "Birds", Query: recipe.Histogram{Length: 3}, Leader: "https://leader.example/",
		Helper: "https://helper.example/", MinBatch: 100, Epsilon: recipe.Decimal{Coefficient: 1}})
	if err != nil {
		t.Fatal(err)
	}
	guarantee, err := account.Guarantee(r)
	if err != nil {
		t.Fatal(err)
	}
	x := &collector.Result{ReportCount: 120, Estimate: []float64{70, 40, 10}, Stderr: []float64{8, 8, 8},
		Interval95: [][2]float64{{55, 86}, {25, 56}, {0, 31}}, Guarantee: guarantee}
	path := filepath.Join(t.TempDir(), "result.png")
	if err := drawResult(path, r, x); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(b), "\x89PNG") {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	f := new(failure)
	if err := drawResult(filepath.Dir(path), r, x); !errors.As(err, &f) || f.code != exitInput || !strings.Contains(err.Error(), "--png") {
		t.Errorf("into a directory: %v", err)
	}
	// The intervals are the collector's own, which are not as wide to both sides: z
	// standard errors would be -6 to 26.
	var text strings.Builder
	if err := resultChart(r, x).WriteText(&text, 80, true); err != nil || !strings.Contains(text.String(), "0 to 31 ") {
		t.Errorf("%v\n%s", err, &text)
	}
	x.Sampled = &collector.Sampled{}
	if h := resultChart(r, x); !h.Sampled {
		t.Error("whiskers of coins are drawn as if they were of noise alone")
	}
	x.Interval95 = nil
	if err := drawResult(path, r, x); err == nil || !strings.Contains(err.Error(), "--png") {
		t.Errorf("numbers without errors: %v", err)
	}
}

// TestServeExamples: the configurations that serve's help shows can be read.
func TestServeExamples(t *testing.T) {
	for name, c := range map[string]struct {
		example string
		command *command
		load    func(path string) error
	}{
		"relay":    {relayExample, serveRelay(), func(path string) error { _, err := deploy.LoadRelay(path); return err }},
		"gateway":  {gatewayExample, serveGateway(), func(path string) error { _, err := deploy.LoadGateway(path); return err }},
		"hop":      {hopExample, serveHop(), func(path string) error { _, err := deploy.LoadHop(path); return err }},
		"analyzer": {analyzerExample, serveAnalyzer(), func(path string) error { _, err := deploy.LoadAnalyzer(path); return err }},
	} {
		path := filepath.Join(t.TempDir(), name+".toml")
		if err := os.WriteFile(path, []byte(c.example), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := c.load(path); err != nil {
			t.Errorf("the example of a %s: %v", name, err)
		}
		for line := range strings.Lines(c.example) {
			if !strings.Contains(c.command.long, strings.TrimSpace(line)) {
				t.Errorf("serve %s --help lacks %q", name, line)
			}
		}
	}
}

func TestComputeStopsWhenAsked(t *testing.T) {
	if v, err := compute(t.Context(), func() (int, error) { return 7, nil }); v != 7 || err != nil {
		t.Errorf("%d, %v", v, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	never := make(chan struct{})
	defer close(never)
	_, err := compute(ctx, func() (int, error) {
		cancel()
		<-never
		return 0, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestRefusedReports: a leader that refuses a made-up device's report is there; the hint
// is about the report.
func TestRefusedReports(t *testing.T) {
	c := &sending{file: "recipe.starling"}
	for _, x := range []struct {
		err  error
		code int
		hint string
	}{
		{dap.BatchCollected, exitCheck, "send again when the next begins"},
		{dap.ReportDropped, exitCheck, "starling why leader.toml"},
		{errors.New("no answer"), exitUnreachable, "starling status"},
	} {
		got := new(failure)
		if err := c.refusal(t.Context(), fmt.Errorf("send: %w", x.err)); !errors.As(err, &got) || got.code != x.code || !strings.Contains(got.hint, x.hint) {
			t.Errorf("%v: %+v", x.err, got)
		}
	}
}

// TestSpentIsNotRoundedDown: what is spent is printed with four digits and never below
// itself, what is left never above.
func TestSpentIsNotRoundedDown(t *testing.T) {
	for x, want := range map[float64][2]string{
		0: {"0", "0"}, 1: {"1", "1"}, 0.5: {"0.5", "0.5"}, 1.00004: {"1.001", "1"}, 0.99996: {"1", "0.9999"}, 3.12349: {"3.124", "3.123"},
		12344.4: {"12350", "1.234e+04"}, math.Inf(1): {"without bound", ""},
	} {
		if got := above(x); got != want[0] {
			t.Errorf("%v is spent: %s, want %s", x, got, want[0])
		}
		if want[1] != "" {
			if got := below(x); got != want[1] {
				t.Errorf("%v is left: %s, want %s", x, got, want[1])
			}
		}
	}
}

// TestCollectInterrupted: who stops a collection is told that what was asked is kept, and
// how to go on.
func TestCollectInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for pending, want := range map[bool]string{true: "what was asked is kept", false: "before anything was asked"} {
		err := new(asking).failure(ctx, &question.AskError{Err: ctx.Err(), Pending: pending})
		f := new(failure)
		if !errors.As(err, &f) || f.code != exitInterrupted || !strings.Contains(f.Error(), want) || !strings.Contains(f.hint, "starling collect ") {
			t.Errorf("pending %v: %v", pending, err)
		}
	}
}
