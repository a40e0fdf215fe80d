//go:build postgres

package aggregator_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/starling-agg/starling/aggregator/internal/store/postgres/pgtest"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// replicas is a leader, and two processes of its helper on one database, behind something
// that spreads connections: all of them processes of the binary.
type replicas struct {
	*testing.T
	bin, dir string
	server   *pgtest.Server
	schema   *pgtest.Schema
	helpers  [2]process
	front    net.Listener
	next     atomic.Uint64
}

// process is one that serves.
type process struct {
	config, public, local string
	cmd                   *exec.Cmd
}

func newReplicas(t *testing.T) *replicas {
	r := &replicas{T: t, bin: filepath.Join(t.TempDir(), "starling"), dir: filepath.Join(t.TempDir(), "d")}
	build := exec.Command("go", "build", "-o", r.bin, "../cmd/starling")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	a, err := deploy.Loopback()
	r.ok(err)
	rec, err := account.New(account.Options{
		Name: "count", Query: recipe.Count{}, Leader: a.LeaderURL(), Helper: a.HelperURL(), MinBatch: 10, TimePrecision: 1,
		Epsilon: recipe.Decimal{Coefficient: 30},
	})
	r.ok(err)
	r.ok(deploy.Create(r.dir, rec, a))
	address := a.Helper.Addr().String()
	a.Close()
	r.front, err = net.Listen("tcp", address)
	r.ok(err)
	t.Cleanup(func() { r.front.Close() })
	go r.spread()

	r.server = pgtest.NewServer(t)
	r.schema = r.server.Schema(t)
	r.write("secrets/database", r.schema.Service)
	r.write("secrets/database.owner", r.schema.Owner)
	for i := range r.helpers {
		r.configure(i, address)
	}
	return r
}

func (r *replicas) ok(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

func (r *replicas) write(name, text string) {
	r.Helper()
	r.ok(os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o600))
}

// free is an address that nobody has a moment ago.
func (r *replicas) free() string {
	r.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	r.ok(err)
	defer l.Close()
	return l.Addr().String()
}

// configure writes the file of one process of the helper.
func (r *replicas) configure(i int, address string) {
	r.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, deploy.HelperFile))
	r.ok(err)
	p := process{config: fmt.Sprintf("helper-%d.toml", i), public: r.free(), local: r.free()}
	var text strings.Builder
	section := ""
	for line := range strings.Lines(string(b)) {
		key, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case strings.HasPrefix(key, "["):
			if section == "" {
				text.WriteString("engine = \"postgres\"\n")
			}
			section = key
		case key == "data" || key == "record":
			line = fmt.Sprintf("%s = \"helper-%d%s\"\n", key, i, map[string]string{"record": ".record"}[key])
		case key == "address" && section == "[public]":
			line = fmt.Sprintf("address = %q\n", p.public)
		case key == "address" && section == "[local]":
			line = fmt.Sprintf("address = %q\n", p.local)
		}
		text.WriteString(line)
	}
	fmt.Fprintf(&text, "\n[database]\nfile = \"secrets/database\"\nowner = \"secrets/database.owner\"\nwrapping_keys = \"secrets/wrapping\"\nservice = %q\nschema = %q\n", r.schema.Role, r.schema.Name)
	r.write(p.config, text.String())
	r.helpers[i] = p
}

// spread hands each connection to the next process that takes it.
func (r *replicas) spread() {
	for {
		from, err := r.front.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			for range r.helpers {
				to, err := net.Dial("tcp", r.helpers[r.next.Add(1)%2].public)
				if err != nil {
					continue
				}
				defer to.Close()
				go func() {
					_, _ = io.Copy(to, from)
					_ = to.Close()
				}()
				_, _ = io.Copy(from, to)
				return
			}
		}()
	}
}

// command runs the binary to its end.
func (r *replicas) command(args ...string) (out string, err error) {
	r.Helper()
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.bin, args...)
	cmd.Dir = r.dir
	b, err := cmd.CombinedOutput()
	return string(b), err
}

