package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/starling-agg/starling/client/clienttest"
	"github.com/starling-agg/starling/client/participate"
	"github.com/starling-agg/starling/fl/agent"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/service"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// anAgent writes an agent's files, whose servers are a test's.
func anAgent(t *testing.T) (path string, id recipe.ID, servers *clienttest.Servers) {
	t.Helper()
	servers = clienttest.New(t)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resp, err := servers.Do(r)
		if err != nil {
			t.Error(err)
			return
		}
		for name, values := range resp.Header {
			w.Header()[name] = values
		}
		w.WriteHeader(resp.StatusCode)
		io.Copy(w, resp.Body)
	})
	leader, helper := httptest.NewServer(answer), httptest.NewServer(answer)
	t.Cleanup(leader.Close)
	t.Cleanup(helper.Close)
	q, err := recipe.NewVector(4, 1, 10, 0)
	if err != nil {
		t.Fatal(err)
	}
	r, err := account.New(account.Options{Name: "Vectors", Query: q, Leader: leader.URL + "/", Helper: helper.URL + "/", MinBatch: 20, Rounds: 3,
		Epsilon: recipe.Decimal{Coefficient: 4}, RoundUnits: 24 * 365})
	if err != nil {
		t.Fatal(err)
	}
	b, err := RecipeFileOf(r)
	if err != nil {
		t.Fatal(err)
	}
	if id, err = r.ID(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "recipe.starling"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	local, err := ListenLoopback()
	if err != nil {
		t.Fatal(err)
	}
	local.Close()
	path = filepath.Join(dir, AgentFile)
	text := fmt.Sprintf("role = \"agent\"\nsocket = \"run/agent.sock\"\ndata = \"ledger\"\nbudget_epsilon = 8\nbudget_delta = 1e-4\n[[tasks]]\nrecipe = \"recipe.starling\"\ndata = [\"digits\"]\n"+
		"[local]\naddress = %q\n", local.Addr())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, id, servers
}

// TestAgentAtItsSocket: an agent from its file takes a contribution at its unix socket,
// sends it, and says at its local listener what was asked; a directory that others may
// enter is refused.
func TestAgentAtItsSocket(t *testing.T) {
	path, id, servers := anAgent(t)
	a, err := LoadAgent(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Check(); err != nil {
		t.Fatal(err)
	}
	quiet := service.NewLogger(new(bytes.Buffer), 99)
	run := func() (stop func() error, ready chan struct{}) {
		ctx, cancel := context.WithCancel(t.Context())
		ended, ready := make(chan error, 1), make(chan struct{})
		go func() { ended <- service.Run(ctx, 0, func() { close(ready) }, a.Parts(quiet, Listeners{})...) }()
		return func() error { cancel(); return <-ended }, ready
	}
	stop, ready := run()
	<-ready
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", string(a.Socket))
	}}}
	ask := func(method, url string, body []byte, into any) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err == nil {
			err = json.Unmarshal(b, into)
		}
		if err != nil {
			t.Errorf("%s: %s, %v", url, b, err)
		}
		return resp.StatusCode
	}
	var s agent.TaskStatus
	if code := ask("GET", "http://agent/v1/tasks/"+id.String(), nil, &s); code != 200 || !s.Allowed || s.Numbers != 4 {
		t.Errorf("%d %+v", code, s)
	}
	var said map[string]any
	at := fmt.Sprintf("http://agent/v1/contributions?task=%v&round=%d&data=digits", id, s.Round)
	if code := ask("POST", at, session.AppendFloats(nil, []float32{1, 2, 3, 4}), &said); code != 200 || said["accepted"] != true {
		t.Errorf("%d %v", code, said)
	}
	for range 6000 {
		if servers.Counts().Reports == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := servers.Counts().Reports; n != 1 {
		t.Errorf("%d reports have come", n)
	}
	var l agent.LedgerStatus
	if code := ask("GET", "http://agent/v1/ledger", nil, &l); code != 200 || !(l.Epsilon > 0) || l.MaxEpsilon != 8 {
		t.Errorf("%d %+v", code, l)
	}
	metrics := string(get(t, "http://"+string(a.Local.Address)+"/metrics"))
	if got := value(strings.Split(metrics, "\n"), `starling_agent_contributions_total{outcome="accepted"}`); got != "1" {
		t.Errorf("%q contributions are counted", got)
	}
	// Bytes that the process has sent, or its goroutines, would tell what the coin said; any
	// user of this machine reaches the listener.
	for _, tells := range []string{"process_", "go_"} {
		if strings.Contains(metrics, "\n"+tells) {
			t.Errorf("the metrics have %s...", tells)
		}
	}
	for _, tells := range []string{"goroutine?debug=2", "heap", "profile?seconds=1", "trace"} {
		resp, err := http.Get("http://" + string(a.Local.Address) + "/debug/pprof/" + tells)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body.Close(); resp.StatusCode != http.StatusNotFound {
			t.Errorf("/debug/pprof/%s is answered with %d", tells, resp.StatusCode)
		}
	}
	if info, err := os.Stat(string(a.Socket)); err != nil || info.Mode().Perm()&0o022 != 0 { // who may write may connect
		t.Errorf("the socket: %v, %v", info.Mode(), err)
	}
	client.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
	// While it is down a process meets nobody, and not a listener that takes its update for
	// nothing; afterwards the round is paid for as it was.
	req, err := http.NewRequestWithContext(t.Context(), "POST", at, bytes.NewReader(session.AppendFloats(nil, []float32{1, 2, 3, 4})))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := client.Do(req); err == nil {
		resp.Body.Close()
		t.Error("an agent that is down answers")
	} else if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("an agent that is down: %v", err)
	}
	stop, ready = run()
	<-ready
	var again agent.LedgerStatus
	if code := ask("GET", "http://agent/v1/ledger", nil, &again); code != 200 || again.Epsilon != l.Epsilon {
		t.Errorf("%d %+v, before %+v", code, again, l)
	}
	if code := ask("POST", at, session.AppendFloats(nil, []float32{1, 2, 3, 4}), &said); code != 409 || said["error"] != "already_contributed" {
		t.Errorf("%d %v", code, said)
	}
	client.CloseIdleConnections()
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(filepath.Dir(string(a.Socket)), 0o755); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // it ends before, by itself
	defer cancel()
	if err := service.Run(ctx, 0, func() {}, a.Parts(quiet, Listeners{})...); !errors.As(err, new(*OpenError)) {
		t.Errorf("in a directory that others may enter: %v", err)
	}
}

