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
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/starling-agg/starling/fl/agent"
	"github.com/starling-agg/starling/fl/session"
	"github.com/starling-agg/starling/internal/service"
)

// receiptsDir is beside the agent's file that withReceipts changes.
const receiptsDir = "receipts"

// withReceipts gives an agent's file a second socket, in a directory for a group.
func withReceipts(t *testing.T, path string) *Agent {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append([]byte("receipts = \"receipts/agent.sock\"\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(filepath.Dir(path), receiptsDir)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, fs.ModeSetgid|0o750)); err != nil {
		t.Fatal(err)
	}
	a, err := LoadAgent(path)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// atSocket speaks to a unix socket.
func atSocket(t *testing.T, socket service.Path) func(method, path string, body []byte) (code int, answer string) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", string(socket))
	}}}
	return func(method, path string, body []byte) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, "http://agent"+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
}

// TestReceiptsAtTheirSocket: the second socket, which a stopped process left behind, says of
// a task and a round what the first says, takes nothing and tells nothing else; its mode lets
// a group connect; and both are gone once the agent has stopped.
func TestReceiptsAtTheirSocket(t *testing.T) {
	path, id, servers := anAgent(t)
	a := withReceipts(t, path)
	if c := CheckFile(path, time.Now()); len(c.Faults) > 0 || !strings.Contains(c.Found, string(a.Receipts)) {
		t.Errorf("%+v", c)
	}
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: string(a.Receipts), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended, ready := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- service.Run(ctx, 0, func() { close(ready) }, a.Parts(service.NewLogger(new(bytes.Buffer), 99), Listeners{})...)
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	own, receipts := atSocket(t, a.Socket), atSocket(t, a.Receipts)
	var s agent.TaskStatus
	if code, answer := own("GET", "/v1/tasks/"+id.String(), nil); code != http.StatusOK || json.Unmarshal([]byte(answer), &s) != nil {
		t.Fatalf("%d %s", code, answer)
	}
	at := fmt.Sprintf("/v1/contributions?task=%v&round=%d", id, s.Round)
	update := session.AppendFloats(nil, []float32{1, 2, 3, 4})
	for _, c := range []struct {
		method, path string
		code         int
	}{
		{"POST", at + "&data=digits", 405}, {"PUT", at, 405}, {"GET", at + "&data=" + strings.Repeat("x", 2000), 400},
		{"GET", "/v1/status", 404}, {"GET", "/v1/tasks", 404}, {"GET", "/v1/tasks/" + id.String(), 404}, {"GET", "/v1/models/" + session.Hash{}.String(), 404},
		{"GET", "/v1/ledger", 404}, {"GET", "/v1/ledger/" + id.String(), 404}, {"GET", "/", 404}, {"GET", "/metrics", 404}, {"GET", "/debug/pprof/", 404},
	} {
		if code, answer := receipts(c.method, c.path, update); code != c.code || strings.Contains(answer, "accepted") {
			t.Errorf("%s %s: %d %s, want %d", c.method, c.path, code, answer, c.code)
		}
	}
	same := func(want string) {
		t.Helper()
		for _, path := range []string{at, at + "0", strings.Replace(at, "task=", "task=0", 1), strings.Replace(at, "round=", "round=-", 1)} {
			code, answer := receipts("GET", path, nil)
			if c, b := own("GET", path, nil); c != code || b != answer {
				t.Errorf("%s: %d %s, and %d %s at the agent's own", path, code, answer, c, b)
			}
		}
		if code, answer := receipts("GET", at, nil); code != http.StatusOK || answer != want {
			t.Errorf("%d %s, want %s", code, answer, want)
		}
	}
	same("{\"accepted\":false}\n")
	if n := servers.Counts().Uploads; n != 0 {
		t.Errorf("%d reports were sent", n)
	}
	if code, answer := own("POST", at+"&data=digits", update); code != http.StatusOK {
		t.Errorf("%d %s", code, answer)
	}
	same("{\"accepted\":true}\n")
	if info, err := os.Stat(string(a.Receipts)); err != nil || info.Mode().Perm() != 0o660 && runtime.GOOS != "windows" {
		t.Errorf("the socket: %v, %v", info, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	for _, socket := range []service.Path{a.Socket, a.Receipts} {
		if _, err := os.Lstat(string(socket)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is left behind: %v", socket, err)
		}
	}
}

// TestDirectoriesOfSockets: a directory that more may enter or write than are to is refused,
// by a check and at the start, with what to type; so is one of receipts that is missing.
func TestDirectoriesOfSockets(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("directories have no mode")
	}
	path, _, _ := anAgent(t)
	a := withReceipts(t, path)
	own, receipts := filepath.Dir(string(a.Socket)), filepath.Dir(string(a.Receipts))
	if err := a.Check(); err != nil { // the socket's is made at the start
		t.Error(err)
	}
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir  string
		mode fs.FileMode
		want string
	}{
		{receipts, 0o700, ""}, {receipts, 0o710, ""}, {receipts, 0o750, ""}, {receipts, fs.ModeSetgid | 0o750, ""},
		{receipts, 0o755, "receipts: DIR has mode 0755, so that others than a group could ask, or the group put a socket of its own there: chmod 2750 DIR"},
		{receipts, 0o751, "chmod 2750 DIR"}, {receipts, 0o754, "chmod 2750 DIR"}, {receipts, 0o752, "chmod 2750 DIR"},
		{receipts, 0o770, "chmod 2750 DIR"}, {receipts, fs.ModeSetgid | 0o770, "chmod 2750 DIR"}, {receipts, 0o720, "chmod 2750 DIR"},
		{own, 0o750, "socket: DIR has mode 0750, so others of this machine could contribute: chmod 700 DIR"}, {own, 0o701, "chmod 700 DIR"},
	} {
		if err := errors.Join(os.Chmod(own, 0o700), os.Chmod(receipts, 0o750), os.Chmod(c.dir, c.mode)); err != nil {
			t.Fatal(err)
		}
		err := a.Check()
		if c.want == "" {
			if err != nil {
				t.Errorf("%v: %v", c.mode, err)
			}
			continue
		}
		for name, err := range map[string]error{"check": err, "start": starts(t, a)} {
			var open *OpenError
			if !errors.As(err, &open) || open.Dir != c.dir || open.Mode != c.mode.Perm() || !strings.Contains(err.Error(), strings.ReplaceAll(c.want, "DIR", c.dir)) {
				t.Errorf("%s of %s, %v: %v", name, c.dir, c.mode, err)
			}
		}
	}
	if err := errors.Join(os.Chmod(own, 0o700), os.Remove(receipts)); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{"check": a.Check(), "start": starts(t, a)} {
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "install -d -m 2750 -o AGENT -g GROUP "+receipts) {
			t.Errorf("%s without a directory: %v", name, err)
		}
	}
}

