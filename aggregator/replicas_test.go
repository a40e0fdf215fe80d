//go:build postgres

package aggregator_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/starling-agg/starling/aggregator/status"
	"github.com/starling-agg/starling/deploy"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
	"github.com/starling-agg/starling/recipe"
	"github.com/starling-agg/starling/recipe/account"
)

// replicas is a deployment whose helper, and maybe leader, is two processes on a database
// behind something that spreads connections: all of them processes of the binary.
type replicas struct {
	*testing.T
	bin, dir       string
	server         *pgtest.Server
	leader, helper *side
	uploads        *atomic.Int64          // objects that the leaders have put
	access         atomic.Pointer[string] // the one access key that object storage takes; nil: any
	answer         string                 // of each device
	// serving is how processes of a role reach a schema, and what else [database] says; nil: as
	// the role of the schema, directly.
	serving func(role string, s *pgtest.Schema) (connection, more string)
	marks   string // where they lie: in a "directory", in "objects" or, which is said, nowhere: "none"
}

// side is one aggregator.
type side struct {
	role   string
	schema *pgtest.Schema
	two    [2]process
	front  net.Listener
	next   atomic.Uint64
	only   atomic.Pointer[process] // where all connections go, if it is there
	closed atomic.Pointer[gate]
	mu     sync.Mutex
	heard  []*recording // of each connection, guarded by mu
	held   []net.Conn   // connections that were handed on, guarded by mu

	unfenced bool // what is brought again says nothing of what its sender holds
}

// gate keeps aggregation jobs from a side.
type gate struct {
	kept chan struct{} // closed once there is one
	once sync.Once
	open chan struct{} // closed when all goes on
}

// recording is what one connection has brought.
type recording struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (c *recording) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.b.Write(b)
}

// process is one that serves.
type process struct {
	config, public, local string
	cmd                   *exec.Cmd
	ended                 chan struct{}    // closed when cmd has
	log                   *strings.Builder // of cmd; to be read once it has ended
}

// newReplicas has two helpers, and two leaders or the one that deploy makes.
func newReplicas(t *testing.T, leaders bool, marks string) *replicas {
	r := &replicas{T: t, marks: marks, server: pgtest.NewServer(t), answer: "yes"}
	var query recipe.Query = recipe.Count{}
	if leaders { // whose uploads are to be large now and then
		query, r.answer = recipe.Histogram{Length: 64, Chunk: 8}, "3"
	}
	r.make(leaders, query, recipe.Decimal{Coefficient: 30})
	return r
}

// make builds the binary and makes a deployment, all but its schemas.
func (r *replicas) make(leaders bool, query recipe.Query, epsilon recipe.Decimal) {
	r.Helper()
	r.bin, r.dir = r.build("starling"), filepath.Join(r.TempDir(), "d")
	a, err := deploy.Loopback()
	r.ok(err)
	rec, err := account.New(account.Options{
		Name: "replicas", Query: query, Leader: a.LeaderURL(), Helper: a.HelperURL(), MinBatch: 10, TimePrecision: 1, Epsilon: epsilon,
	})
	r.ok(err)
	r.ok(deploy.Create(r.dir, rec, a))
	leader, helper := a.Leader.Addr().String(), a.Helper.Addr().String()
	a.Close()
	r.helper = r.newSide("helper", helper)
	if leaders {
		r.leader = r.newSide("leader", leader)
	}
}

