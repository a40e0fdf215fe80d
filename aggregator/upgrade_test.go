//go:build postgres

package aggregator_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

// newer builds the version of starling after this one: the same, with one migration more that
// adds, which it needs, and one that takes away what this version leaves out. It writes
// something that this version does not write.
func (r *replicas) newer() (bin string, last int) {
	r.Helper()
	const engine = "internal/store/postgres"
	names, err := filepath.Glob(engine + "/migrations/*.sql")
	r.ok(err)
	last = len(names)
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(engine, name))
		r.ok(err)
		return string(b)
	}
	b, err := os.ReadFile(names[last-1])
	r.ok(err)
	least, _, _ := strings.Cut(strings.TrimPrefix(string(b), "-- least: "), "\n")

	dir, replace := r.TempDir(), make(map[string]string)
	put := func(name, text string) {
		path, err := filepath.Abs(filepath.Join(engine, name))
		r.ok(err)
		replace[path] = filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		r.ok(os.WriteFile(replace[path], []byte(text), 0o600))
	}
	changed := func(name, from, to string) {
		text := regexp.MustCompile(from).ReplaceAllString(read(name), to)
		if text == read(name) {
			r.Fatalf("%s has no %s", name, from)
		}
		put(name, text)
	}
	put(fmt.Sprintf("migrations/%04d_add.sql", last+1), "-- least: "+least+"\nALTER TABLE part ADD COLUMN origin text;\nCREATE INDEX part_origin ON part (origin);\n")
	put(fmt.Sprintf("migrations/%04d_take.sql", last+2), fmt.Sprintf("-- least: %d\nUPDATE part SET origin = 'before' WHERE origin IS NULL;\n"+
		"ALTER TABLE part ALTER COLUMN origin SET NOT NULL;\n", last+2))
	changed("statements/commit.sql", `(?s)(-- name: put-part\nINSERT INTO part \([^)]*)\) VALUES \(([^)]*)\)`, `$1, origin) VALUES ($2, 'newer')`)
	changed("postgres.go", `opt.Needs = \d+`, "opt.Needs = "+strconv.Itoa(last+1))
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	r.ok(err)
	file := filepath.Join(dir, "overlay.json")
	r.ok(os.WriteFile(file, overlay, 0o600))
	return r.build("starling-newer", "-overlay", file), last
}

// upgrade is a stream on two versions.
type upgrade struct {
	*stream
	older, newer string // binaries
}

// ask asks a side's database for a number, as the role that owns the tables.
func (u *upgrade) ask(s *side, sql string, args ...any) (n int64) {
	u.Helper()
	c, err := pgx.Connect(u.Context(), s.schema.Owner+" search_path="+s.schema.Name)
	u.ok(err)
	defer c.Close(u.Context())
	u.ok(c.QueryRow(u.Context(), sql, args...).Scan(&n))
	return n
}

// leave ends a process in order.
func (u *upgrade) leave(p *process) {
	u.Helper()
	u.ok(p.cmd.Process.Signal(syscall.SIGTERM))
	<-p.ended
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		u.Fatalf("%s ended with exit code %d:\n%s", p.config, code, tail(p.log.String()))
	}
}

// replace has a process of a version in the place of another one.
func (u *upgrade) replace(s *side, i int, bin string) {
	u.Helper()
	u.leave(&s.two[i])
	u.serveBy(bin, &s.two[i], s.role)
}

// migrate demands that a version migrates.
func (u *upgrade) migrate(bin, want string, args ...string) {
	u.Helper()
	if out, err := u.commandOf(bin, append([]string{"migrate"}, args...)...); err != nil || !strings.Contains(out, want) {
		u.Fatalf("migrate %s: %v, want %q in\n%s", strings.Join(args, " "), err, want, out)
	}
}

// work waits until both versions have committed something of reports, on both sides.
func (u *upgrade) work() {
	u.Helper()
	for _, s := range []*side{u.helper, u.leader} {
		first := u.ask(s, "SELECT coalesce(max(id), 0) FROM part")
		for _, origin := range []string{"origin IS NULL", "origin = 'newer'"} {
			end := time.Now().Add(time.Minute)
			for n := 1; u.ask(s, "SELECT count(*) FROM part WHERE id > $1 AND "+origin, first) == 0; n++ {
				if time.Now().After(end) {
					u.Fatalf("the %s of %s does not work beside the other one", s.role, origin)
				}
				if n%20 == 0 { // leaders that keep their connections may all have the same helper
					u.helper.part()
				}
				time.Sleep(20 * time.Millisecond) // other processes: there is no signal to wait for
			}
		}
	}
}