// starts runs an agent that should not come as far as its sockets, and gives its error.
func starts(t *testing.T, a *Agent) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	return service.Run(ctx, 0, cancel, a.Parts(service.NewLogger(new(bytes.Buffer), 99), Listeners{})...)
}

// TestReceiptsConfiguration: the second socket lies apart from all that is not for a group,
// and each socket in a directory.
func TestReceiptsConfiguration(t *testing.T) {
	a := &Agent{Socket: "run/agent.sock", Data: "ledger", Counter: "counter"}
	for _, c := range []struct {
		change func()
		want   string
	}{
		{func() { a.Receipts = "receipts/agent.sock" }, ""},
		{func() { a.Receipts = "run/receipts.sock" }, "apart from that of socket"},
		{func() { a.Receipts = "run/../run/agent.sock" }, "apart from that of socket"},
		{func() { a.Receipts = "run/receipts/agent.sock" }, "apart from that of socket"},
		{func() { a.Receipts, a.Data = "receipts/agent.sock", "receipts/ledger" }, "data lies in receipts"},
		{func() { a.Data, a.Counter = "ledger", "receipts/counter" }, "counter lies in receipts"},
		{func() { a.Counter, a.Socket = "", "receipts/own/agent.sock" }, "apart from that of socket"},
		{func() { a.Socket, a.Receipts = "run/agent.sock", "@receipts" }, "receipts: \"@receipts\" is a name that everybody"},
		{func() { a.Receipts, a.Socket = "", "@agent" }, "socket: \"@agent\" is a name that everybody"},
	} {
		c.change()
		err := a.Validate() // which has more faults
		if got := strings.Contains(err.Error(), "receipts"); c.want == "" && got || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", *a, err, c.want)
		}
	}
}