// build builds a binary.
func (r *replicas) build(name string, flags ...string) string {
	r.Helper()
	bin := filepath.Join(r.TempDir(), name)
	build := exec.Command("go", append(append([]string{"build", "-o", bin}, flags...), "../cmd/starling")...)
	if out, err := build.CombinedOutput(); err != nil {
		r.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// newSide writes the files of both processes, and spreads what comes to the address.
func (r *replicas) newSide(role, address string) *side {
	r.Helper()
	s := &side{role: role}
	var err error
	s.front, err = net.Listen("tcp", address)
	r.ok(err)
	r.Cleanup(func() { s.front.Close() })
	go s.spread()
	schema := r.server.Schema(r.T)
	s.schema = schema
	connection, more := schema.Service, ""
	if r.serving != nil {
		connection, more = r.serving(role, schema)
	}
	r.write("secrets/database."+role, connection)
	r.write("secrets/database."+role+".owner", schema.Owner)
	database := fmt.Sprintf("\n[database]\nfile = \"secrets/database.%[1]s\"\nowner = \"secrets/database.%[1]s.owner\"\n"+
		"wrapping_keys = \"secrets/wrapping.%[1]s\"\nservice = %[2]q\nschema = %[3]q\n%[4]s", role, schema.Role, schema.Name, more)
	r.write("secrets/objects", objectCredentials)
	bucket := func(section string) (uploads *atomic.Int64) {
		o, uploads := objectStorageOf(r.T, "secrets/objects", func(access string) bool {
			only := r.access.Load()
			return only == nil || access == *only
		})
		database += fmt.Sprintf("\n[%s]\nendpoint = %q\nregion = %q\nbucket = %q\npath_style = true\ncredentials = %q\n", section,
			o.Endpoint, o.Region, o.S3Bucket, o.Credentials)
		return uploads
	}
	if role == "leader" {
		r.uploads = bucket("database.objects")
	}
	switch r.marks {
	case "directory":
		database += fmt.Sprintf("\n[database.marks]\ndirectory = \"marks.%s\"\n", role)
	case "objects":
		bucket("database.marks.objects")
	case "none":
		database += "\n[database.marks]\nnone = true\n"
	}
	for i := range s.two {
		s.two[i] = r.configure(role, i, database)
	}
	return s
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

// free is an address that nobody has a moment ago, below the ports that connections get: a
// process that starts again finds it free.
func (r *replicas) free() string {
	r.Helper()
	for {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(15000)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		r.ok(err)
		defer l.Close()
		return l.Addr().String()
	}
}

// configure writes the file of one process.
func (r *replicas) configure(role string, i int, database string) process {
	r.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, role+".toml"))
	r.ok(err)
	p := process{config: fmt.Sprintf("%s-%d.toml", role, i), public: r.free(), local: r.free()}
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
			line = fmt.Sprintf("%s = \"%s-%d%s\"\n", key, role, i, map[string]string{"record": ".record"}[key])
		case key == "address" && section == "[public]":
			line = fmt.Sprintf("address = %q\n", p.public)
		case key == "address" && section == "[local]":
			line = fmt.Sprintf("address = %q\n", p.local)
		}
		text.WriteString(line)
	}
	r.write(p.config, text.String()+database)
	return p
}

// spread hands each connection to the next process that takes it.
func (s *side) spread() {
	for {
		from, err := s.front.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			for range s.two {
				p := &s.two[s.next.Add(1)%2]
				if only := s.only.Load(); only != nil {
					p = only
				}
				to, err := net.Dial("tcp", p.public)
				if err != nil {
					continue
				}
				defer to.Close()
				go func() {
					_, _ = io.Copy(from, to)
					_ = from.Close()
				}()
				c := new(recording)
				s.mu.Lock()
				s.heard, s.held = append(s.heard, c), append(s.held, from)
				s.mu.Unlock()
				s.hand(to, io.TeeReader(from, c))
				return
			}
		}()
	}
}

// part ends all connections, so that those who come again are spread anew.
func (s *side) part() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.held {
		_ = c.Close()
	}
	s.held = nil
}

// hand copies what comes, jobs once the gate is open.
func (s *side) hand(to io.Writer, from io.Reader) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if g := s.closed.Load(); g != nil && bytes.Contains(b[:n], []byte("/aggregation_jobs")) {
			g.once.Do(func() { close(g.kept) })
			<-g.open
		}
		if _, failed := to.Write(b[:n]); failed != nil || err != nil {
			return
		}
	}
}