// done demands that a command has its way.
func (r *replicas) done(args ...string) string {
	r.Helper()
	out, err := r.command(args...)
	if err != nil {
		r.Fatalf("starling %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// refused demands that it has not, and says so.
func (r *replicas) refused(want string, args ...string) {
	r.Helper()
	if out, err := r.command(args...); err == nil || !strings.Contains(out, want) {
		r.Fatalf("starling %s: %v, want %q in\n%s", strings.Join(args, " "), err, want, out)
	}
}

// serve starts a process, and waits until it is ready.
func (r *replicas) serve(p *process, role string) {
	r.Helper()
	p.cmd = exec.Command(r.bin, "serve", role, p.config)
	p.cmd.Dir = r.dir
	var log strings.Builder
	p.cmd.Stderr = &log
	r.ok(p.cmd.Start())
	cmd, ended := p.cmd, make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	r.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if r.Failed() {
			r.Logf("%s:\n%s", p.config, tail(log.String()))
		}
	})
	for {
		resp, err := http.Get("http://" + p.local + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-ended:
			r.Fatalf("%s ended:\n%s", p.config, log.String())
		case <-r.Context().Done():
			r.Fatal("the test is over")
		case <-time.After(50 * time.Millisecond): // another process: there is no signal to wait for
		}
	}
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// send has reports sent, and acknowledged.
func (r *replicas) send(n int) {
	r.Helper()
	args := append([]string{"send", "--any-keys", "--max-epsilon", "0", deploy.RecipeFile}, strings.Fields(strings.Repeat("yes ", n))...)
	if out := r.done(args...); !strings.Contains(out, fmt.Sprintf("%d acknowledged", n)) {
		r.Fatalf("sent:\n%s", out)
	}
}

// lives is how many processes the helper's database holds alive.
func (r *replicas) lives() (n int) {
	r.Helper()
	c, err := pgx.Connect(r.Context(), r.schema.Owner)
	r.ok(err)
	defer c.Close(r.Context())
	r.ok(c.QueryRow(r.Context(), "SELECT count(*) FROM "+pgx.Identifier{r.schema.Name, "replica"}.Sanitize()).Scan(&n))
	return n
}

// TestReplicas: two processes serve one helper, through the death of either and of the
// database, and every report counts once. Before, and between versions, each says what is
// to be typed.
func TestReplicas(t *testing.T) {
	r := newReplicas(t)
	one, two := &r.helpers[0], &r.helpers[1]
	r.refused("starling migrate", "serve", "helper", one.config)
	if out := r.done("migrate", one.config); !strings.Contains(out, ", was 0") {
		t.Errorf("migrated: %s", out)
	}
	if out := r.done("migrate", "--finish", "--json", two.config); strings.Contains(out, `"before": 0`) || !strings.Contains(out, `"version": `) {
		t.Errorf("migrated again: %s", out)
	}
	r.refused("starling key wrapping", "serve", "helper", one.config)
	r.done("key", "wrapping", "--out", "secrets/wrapping")
	r.serve(one, "helper")
	r.serve(two, "helper")

	b, err := os.ReadFile(filepath.Join(r.dir, deploy.LeaderFile))
	r.ok(err)
	_, text, _ := strings.Cut(string(b), "[local]")
	_, text, _ = strings.Cut(text, `address = "`)
	local, _, _ := strings.Cut(text, `"`)
	leader := &process{config: deploy.LeaderFile, local: local}
	r.serve(leader, "leader")

	total, begun := 0, time.Now().UTC()
	step := func(n int, meanwhile func()) {
		t.Helper()
		done := make(chan struct{})
		go func() {
			defer close(done)
			meanwhile()
		}()
		r.send(n)
		<-done
		total += n
	}
	step(40, func() {})
	step(40, func() { _ = one.cmd.Process.Kill() })
	r.serve(one, "helper")
	step(40, func() { r.server.Crash(t, func() {}) })
	step(40, func() { _ = two.cmd.Process.Kill() })
	// A newer wrapping key wraps what there is, and the old one ends, while one serves.
	was := r.done("key", "list", one.config)
	r.done("key", "wrapping", "--out", "secrets/wrapping")
	if out := r.done("key", "rewrap", one.config); strings.HasPrefix(out, "0 keys") {
		t.Errorf("wrapped again: %s", out)
	}
	old, _, _ := strings.Cut(was, ":")
	if out := r.done("key", "rewrap", "--end", two.config); !strings.HasPrefix(out, "0 keys") || !strings.Contains(out, "ended: "+old) {
		t.Errorf("ended: %s", out)
	}
	if files, err := os.ReadDir(filepath.Join(r.dir, "secrets/wrapping")); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	if out := r.done("key", "list", one.config); !strings.Contains(out, old+": has ended\n") || !strings.Contains(out, ": the newest, wraps") {
		t.Errorf("listed: %s", out)
	}
	// One is stopped until the other holds it dead, and goes on: what came to it meanwhile is
	// done once, by whichever.
	r.serve(two, "helper")
	r.ok(two.cmd.Process.Signal(syscall.SIGSTOP))
	step(10, func() {
		for r.lives() > 1 {
			time.Sleep(100 * time.Millisecond) // another process: there is no signal to wait for
		}
		r.ok(two.cmd.Process.Signal(syscall.SIGCONT))
	})
	step(10, func() {
		for r.lives() < 2 {
			time.Sleep(100 * time.Millisecond)
		}
	})
	// From the second in which the first report came to the one after the last.
	at := func(x time.Time) string { return x.UTC().Truncate(time.Second).Format(time.RFC3339) }
	out := r.done("collect", "--timeout", "90s", "--from", at(begun), "--to", at(time.Now().Add(2*time.Second)), deploy.CollectorFile)
	if !strings.Contains(out, fmt.Sprintf("%d reports from", total)) {
		t.Errorf("%d reports were sent, and collected:\n%s", total, out)
	}
	for _, p := range []*process{one, two} {
		if out := r.done("status", p.config); !strings.Contains(out, fmt.Sprintf("%d acknowledged = %d aggregated", total, total)) {
			t.Errorf("%s says:\n%s", p.config, out)
		}
	}
}