// TestReplicasUpgrade: leader and helper, two processes each, go from this version to the next
// one and halfway back while reports come, over the three states of a migration; the helper
// through a pooler. Each report counts once, no upload is refused for good, and what does not
// fit is told, with the command to type.
func TestReplicasUpgrade(t *testing.T) {
	const connections = 5
	r := &replicas{T: t, marks: "directory", server: pgtest.NewServer(t)}
	r.serving = func(role string, s *pgtest.Schema) (string, string) {
		if role == "leader" {
			return s.Service, ""
		}
		// Fewer than both may ask for, and more than both may write through.
		return pgtest.Pooler(t, s.Service, 2*(connections-1)+1), fmt.Sprintf("connections = %d\n", connections)
	}
	u := &upgrade{stream: streamed(t, r), older: r.bin}
	newer, last := u.stream.newer()
	u.newer = newer
	leader, helper := u.leader, u.helper
	both := []*side{helper, leader}
	for _, s := range both {
		u.migrate(u.older, fmt.Sprintf("version %d, was 0", last), s.two[0].config)
		u.done("key", "wrapping", "--out", "secrets/wrapping."+s.role)
		for i := range s.two {
			u.serve(&s.two[i], s.role)
		}
	}
	u.start()

	u.during("before, N and N: rolling restart", func() {
		for _, s := range both {
			u.replace(s, 0, u.older)
			u.replace(s, 1, u.older)
		}
	})
	u.during("before, N and N: N+1 does not start in the place of one, and N does again", func() {
		for _, s := range both {
			p := &s.two[0]
			u.leave(p)
			u.refusedBy(u.newer, "starling migrate "+p.config, "serve", s.role, p.config)
			u.serveBy(u.older, p, s.role)
		}
	})
	u.during("expanded, N and N: migrate", func() {
		for _, s := range both {
			u.migrate(u.newer, fmt.Sprintf("version %d, was %d", last+1, last), s.two[0].config)
		}
	})
	u.during("expanded, N and N+1: helper first, then leader", func() {
		u.replace(helper, 0, u.newer)
		u.replace(leader, 1, u.newer)
		u.work()
	})
	u.during("expanded, N+1 and N: N starts beside N+1; --finish is refused", func() {
		u.replace(helper, 1, u.older)
		u.replace(leader, 0, u.older)
		for _, s := range both {
			u.refusedBy(u.newer, "starling migrate --finish "+s.two[0].config, "migrate", "--finish", s.two[0].config)
		}
		u.migrate(u.older, fmt.Sprintf("version %d", last+1), leader.two[0].config)
		u.work()
	})
	u.during("expanded, N and N: back", func() {
		u.replace(leader, 1, u.older)
		u.replace(helper, 0, u.older)
	})
	var stopped time.Time
	cut := &leader.two[0]
	u.during("expanded, N+1 and N+1: on, leader first, but for one leader that is cut off", func() {
		u.replace(leader, 1, u.newer)
		leader.only.Store(&leader.two[1])
		u.ok(leader.two[0].cmd.Process.Signal(syscall.SIGSTOP))
		stopped = time.Now()
		u.replace(helper, 0, u.newer)
		u.replace(helper, 1, u.newer)
	})
	u.during("finished: migrate --finish, once the leader that is cut off is held dead", func() {
		u.migrate(u.newer, fmt.Sprintf("version %d, was %d", last+2, last+1), "--finish", helper.two[0].config)
		u.refusedBy(u.newer, "older programs still run", "migrate", "--finish", cut.config)
		// As its lease does, half a minute after its last word, and as the server has the
		// transactions do that it has begun.
		if n := u.ask(leader, "WITH dead AS (UPDATE replica SET expires = 0 WHERE program = $1 RETURNING 1) SELECT count(*) FROM dead", last); n != 1 {
			t.Fatalf("%d leaders of version %d", n, last)
		}
		u.server.Ask(t, fmt.Sprintf("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%%' AND xact_start < to_timestamp(%d.%09d)",
			stopped.Unix(), stopped.Nanosecond()))
		u.migrate(u.newer, fmt.Sprintf("version %d, was %d", last+2, last+1), "--finish", cut.config)
	})
	u.during("finished: the leader that was cut off ends; N is refused; N+1 starts", func() {
		u.ok(cut.cmd.Process.Signal(syscall.SIGCONT))
		select {
		case <-cut.ended:
		case <-time.After(time.Minute):
			t.Fatal("the leader of the version before goes on")
		}
		if log := cut.log.String(); cut.cmd.ProcessState.ExitCode() == 0 || !strings.Contains(log, "start a newer starling") {
			t.Errorf("the leader of the version before ended with exit code %d and said\n%s", cut.cmd.ProcessState.ExitCode(), tail(log))
		}
		u.leave(&helper.two[0])
		for _, s := range both {
			p := &s.two[0]
			u.refusedBy(u.older, "start a newer starling", "serve", s.role, p.config)
			u.refusedBy(u.older, "start a newer starling", "migrate", p.config)
			u.serveBy(u.newer, p, s.role)
		}
		leader.only.Store(nil)
	})
	u.during("finished, N+1 and N+1: rolling restart", func() {
		for _, s := range both {
			u.replace(s, 0, u.newer)
			u.replace(s, 1, u.newer)
		}
	})
	u.collected()
	u.bin = u.newer
	u.know(u.taken, &leader.two[0], &leader.two[1], &helper.two[0], &helper.two[1])
	u.leave(&leader.two[0])
	u.leave(&leader.two[1])
	u.done("doctor", leader.two[0].config) // in whose database all holds
}
