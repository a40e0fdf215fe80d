package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service"
)

// bin is where the real binary was built.
var bin string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

// buildAndRun builds the binary as it is released, and runs the tests.
func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "starling-bin-")
	if err == nil {
		defer os.RemoveAll(dir)
		name := "starling"
		if runtime.GOOS == "windows" {
			name += ".exe"
		}
		args := []string{"build", "-ldflags", "-s -w", "-o", filepath.Join(dir, name)}
		if lean {
			args = append(args, "-tags", "lean")
		}
		var out []byte
		if out, err = exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the binary:", err)
		return 1
	}
	bin = dir
	return m.Run()
}

// patient are the scripts that run where CI is true, as in the gate, and that nobody waits
// for at every change, with the reason.
var patient = map[string]string{
	"lab.txt": "eleven labs, each of which the tests of package lab play too",
}

// TestScripts runs the files in testdata/script on the real binary. `exit N command...`
// wants the exit code N; `wait-for CONFIG...` waits until the parties are ready;
// `free-ports NAME...` sets variables to addresses; `fill FILE...` puts variables into
// files; `decide DIR RECIPE ROUND` charges a device's ledger; `flip FILE` and `cut FILE`
// change the last bit and drop the last byte of a file. `deployment [--relay | --owned]
// DIR` makes a deployment, `certificates DIR` certificates; `wait-metrics CONFIG REGEXP`
// and `wait-status CONFIG REGEXP` wait until what a party shows matches, and `begin
// MANIFEST` until its epoch has begun; `calm PERIOD WHILE` waits for the next of those
// periods if the one that runs ends before. `hold DIR` keeps the ports of a deployment that
// a lab has left behind for the script.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "script", "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range patient {
		if !slices.Contains(files, filepath.Join("testdata", "script", name)) {
			t.Errorf("%s is no script", name)
		}
	}
	if os.Getenv("CI") != "true" {
		files = slices.DeleteFunc(files, func(name string) bool { return patient[filepath.Base(name)] != "" })
	}
	testscript.Run(t, testscript.Params{
		Files: files,
		Setup: func(e *testscript.Env) error {
			e.Setenv("PATH", bin+string(os.PathListSeparator)+e.Getenv("PATH"))
			e.Setenv("LC_ALL", "C.UTF-8")
			e.Setenv(anchorsEnv, filepath.Join(e.WorkDir, "demo", deploy.AnchorsFile))
			e.Setenv("NO_PROXY", "127.0.0.1")
			holdPorts(e)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exit": exitCode, "wait-for": waitFor, "wait-status": waitStatus, "free-ports": freePorts, "fill": fill, "decide": decide,
			"flip": flip, "cut": cut, "deployment": deployment, "certificates": certificates, "wait-metrics": waitMetrics,
			"begin": begin, "calm": calm, "hold": hold,
		},
	})
}

// exitCode runs a command in the foreground and compares its exit code; stdout and stderr
// are there to look at.
func exitCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exit CODE command...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	if e := new(exec.ExitError); errors.As(err, &e) {
		code = e.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d, want %s", code, args[0])
	}
}

// localAddress is where the operator of a party looks.
func localAddress(path string) (service.Address, error) {
	switch filepath.Base(path) {
	case "relay.toml":
		c, err := deploy.LoadRelay(path)
		if err != nil {
			return "", err
		}
		return c.Local.Address, nil
	case "gateway.toml":
		c, err := deploy.LoadGateway(path)
		if err != nil {
			return "", err
		}
		return c.Local.Address, nil
	}
	switch is, _ := deploy.RoleOf(path); is { // what is wrong with it is said below
	case deploy.LogRole:
		c, err := deploy.LoadLog(path)
		if err != nil {
			return "", err
		}
		return c.Local.Address, nil
	case deploy.WitnessRole:
		c, err := deploy.LoadWitness(path)
		if err != nil {
			return "", err
		}
		return c.Local.Address, nil
	case deploy.AttesterRole:
		c, err := deploy.LoadAttester(path)
		if err != nil {
			return "", err
		}
		return c.Local.Address, nil
	case deploy.HopRole:
		c, err := deploy.LoadHop(path)
		if err != nil {
			return "", err
		}
		return c.Local.Address, nil
	case deploy.ControllerRole:
		c, err := deploy.LoadController(path)
		if err != nil {
			return "", err
		}
		return c.Local.Address, nil
	case deploy.AnalyzerRole:
		c, err := deploy.LoadAnalyzer(path)
		if err != nil {
			return "", err
		}
		return c.Local.Address, nil
	}
	role := dap.RoleLeader
	if filepath.Base(path) == deploy.HelperFile {
		role = dap.RoleHelper
	}
	c, err := deploy.LoadAggregator(path, role)
	if err != nil {
		return "", err
	}
	return c.Local.Address, nil
}

