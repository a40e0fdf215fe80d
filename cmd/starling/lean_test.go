//go:build lean

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/service"
)

// The tests of the build for agents and accountants: go test -tags lean -run Lean. They hold
// it to what the whole program has frozen. Most other tests are of the whole program.

// wholeBlocks are the parts of a frozen file of the whole program, by the command line that
// each begins with.
func wholeBlocks(t *testing.T, name string) map[string]string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "frozen", name))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, block := range strings.Split("\n"+string(b), "\n$ starling")[1:] {
		line, text, _ := strings.Cut(block, "\n")
		all[strings.TrimSpace(line)] = strings.TrimSpace(text)
	}
	return all
}

// TestLeanHelp: a command says of itself what it says in the whole program, and a group what
// it has of it.
func TestLeanHelp(t *testing.T) {
	whole, leaves := wholeBlocks(t, "help.txt"), 0
	var walk func(c *command, args []string)
	walk = func(c *command, args []string) {
		line := strings.Join(append(slices.Clip(args), "--help"), " ")
		_, stdout, _ := inProcess(t, strings.Fields(line))
		was, ok := whole[line]
		switch {
		case !ok:
			t.Errorf("the whole program has no %s", line)
		case c.sub == nil:
			leaves++
			if got := strings.TrimSpace(stdout); got != was {
				t.Errorf("%s:\n%s\nand of the whole program:\n%s", line, got, was)
			}
		default:
			for _, s := range c.sub {
				if entry := regexp.MustCompile(`(?m)^  ` + s.name + ` +\S`); !entry.MatchString(was) || !entry.MatchString(stdout) {
					t.Errorf("%s has no %s", line, s.name)
				}
			}
		}
		for _, s := range c.sub {
			walk(s, append(slices.Clip(args), s.name))
		}
	}
	walk(root(), nil)
	if leaves < 14 {
		t.Errorf("only %d commands", leaves)
	}
}

// has says whether this build has the command of a line, and not just its group.
func has(args []string) bool {
	c := root()
	for c.setup == nil {
		i := slices.IndexFunc(c.sub, func(s *command) bool { return len(args) > 0 && s.name == args[0] })
		if i < 0 {
			return false
		}
		c, args = c.sub[i], args[1:]
	}
	return true
}

// TestLeanRuns: exit codes, hints and keys are those of the whole program.
func TestLeanRuns(t *testing.T) {
	whole, n := wholeBlocks(t, "runs.txt"), 0
	t.Chdir(t.TempDir())
	if err := os.Mkdir("recipes", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, line := range frozenRuns {
		args := strings.Fields(line)
		if !has(args) || args[0] == "version" || args[0] == "licenses" {
			continue
		}
		n++
		code, stdout, stderr := inProcess(t, args)
		got := fmt.Sprintf("exit %d", code)
		if code != exitDone && !strings.Contains(stderr, "starling: hint: ") {
			got += ", no hint"
		}
		if slices.Contains(args, "--json") && code == exitDone {
			got += "\n  " + strings.Join(keysIn(t, []byte(stdout)), "\n  ")
		}
		if got != whole[line] {
			t.Errorf("starling %s: %s\nand the whole program: %s", line, got, whole[line])
		}
	}
	if n < 25 {
		t.Errorf("only %d lines were run", n)
	}
}

// TestLeanElsewhere: what this build lacks is said to be elsewhere.
func TestLeanElsewhere(t *testing.T) {
	for _, line := range []string{"lab", "collect", "serve leader", "recipe certificate", "fl train"} {
		code, _, stderr := inProcess(t, strings.Fields(line))
		if code != exitUsage || !strings.Contains(stderr, "the whole program has more") {
			t.Errorf("starling %s: exit code %d, %s", line, code, stderr)
		}
	}
	if b := thisBuild(); !b.Lean {
		t.Errorf("the version is %+v", b)
	}
}

// TestLeanStopped: a party that is stopped is said to be, and its store is left alone.
func TestLeanStopped(t *testing.T) {
	t.Chdir(t.TempDir())
	at, err := deploy.ListenLoopback()
	if err != nil {
		t.Fatal(err)
	}
	at.Close()
	address := at.Addr().String()
	if err := os.WriteFile("controller.toml", []byte(strings.Replace(controllerExample, "127.0.0.1:9005", address, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"status", "fl status", "fl model --out model.f32"} {
		code, _, stderr := inProcess(t, strings.Fields(command+" controller.toml"))
		if code != exitUnreachable || !strings.Contains(stderr, errNoStore.Error()) || !strings.Contains(stderr, "serve controller") {
			t.Errorf("starling %s: exit code %d, %s", command, code, stderr)
		}
	}
	leader := aggregatorFile{"leader.toml", &deploy.Aggregator{Local: deploy.Local{Address: service.Address(address)}}}
	if _, err := readAll(t.Context(), []aggregatorFile{leader}, true); !errors.Is(err, errNoStore) {
		t.Errorf("a leader that is stopped: %v", err)
	}
}

// TestLeanScripts runs those scripts on the lean binary whose commands it has.
func TestLeanScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Files: []string{filepath.Join("testdata", "script", "account.txt")},
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("LC_ALL", "C.UTF-8")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"exit": exitCode},
	})
}

