package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/starling-agg/starling/dp/calculator"
	"github.com/starling-agg/starling/fl/outlook"
	"github.com/starling-agg/starling/recipe"
)

// A keptAnswer is what a test reads of an answer.
type keptAnswer struct {
	ID     int
	Result json.RawMessage
	Error  *struct {
		Error, Problem, Hint string
		Exit                 int
	}
	Notes []string
}

// asked is a question's line for a method and the words behind it.
func asked(t *testing.T, id int, method string, args []string, stdin string) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{"id": id, "method": method, "args": args, "stdin": stdin})
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

// TestKeptAnswers: answers are those of the commands, to the digit, asked once and asked
// again.
func TestKeptAnswers(t *testing.T) {
	t.Chdir(t.TempDir())
	if code, _, stderr := inProcess(t, strings.Fields("recipe new --name Birds --query histogram:12 --min-batch 1000 --epsilon 1 birds.starling "+servers)); code != exitDone {
		t.Fatal(stderr)
	}
	if err := os.WriteFile("events.json", []byte(`[{"mechanism":"gaussian","sigma":9,"count":3},{"mechanism":"laplace","scale":20}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct{ method, words, args string }{
		{"account", "account", "--mechanism gaussian --sigma 5.1 --sampling 0.02 --steps 2500 --delta 1e-8"},
		{"account", "account", "--mechanism gaussian --sigma 5.1 --sampling 0.02 --steps 2501 --delta 1e-8"},
		{"account", "account", "--mechanism gaussian --epsilon 1 --delta 1e-8 --solve sigma"},
		{"account", "account", "--mechanism rr --epsilon0 1 --shuffle-n 10000 --delta 1e-6"},
		{"account", "account", "--json --mechanism discrete-laplace --scale 10 --steps 100 --epsilon 3"},
		{"account", "account", "--events events.json --delta 1e-9"},
		{"account", "account", "--events none.json --delta 1e-9"},
		{"account", "account", "--mechanism nonsense --delta 1e-8"},
		{"account", "account", "--mechanism gaussian --sigma 5.1 --delta 0"},
		{"account", "account", "--mechanism gaussian --sgma 5.1"},
		{"account", "account", ""},
		{"plan", "recipe plan", "--query histogram:21 --people 20000 --within 1%"},
		{"recipe plan", "recipe plan", "--query sum:100 --people 20000 --epsilon 0.5 --rounds 10"},
		{"recipe plan", "recipe plan", "--query histogram:21 --people 20 --within 1% --epsilon 0.1"}, // out of reach
		{"recipe show", "recipe show", "birds.starling"},
		{"recipe show", "recipe show", "none.starling"},
		{"recipe new", "recipe new", "--name Loose --query sum:10 --min-batch 100 --epsilon 20 N.starling " + servers},
		{"recipe new", "recipe new", "--name Birds --query sum:10 --min-batch 100 --epsilon 1 birds.starling " + servers},
	} {
		// A recipe's file may be made once by each.
		args := func(n string) []string {
			return strings.Fields(strings.ReplaceAll(c.args, "N.starling", n+".starling"))
		}
		code, stdout, stderr := inProcess(t, slices.Concat(strings.Fields(c.words), []string{"--json"}, args("alone")))
		var out strings.Builder
		again := asked(t, 2*i, c.method, args("first"), "") + asked(t, 2*i+1, c.method, args("second"), "")
		var faults strings.Builder
		if err := root().run(t.Context(), &env{stdin: strings.NewReader(again), stdout: &out, stderr: &faults}, "", []string{"account", "--serve"}); err != nil || faults.Len() > 0 {
			t.Fatalf("%v\n%s", err, faults.String())
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if len(lines) != 2 {
			t.Fatalf("%s %s: answered by %q", c.method, c.args, lines)
		}
		for n, line := range lines {
			var a keptAnswer
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				t.Fatal(err)
			}
			if a.ID != 2*i+n {
				t.Errorf("%s %s: id %d, want %d", c.method, c.args, a.ID, 2*i+n)
			}
			var want bytes.Buffer
			if stdout != "" {
				if err := json.Compact(&want, []byte(stdout)); err != nil {
					t.Fatal(err)
				}
			}
			if strings.Contains(c.args, "N.starling") {
				// Each has a task key of its own.
				if !slices.Equal(keysIn(t, a.Result), keysIn(t, want.Bytes())) {
					t.Errorf("%s %s: answered by %s, and the command by %s", c.method, c.args, a.Result, want.Bytes())
				}
			} else if !bytes.Equal(a.Result, want.Bytes()) {
				t.Errorf("%s %s: answered by %s, and the command by %s", c.method, c.args, a.Result, want.Bytes())
			}
			said := strings.Join(a.Notes, "\n")
			if a.Error != nil {
				if a.Error.Exit != code || a.Error.Problem != problems[code] || a.Error.Problem == "" {
					t.Errorf("%s %s: %+v, and the command has the exit code %d", c.method, c.args, a.Error, code)
				}
				said = strings.TrimLeft(said+"\n", "\n") + "starling: error: " + a.Error.Error + "\nstarling: hint: " + a.Error.Hint
			} else if code != exitDone {
				t.Errorf("%s %s: answered by %s, and the command has the exit code %d", c.method, c.args, line, code)
			}
			if got, want := strings.TrimSpace(said), strings.TrimSpace(stderr); got != want {
				t.Errorf("%s %s: says %q, and the command %q", c.method, c.args, got, want)
			}
		}
	}
}

func keysIn(t *testing.T, b []byte) []string {
	t.Helper()
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return keysOf(v)
}

// TestKeptRefuses: what would take the channel, or answer without JSON, is an error.
func TestKeptRefuses(t *testing.T) {
	for _, c := range []struct{ args, hint string }{
		{"--serve", "ask the next question"},
		{"--help", "leave out --help and --json"},
		{"--json=false --mechanism gaussian --sigma 5 --delta 1e-6", "leave out --help and --json"},
	} {
		_, _, failed := answerer(false).Run(t.Context(), []string{"account"}, strings.Fields(c.args), "")
		if failed == nil || failed.Exit != exitUsage || failed.Hint != c.hint {
			t.Errorf("%s: %+v", c.args, failed)
		}
	}
	if code, stdout, _ := inProcess(t, strings.Fields("account --serve --delta 1e-6")); code != exitUsage || stdout != "" {
		t.Errorf("--serve with a question: exit code %d, %s", code, stdout)
	}
	for method, words := range keptMethods {
		c := root()
		for _, w := range words {
			i := slices.IndexFunc(c.sub, func(s *command) bool { return s.name == w })
			if i < 0 {
				t.Fatalf("%s: there is no command %v", method, words)
			}
			c = c.sub[i]
		}
		if c.setup == nil {
			t.Errorf("%s is a group of commands", method)
		}
	}
	doc, err := os.ReadFile("../../docs/accounting.md")
	if err != nil {
		t.Fatal(err)
	}
	for method := range keptMethods {
		if !strings.Contains(string(doc), "`"+method+"`") {
			t.Errorf("docs/accounting.md does not name the method %s", method)
		}
	}
	for code, name := range problems {
		if !strings.Contains(string(doc), fmt.Sprintf("| `%s` | %d |", name, code)) {
			t.Errorf("docs/accounting.md does not name the problem %s", name)
		}
	}
}

// TestComputePanics: a panic in what computes is one of who asked, where a kept process
// catches it.
func TestComputePanics(t *testing.T) {
	defer func() {
		if p := fmt.Sprint(recover()); !strings.HasPrefix(p, "a fault\n") || !strings.Contains(p, "account_serve_test.go") {
			t.Errorf("recovered %s", p)
		}
	}()
	compute(t.Context(), func() (int, error) { panic("a fault") })
}

// TestRemembered: the same question is computed once, another one for itself, a failure
// never stays, and what cannot be told from another is not kept.
func TestRemembered(t *testing.T) {
	e := &env{shared: &shared{found: make(map[string]any)}}
	n := 0
	ask := func(key any, fails bool) int {
		v, err := remembered(t.Context(), e, key, func() (int, error) {
			n++
			if fails {
				return 0, errors.New("no")
			}
			return n, nil
		})
		if (err != nil) != fails {
			t.Fatal(err)
		}
		return v
	}
	line := func(sigma float64) calculator.Ask {
		return calculator.Ask{Line: calculator.Line{Sigma: sigma}, Orders: []float64{2}}
	}
	bernoulli, err := recipe.ParseBernoulli("1/8")
	if err != nil {
		t.Fatal(err)
	}
	checkin, err := recipe.ParseCheckIn("fixed:1/2:8:1")
	if err != nil {
		t.Fatal(err)
	}
	ask(line(5), true)
	keys := []any{line(5), line(5.000000000000001), calculator.Ask{Lines: []calculator.Line{{Sigma: 5}}}, calculator.Ask{Lines: []calculator.Line{{Sigma: 5}, {}}},
		outlook.Options{Devices: 5}, outlook.Options{Devices: 5, Participation: bernoulli}, outlook.Options{Devices: 5, Participation: checkin},
		outlook.Options{Devices: 51}, [2]string{"a", "b"}, [2]string{`a","b`, ""},
		[2][]int{{1}, {2, 3}}, [2][]int{{1, 2}, {3}}, [2]any{nil, 1}, [2]any{1, nil}, [1]any{uint8(1)}, [1]any{uint16(1)}}
	seen := make(map[int]bool)
	for _, key := range keys {
		seen[ask(key, false)] = true
	}
	for _, key := range keys {
		seen[ask(key, false)] = true
	}
	if len(seen) != len(keys) || len(e.shared.found) != len(keys) {
		t.Errorf("%d questions had %d answers, and %d are kept", len(keys), len(seen), len(e.shared.found))
	}
	here := 1
	if first := ask(&here, false); first == ask(&here, false) {
		t.Error("a pointer was taken for what it points to")
	}
	for i := range maxFound + 2 {
		ask(i, false)
	}
	if len(e.shared.found) > maxFound {
		t.Errorf("%d answers are kept", len(e.shared.found))
	}
	var a, b strings.Builder
	if !spell(&a, reflect.ValueOf(line(5))) || !spell(&b, reflect.ValueOf(line(5))) || a.String() != b.String() {
		t.Errorf("one question is written %s and %s", a.String(), b.String())
	}
}

// TestKeptProcess asks the real binary, which goes on after what is no question, and ends
// with its input or a signal.
func TestKeptProcess(t *testing.T) {
	for _, how := range []string{"input", "signal"} {
		if how == "signal" && runtime.GOOS == "windows" {
			continue
		}
		cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "starling"), "account", "--serve")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(stdout)
		for _, c := range []struct{ line, want string }{
			{asked(t, 1, "hello", nil, ""), `"protocol":1`},
			{"nonsense\n", `"problem":"question"`},
			{asked(t, 2, "send", nil, ""), `there is no method \"send\"`},
			{asked(t, 3, "account", strings.Fields("--events - --delta 1e-9"), `[{"mechanism":"gaussian","sigma":10,"count":4}]`), `"epsilon":1.10404`},
		} {
			if _, err := stdin.Write([]byte(c.line)); err != nil {
				t.Fatal(err)
			}
			if !lines.Scan() || !strings.Contains(lines.Text(), c.want) {
				t.Errorf("%s is answered by %s", c.line, lines.Text())
			}
		}
		if how == "signal" {
			err = cmd.Process.Signal(syscall.SIGTERM)
		} else {
			err = stdin.Close()
		}
		if err := errors.Join(err, cmd.Wait()); err != nil {
			t.Errorf("ended by its %s: %v", how, err)
		}
	}
}