// TestAgentConfiguration: what is wrong with an agent's file is said, all of it.
func TestAgentConfiguration(t *testing.T) {
	path, _, _ := anAgent(t)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ from, to, want string }{
		"no budget":        {"budget_epsilon = 8", "budget_epsilon = 0", "budget_epsilon"},
		"no socket":        {"socket = \"run/agent.sock\"\n", "", "socket: required"},
		"an unknown key":   {"[local]", "colour = \"red\"\n[local]", "colour"},
		"too many persons": {"data = [\"digits\"]", "persons = 5000", "persons"},
		"no key":           {"data = [\"digits\"]", "controllers = [\"x\"]", "controllers"},
		"no such recipe":   {"\"recipe.starling\"", "\"none.starling\"", "none.starling"},
		"models of none":   {"data = [\"digits\"]", "models = \"https://relay.example/\"", "of no training"},
		"twice":            {"[local]", "[[tasks]]\nrecipe = \"recipe.starling\"\n[local]", "two tasks"},
	} {
		text := strings.Replace(string(good), c.from, c.to, 1)
		if text == string(good) {
			t.Fatalf("%s changes nothing", name)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := LoadAgent(path)
		if err == nil {
			err = a.Check()
		}
		if err == nil && name == "twice" {
			var o agent.Options
			if o, err = a.Read(); err == nil {
				var x *agent.Agent
				if x, err = agent.Open(t.Context(), o); err == nil {
					x.Close()
				}
			}
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// TestAgentEnds: an agent whose ledger cannot be written any more ends, and says why.
func TestAgentEnds(t *testing.T) {
	path, id, servers := anAgent(t)
	a, err := LoadAgent(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- service.Run(ctx, 0, func() { close(ready) }, a.Parts(service.NewLogger(new(bytes.Buffer), 99), Listeners{})...)
	}()
	<-ready
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", string(a.Socket))
	}}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://agent/v1/tasks/" + id.String())
	if err != nil {
		t.Fatal(err)
	}
	var s agent.TaskStatus
	err = json.NewDecoder(resp.Body).Decode(&s)
	if resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(string(a.Data)); err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("http://agent/v1/contributions?task=%v&round=%d&data=digits", id, s.Round)
	if resp, err = client.Post(at, "", bytes.NewReader(session.AppendFloats(nil, []float32{1, 2, 3, 4}))); err == nil {
		if resp.Body.Close(); resp.StatusCode != http.StatusInternalServerError {
			t.Errorf("answered with %d", resp.StatusCode)
		}
	}
	if err := <-ended; !errors.Is(err, participate.ErrLedger) || ctx.Err() != nil {
		t.Errorf("it ends with %v", err)
	}
	if n := servers.Counts().Reports; n != 0 {
		t.Errorf("%d reports", n)
	}
}