// close closes the gate.
func (s *side) close() *gate {
	g := &gate{kept: make(chan struct{}), open: make(chan struct{})}
	s.closed.Store(g)
	return g
}

// open opens it again.
func (s *side) open() { close(s.closed.Swap(nil).open) }

// command runs the binary to its end.
func (r *replicas) command(args ...string) (out string, err error) {
	return r.commandOf(r.bin, args...)
}

// commandOf runs a binary to its end.
func (r *replicas) commandOf(bin string, args ...string) (out string, err error) {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
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
func (r *replicas) refused(want string, args ...string) (out string) {
	r.Helper()
	return r.refusedBy(r.bin, want, args...)
}

// refusedBy is refused, of a binary.
func (r *replicas) refusedBy(bin, want string, args ...string) (out string) {
	r.Helper()
	out, err := r.commandOf(bin, args...)
	if err == nil || !strings.Contains(out, want) {
		r.Fatalf("%s %s: %v, want %q in\n%s", filepath.Base(bin), strings.Join(args, " "), err, want, out)
	}
	return out
}

// serve starts a process, and waits until it is ready.
func (r *replicas) serve(p *process, role string) {
	r.Helper()
	r.serveBy(r.bin, p, role)
}

// serveBy starts a process of a binary, and waits until it is ready.
func (r *replicas) serveBy(bin string, p *process, role string) {
	r.Helper()
	p.cmd = exec.Command(bin, "serve", role, p.config)
	p.cmd.Dir = r.dir
	log := new(strings.Builder)
	p.log, p.cmd.Stderr = log, log
	r.ok(p.cmd.Start())
	cmd, ended := p.cmd, make(chan struct{})
	p.ended = ended
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
	args := append([]string{"send", "--any-keys", "--max-epsilon", "0", deploy.RecipeFile}, strings.Fields(strings.Repeat(r.answer+" ", n))...)
	if out := r.done(args...); !strings.Contains(out, number(n)+" acknowledged") {
		r.Fatalf("sent:\n%s", out)
	}
}

// lives is how many processes the helper's database holds alive.
func (r *replicas) lives() (n int) {
	r.Helper()
	c, err := pgx.Connect(r.Context(), r.helper.schema.Owner)
	r.ok(err)
	defer c.Close(r.Context())
	r.ok(c.QueryRow(r.Context(), "SELECT count(*) FROM "+pgx.Identifier{r.helper.schema.Name, "replica"}.Sanitize()).Scan(&n))
	return n
}

// TestReplicas: two processes serve one helper, through the death of either and of the
// database, and every report counts once. Before, and between versions, each says what is
// to be typed.
func TestReplicas(t *testing.T) {
	r := newReplicas(t, false, "none")
	one, two := &r.helper.two[0], &r.helper.two[1]
	r.refused("starling migrate", "serve", "helper", one.config)
	if out := r.done("migrate", one.config); !strings.Contains(out, ", was 0") {
		t.Errorf("migrated: %s", out)
	}
	if out := r.done("migrate", "--finish", "--json", two.config); strings.Contains(out, `"before": 0`) || !strings.Contains(out, `"version": `) {
		t.Errorf("migrated again: %s", out)
	}
	r.refused("starling key wrapping", "serve", "helper", one.config)
	r.done("key", "wrapping", "--out", "secrets/wrapping.helper")
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
	r.done("key", "wrapping", "--out", "secrets/wrapping.helper")
	if out := r.done("key", "rewrap", one.config); strings.HasPrefix(out, "0 keys") {
		t.Errorf("wrapped again: %s", out)
	}
	old, _, _ := strings.Cut(was, ":")
	if out := r.done("key", "rewrap", "--end", two.config); !strings.HasPrefix(out, "0 keys") || !strings.Contains(out, "ended: "+old) {
		t.Errorf("ended: %s", out)
	}
	if files, err := os.ReadDir(filepath.Join(r.dir, "secrets/wrapping.helper")); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
	if out := r.done("key", "list", one.config); !strings.Contains(out, old+": has ended\n") || !strings.Contains(out, ": the newest, wraps") {
		t.Errorf("listed: %s", out)
	}
	// One is stopped until the other holds it dead, and goes on: what came to it meanwhile is
	// done once, by whichever.
	r.serve(two, "helper")
	r.told(one, "\nhelper, 2 live replicas\n", ", takes jobs, ", ", holds HPKE keys ", "helper: there is no place of marks")
	r.ok(two.cmd.Process.Signal(syscall.SIGSTOP))
	step(10, func() {
		for r.lives() > 1 {
			time.Sleep(100 * time.Millisecond) // another process: there is no signal to wait for
		}
		r.told(one, "\nhelper, 1 live replica\n", "\n  dead       ")
		r.ok(two.cmd.Process.Signal(syscall.SIGCONT))
	})
	step(10, func() {
		for r.lives() < 2 {
			time.Sleep(100 * time.Millisecond)
		}
	})
	r.collect(begun, total)
	r.know(total, one, two)

	// One is stopped in order, and started with another setting: each says so.
	_ = two.cmd.Process.Signal(os.Interrupt)
	<-two.ended
	r.told(one, "\nhelper, 1 live replica\n", "\n  stopped    ")
	b, err = os.ReadFile(filepath.Join(r.dir, two.config))
	r.ok(err)
	r.write(two.config, strings.Replace(string(b), "engine =", "retention = \"100h\"\nengine =", 1))
	r.serve(two, "helper")
	for _, p := range []*process{one, two} {
		r.told(p, "helper: replicas do not agree in retention: 100h0m0s at ", "helper, 2 live replicas\n", "  stopped    ", ", this one: ")
		if out := r.done("why", p.config); !strings.Contains(out, "replicas do not agree in retention") {
			r.Errorf("why says:\n%s", out)
		}
		r.refused("replicas do not agree in retention", "doctor", p.config)
	}
}

// told waits until a process says so in its status: what others are seen to be is some
// seconds old.
func (r *replicas) told(p *process, want ...string) {
	r.Helper()
	for begun := time.Now(); ; time.Sleep(200 * time.Millisecond) { // another process: there is no signal to wait for
		out, missing := r.done("status", p.config), ""
		for _, words := range want {
			if !strings.Contains(out, words) {
				missing = words
			}
		}
		if missing == "" {
			return
		}
		if time.Since(begun) > time.Minute {
			r.Fatalf("%s does not say %q:\n%s", p.config, missing, out)
		}
	}
}

// collect demands that there are so many reports, from the second in which the first one came
// to the one after the last.
func (r *replicas) collect(begun time.Time, total int) {
	r.Helper()
	at := func(x time.Time) string { return x.UTC().Truncate(time.Second).Format(time.RFC3339) }
	out := r.done("collect", "--timeout", "90s", "--from", at(begun), "--to", at(time.Now().Add(2*time.Second)), deploy.CollectorFile)
	if !strings.Contains(out, number(total)+" reports from") {
		r.Errorf("%d reports were sent, and collected:\n%s", total, out)
	}
}

// know demands that processes know of so many reports, all of them aggregated.
func (r *replicas) know(total int, all ...*process) {
	r.Helper()
	for _, p := range all {
		if out := r.done("status", p.config); !strings.Contains(out, number(total)+" acknowledged = "+number(total)+" aggregated") {
			r.Errorf("%s says:\n%s", p.config, out)
		}
	}
}

// takeover is how soon another process has what a process had claimed that was killed: once
// the lease of 20 seconds has ended, and well before a patient leader gives a helper up.
const takeover = 50 * time.Second

// TestReplicasOfBoth: two processes serve a leader, on a database and an object storage, and
// two its helper. One leader is killed with a job that the helper has not answered, and again
// under load: no report that was acknowledged is lost, none counts twice, and the other one
// takes the job over.
func TestReplicasOfBoth(t *testing.T) {
	r := newReplicas(t, true, "directory")
	one, two := &r.leader.two[0], &r.leader.two[1]
	for _, s := range []*side{r.leader, r.helper} {
		r.refused("starling migrate", "serve", s.role, s.two[0].config)
		r.done("migrate", s.two[0].config)
		r.done("key", "wrapping", "--out", "secrets/wrapping."+s.role)
		r.done("check", s.two[1].config)
	}
	r.serve(&r.helper.two[0], "helper")
	r.serve(&r.helper.two[1], "helper")
	r.serve(one, "leader")

	begun := time.Now()
	r.send(40)
	for !strings.Contains(r.done("status", one.config), "40 acknowledged = 40 aggregated") {
	}
	g := r.helper.close()
	r.send(40)
	<-g.kept
	r.serve(two, "leader")
	_ = one.cmd.Process.Kill()
	killed := time.Now()
	r.helper.open()
	for !strings.Contains(r.done("status", two.config), "80 acknowledged = 80 aggregated") {
		if time.Since(killed) > takeover {
			t.Fatalf("the job of a leader that was killed waits for %v:\n%s", time.Since(killed), r.done("status", two.config))
		}
	}
	t.Logf("taken over after %v", time.Since(killed).Round(time.Millisecond))
	r.serve(one, "leader")

	const senders, times, each = 3, 4, 2000
	var all sync.WaitGroup
	first := make(chan struct{}, senders*times)
	for range senders {
		all.Go(func() {
			for range times {
				if out, err := r.command("send", "--any-keys", "--max-epsilon", "0", "--simulate", fmt.Sprint(each), deploy.RecipeFile); err != nil ||
					!strings.Contains(out, number(each)+" acknowledged") {
					t.Errorf("sent: %v\n%s", err, out)
				}
				first <- struct{}{}
			}
		})
	}
	<-first
	_ = one.cmd.Process.Kill()
	all.Wait()
	if t.Failed() {
		return
	}
	total := 80 + senders*times*each
	r.collect(begun, total)
	r.serve(one, "leader")
	r.know(total, one, two, &r.helper.two[0], &r.helper.two[1])
	if r.uploads.Load() == 0 {
		t.Error("all uploads were small")
	}
	for _, p := range []*process{one, two} {
		_ = p.cmd.Process.Signal(os.Interrupt)
		<-p.ended
	}
	r.done("doctor", two.config) // in whose database all holds
}

// TestReplicasTasks: a task is added at one process of each side and its requests come to the
// other; then the leader's first one closes it, and its second one, to which all reports come,
// refuses them. None starts anew, none that was acknowledged is lost, and the first task goes on.
func TestReplicasTasks(t *testing.T) {
	r := newReplicas(t, true, "directory")
	for _, s := range []*side{r.leader, r.helper} {
		r.done("migrate", s.two[0].config)
		r.done("key", "wrapping", "--out", "secrets/wrapping."+s.role)
		s.only.Store(&s.two[1])
	}
	for _, s := range []*side{r.helper, r.leader} {
		r.serve(&s.two[0], s.role)
		r.serve(&s.two[1], s.role)
	}
	begun := time.Now()
	r.send(20)

	const again = "again.starling"
	r.done("recipe", "again", deploy.RecipeFile, again)
	add := []string{"task", "add", "--recipe", again, "--verify-key", "1=secrets/verify.key", "--peer-token", "secrets/peer.token",
		"--collector-hpke", "collector.hpke"}
	r.done(append(add, r.helper.two[0].config)...)
	out := r.done(append(add, "--collector-token", "secrets/collector.token", "--json", r.leader.two[0].config)...)
	_, id, _ := strings.Cut(out, `"task": "`)
	id, _, found := strings.Cut(id, `"`)
	if !found {
		t.Fatalf("added:\n%s", out)
	}
	// upload says whether a report of the new task was acknowledged.
	taken := 0
	upload := func() bool {
		t.Helper()
		out, _ := r.command("send", "--any-keys", "--max-epsilon", "0", again, r.answer)
		ok := strings.Contains(out, "1 acknowledged")
		if ok {
			taken++
		}
		return ok
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(takeover); !is(); {
			if time.Now().After(end) {
				t.Fatalf("%s: not after %v", what, takeover)
			}
		}
	}
	until("the task is taken where it was not added", upload)
	for taken < 15 {
		if !upload() {
			t.Fatalf("a report was refused after %d", taken)
		}
	}
	r.done("task", "close", "--task", id, "--reason", "the office withdraws", r.leader.two[0].config)
	until("the leader's other process refuses", func() bool { return !upload() })
	for _, s := range []*side{r.leader, r.helper} { // the helper is told of it
		for i := range s.two {
			until(s.two[i].config+" lists it as closed", func() bool {
				out := r.done("task", "list", s.two[i].config)
				return strings.Contains(out, "the office withdraws\n") && strings.Count(out, "  live\n") == 1
			})
		}
	}
	for range 3 {
		if upload() {
			t.Error("a report of a closed task was acknowledged")
		}
	}
	all := fmt.Sprintf("%[1]d acknowledged = %[1]d aggregated", taken)
	for i := range r.leader.two {
		until("all that were acknowledged are verified", func() bool { return strings.Contains(r.done("status", r.leader.two[i].config), all) })
	}
	r.send(20)
	r.collect(begun, 40)

	// The first task is closed and given up while its reports wait: at one process of the leader,
	// and what the helper was asked about, maybe by the other, is finished.
	out = r.done("task", "list", "--json", r.leader.two[0].config)
	first, _, _ := strings.Cut(strings.Replace(out, id, "", 1), `",`)
	_, first, _ = strings.Cut(first, `"task": "`)
	g := r.helper.close()
	r.send(10)
	<-g.kept
	r.send(10)
	var given status.Closed
	out = r.done("task", "close", "--task", first, "--reason", "asked by mistake", "--drop", "--json", r.leader.two[0].config)
	if err := json.Unmarshal([]byte(out), &given); err != nil || given.Dropped+given.Waiting != 20 || given.Waiting == 0 {
		t.Errorf("given up: %v\n%s", err, out)
	}
	r.helper.open()
	all = fmt.Sprintf("60 acknowledged = %d aggregated", 40+given.Waiting)
	for i := range r.leader.two {
		until("what was sent is verified, and no more", func() bool { return strings.Contains(r.done("status", r.leader.two[i].config), all) })
	}
	for i := range r.leader.two {
		out := r.done("doctor", r.leader.two[i].config)
		for _, want := range []string{": database: all invariants hold, as of one moment\n", ": rights: the role that serves can neither", ": marks: the database is as far",
			": replicas: 2 live ones, of 2 processes"} {
			if !strings.Contains(out, want) {
				t.Errorf("doctor does not say %q:\n%s", want, out)
			}
		}
	}
	// Beside one that runs, from the configuration of one that does not; with more rights
	// than are needed, and a place of marks that is another.
	two := &r.helper.two[1]
	_ = two.cmd.Process.Signal(os.Interrupt)
	<-two.ended
	if out := r.done("doctor", two.config); !strings.Contains(out, ": replicas: 1 live one, of 2 processes") {
		t.Errorf("doctor says:\n%s", out)
	}
	r.refused("pg_dump --format=directory --schema="+r.helper.schema.Name+" --file=copy ", "backup", "--out", "copy", two.config)
	r.helper.schema.Exec(t, "GRANT DELETE ON "+r.helper.schema.Name+".release TO "+r.helper.schema.Role)
	r.refused("FAULT helper-1.toml: rights: the role in database.file has rights", "doctor", two.config)
	b, err := os.ReadFile(filepath.Join(r.dir, two.config))
	r.ok(err)
	r.write(two.config, strings.Replace(string(b), `"marks.helper"`, `"elsewhere"`, 1))
	r.refused("FAULT helper-1.toml: marks: store: marks lost", "doctor", two.config)
}

// number writes a number below a million as the commands do.
func number(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}