// TestLeanLicenses: the list is of the modules that the build has.
func TestLeanLicenses(t *testing.T) {
	out, err := exec.Command(filepath.Join(bin, "starling"), "licenses", "--json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var said struct{ Modules []struct{ Module string } }
	if err := json.Unmarshal(out, &said); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range said.Modules {
		got = append(got, m.Module)
	}
	out, err = exec.Command("go", "list", "-tags", "lean", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	want := append(strings.Fields(string(out)), "std")
	slices.Sort(want)
	if want = slices.Compact(want); !slices.Equal(got, want) {
		t.Errorf("licences of %q, and built from %q", got, want)
	}
}

// TestLeanAgent: the lean binary makes a recipe, takes an agent's configuration, runs it, says
// where it stands, and ends in order.
func TestLeanAgent(t *testing.T) {
	t.Chdir(t.TempDir())
	run := func(line string) string {
		t.Helper()
		out, err := exec.Command(filepath.Join(bin, "starling"), strings.Fields(line)...).CombinedOutput()
		if err != nil {
			t.Fatalf("starling %s: %v\n%s", line, err, out)
		}
		return string(out)
	}
	run("recipe new --name Vectors --query vector:4:1:10 --min-batch 20 --epsilon 4 --leader http://127.0.0.1:1/ --helper http://127.0.0.1:2/")
	local, err := deploy.ListenLoopback()
	if err != nil {
		t.Fatal(err)
	}
	local.Close()
	text := fmt.Sprintf("role = \"agent\"\nsocket = \"run/agent.sock\"\ndata = \"ledger\"\nbudget_epsilon = 8\nbudget_delta = 1e-4\nany_keys = true\n"+
		"[[tasks]]\nrecipe = \"recipe.starling\"\n[local]\naddress = %q\n", local.Addr())
	if err := os.WriteFile("agent.toml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run("check agent.toml recipe.starling")
	if out := run("serve agent --check --json agent.toml"); !strings.Contains(out, `"valid": true`) {
		t.Errorf("serve agent --check: %s", out)
	}
	serve := exec.CommandContext(t.Context(), filepath.Join(bin, "starling"), "serve", "agent", "agent.toml")
	log, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(log)
	for said := ""; !strings.Contains(said, `"started"`); { // when it answers
		if said, err = lines.ReadString('\n'); err != nil {
			t.Fatalf("the agent says %s, %v", said, err)
		}
	}
	status := run("status --json agent.toml")
	if !strings.Contains(status, `"agents"`) || !strings.Contains(status, `"tasks": 1`) {
		t.Errorf("status: %s", status)
	}
	if err := serve.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Fatal(err)
	}
	if err := serve.Wait(); err != nil {
		t.Errorf("serve agent: %v", err)
	}
}