// freePorts sets each named variable to an address on loopback that nobody listened on a
// moment ago.
func freePorts(ts *testscript.TestScript, neg bool, args []string) {
	var open []net.Listener
	for _, name := range args {
		l, err := deploy.ListenLoopback()
		ts.Check(err)
		open = append(open, l)
		holdPort(ts, l.Addr().String())
		ts.Setenv(name, l.Addr().String())
	}
	for _, l := range open {
		l.Close()
	}
}

// fill replaces $NAME in files by the variables of the script.
func fill(ts *testscript.TestScript, neg bool, args []string) {
	for _, name := range args {
		text := os.Expand(ts.ReadFile(name), ts.Getenv)
		ts.Check(os.WriteFile(ts.MkAbs(name), []byte(text), 0o600))
	}
}

// waitFor asks parties in other processes whether they are ready; there is no signal to
// wait on.
func waitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: wait-for CONFIG...")
	}
	for _, path := range args {
		poll(ts, path, "/readyz", regexp.MustCompile(""))
	}
}

// waitStatus asks a party in another process for its status until the expression matches.
func waitStatus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: wait-status CONFIG REGEXP")
	}
	want, err := regexp.Compile(args[1])
	ts.Check(err)
	poll(ts, args[0], "/statusz", want)
}

// poll asks the local listener of a party until the answer is good and matches.
func poll(ts *testscript.TestScript, config, path string, want *regexp.Regexp) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	late := time.After(2 * time.Minute) // of a machine that does much else
	local, err := localAddress(ts.MkAbs(config))
	ts.Check(err)
	for {
		var body []byte
		resp, err := http.Get("http://" + string(local) + path)
		if err == nil {
			body, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			if err == nil && resp.StatusCode == http.StatusOK && want.Match(body) {
				return
			}
		}
		select {
		case <-ticker.C:
		case <-late:
			ts.Fatalf("%s of %s does not match %s: %s, %v", path, config, want, body, err)
		}
	}
}

// decide is what a device does to its ledger before it tosses the coins of a round.
func decide(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: decide DIR RECIPE ROUND")
	}
	checked, err := deploy.OpenCertified(ts.MkAbs(args[1]))
	ts.Check(err)
	r, b := checked.Recipe(), checked.Bytes()
	id, err := r.ID()
	ts.Check(err)
	round, err := strconv.ParseUint(args[2], 10, 64)
	ts.Check(err)
	fsys, err := disk.OS(ts.MkAbs(args[0]))
	ts.Check(err)
	defer fsys.Close()
	l, err := participate.OpenLedger(fsys, participate.LedgerOptions{MaxEpsilon: 100, MaxDelta: 1})
	ts.Check(err)
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	ts.Check(l.See(context.Background(), id, b, now))
	ts.Check(l.Charge(context.Background(), id, round, r.DeviceRule(), now, participate.PriceOf(checked)))
	ts.Check(l.Close())
}

// flip changes the last bit of a file.
func flip(ts *testscript.TestScript, neg bool, args []string) {
	damage(ts, neg, args, func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
}

// cut drops the last byte of a file.
func cut(ts *testscript.TestScript, neg bool, args []string) {
	damage(ts, neg, args, func(b []byte) []byte { return b[:len(b)-1] })
}

func damage(ts *testscript.TestScript, neg bool, args []string, change func([]byte) []byte) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: flip|cut FILE")
	}
	b, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(b) == 0 {
		ts.Fatalf("%s is empty", args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), change(b), 0o600))
}
