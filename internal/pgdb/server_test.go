//go:build postgres

package pgdb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

var statements = fstest.MapFS{"a.sql": {Data: []byte(`
-- name: put
INSERT INTO thing (name) VALUES ($1)

-- name: things
SELECT name FROM thing ORDER BY name

-- name: count
SELECT count(*) FROM thing WHERE name = $1

-- name: lock
SELECT 1 FROM thing WHERE name = $1 FOR UPDATE

-- name: drop
DELETE FROM thing WHERE name = $1

-- name: session
SELECT (SELECT count(*) FROM pg_prepared_statements), current_setting('search_path') LIKE 'test%', current_setting('synchronous_commit'),
  current_setting('transaction_isolation')

-- name: types
SELECT $1::bigint, $2::bytea, $3::text, $4::boolean, $5::bigint, cardinality($6::bytea[]) + ($7::bigint[])[1]

-- name: kill
SELECT pg_terminate_backend(pg_backend_pid())
`)}}

func options(s *pgtest.Schema) pgdb.Options {
	return pgdb.Options{
		Connection: s.Owner, Schema: s.Name, Service: s.Role, Migrations: one, Statements: statements, Pause: time.Millisecond, Volatile: true,
	}
}

func open(t testing.TB, opt pgdb.Options) *pgdb.DB {
	t.Helper()
	db, err := pgdb.Open(t.Context(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return db
}

// opened is a schema of the test, as its replicas see it.
func opened(t testing.TB, change func(o *pgdb.Options)) *pgdb.DB {
	t.Helper()
	s := pgtest.New(t)
	open(t, options(s))
	opt := options(s)
	opt.Connection = s.Service
	if change != nil {
		change(&opt)
	}
	return open(t, opt)
}

func put(t testing.TB, db *pgdb.DB, name string) error {
	t.Helper()
	return db.Update(t.Context(), "put", func(tx *pgdb.Tx) error {
		n, err := tx.Exec("put", name)
		if err == nil && n != 1 {
			err = fmt.Errorf("%d rows", n)
		}
		return err
	})
}

func count(t testing.TB, db *pgdb.DB, name string) (n int) {
	t.Helper()
	err := db.View(t.Context(), "count", func(tx *pgdb.Tx) error {
		_, err := tx.One("count", []any{name}, &n)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTransactions: what returns nil is there, what fails is not, and each error has its
// name.
func TestTransactions(t *testing.T) {
	db := opened(t, nil)
	if err := put(t, db, "a"); err != nil {
		t.Fatal(err)
	}
	if err := put(t, db, "a"); !errors.Is(err, pgdb.ErrConstraint) || pgdb.Violated(err) != "thing_pkey" {
		t.Fatalf("twice: %v, constraint %q", err, pgdb.Violated(err))
	}
	ours := errors.New("ours")
	err := db.Update(t.Context(), "fails", func(tx *pgdb.Tx) error {
		if _, err := tx.Exec("put", "b"); err != nil {
			return err
		}
		return ours
	})
	if !errors.Is(err, ours) || pgdb.Violated(err) != "" || count(t, db, "b") != 0 {
		t.Fatalf("%v, %d", err, count(t, db, "b"))
	}
	err = db.Update(t.Context(), "silent", func(tx *pgdb.Tx) error {
		_, _ = tx.Exec("put", "a") // and nothing said of it
		return nil
	})
	if !errors.Is(err, pgdb.ErrConstraint) {
		t.Fatalf("a failure that nobody spoke of: %v", err)
	}
	err = db.View(t.Context(), "writes", func(tx *pgdb.Tx) error { _, err := tx.Exec("put", "c"); return err })
	if !errors.Is(err, pgdb.ErrReadOnly) {
		t.Fatalf("a view that writes: %v", err)
	}
	err = db.Update(t.Context(), "denied", func(tx *pgdb.Tx) error { _, err := tx.Exec("drop", "a"); return err })
	if !errors.Is(err, pgdb.ErrDenied) {
		t.Fatalf("without a right: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err = db.Update(ctx, "cancelled", func(tx *pgdb.Tx) error {
		cancel()
		_, err := tx.Exec("put", "d")
		return err
	})
	if !errors.Is(err, context.Canceled) || count(t, db, "d") != 0 {
		t.Fatalf("cancelled: %v", err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = db.Update(t.Context(), "panics", func(tx *pgdb.Tx) error {
			_, _ = tx.Exec("put", "e")
			panic("ours")
		})
	}()
	if count(t, db, "e") != 0 {
		t.Fatal("a transaction that panicked took place")
	}
}

func TestTypes(t *testing.T) {
	db := opened(t, nil)
	err := db.View(t.Context(), "types", func(tx *pgdb.Tx) error {
		var n, null int64
		var b []byte
		var s string
		var yes bool
		var sum uint64
		found, err := tx.One("types", []any{uint64(1<<63 - 1), []byte{}, "x", true, nil, [][]byte{{1}, nil}, []int64{7, 8}}, &n, &b, &s, &yes, &null, &sum)
		if err != nil || !found || n != 1<<63-1 || b == nil || len(b) != 0 || s != "x" || !yes || null != 0 || sum != 9 {
			t.Errorf("%v %v %d %v %q %v %d %d", err, found, n, b, s, yes, null, sum)
		}
		if _, err := tx.One("types", []any{uint64(1 << 63)}, &n); !errors.Is(err, pgdb.ErrConstraint) {
			t.Errorf("64 bits: %v", err)
		}
		_, err = tx.One("types", []any{-1, []byte(nil), "x", true, nil, [][]byte{}, []int64{-1}}, &n, &b, &s, &yes, &null, &sum)
		if b != nil || err == nil || !strings.Contains(err.Error(), "negative") {
			t.Errorf("%v, %v", b, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestNothingOfASession: transactions leave no statement and no setting behind, and have
// theirs whatever the role's are.
func TestNothingOfASession(t *testing.T) {
	var sent recorder
	db := opened(t, func(o *pgdb.Options) { o.Connections, o.Dial = 2, sent.dial })
	session := func(run func(context.Context, string, func(*pgdb.Tx) error) error, isolation, durable string) {
		t.Helper()
		err := run(t.Context(), "session", func(tx *pgdb.Tx) error {
			var prepared int
			var ours bool
			var commit, level string
			_, err := tx.One("session", nil, &prepared, &ours, &commit, &level)
			if err != nil || prepared != 0 || !ours || commit != durable || level != isolation {
				t.Errorf("%v: %d statements, own path %v, synchronous_commit %s, isolation %s", err, prepared, ours, commit, level)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 4 {
		session(db.Update, "read committed", "on")
		session(db.View, "repeatable read", "off") // the server's default
	}
	sent.Lock()
	defer sent.Unlock()
	if all, local := bytes.Count(sent.sql, []byte("SET ")), bytes.Count(sent.sql, []byte("SET LOCAL ")); all != local || all < 16 {
		t.Errorf("%d settings, %d of them local", all, local)
	}
}

// TestPass: a transaction whose effect may go with the power asks for no disk, and any other
// one does.
func TestPass(t *testing.T) {
	var sent recorder
	db := opened(t, func(o *pgdb.Options) { o.Dial = sent.dial })
	for what, run := range map[string]func(context.Context, string, func(*pgdb.Tx) error) error{"off": db.Pass, "on": db.Update} {
		sent.Lock()
		sent.sql = nil
		sent.Unlock()
		if err := run(t.Context(), what, func(tx *pgdb.Tx) error { _, err := tx.Exec("put", what); return err }); err != nil {
			t.Fatal(err)
		}
		sent.Lock()
		if got := string(sent.sql); !strings.Contains(got, "SET LOCAL synchronous_commit = "+what+";") {
			t.Errorf("sent %q, want synchronous_commit %s", got, what)
		}
		sent.Unlock()
		if count(t, db, what) != 1 {
			t.Errorf("%s did not take place", what)
		}
	}
}

// TestViewsInUpdates: as many updates as there may be, each of which looks at something by a
// view, do not wait for each other's connections.
func TestViewsInUpdates(t *testing.T) {
	db := opened(t, func(o *pgdb.Options) { o.Connections = 3 })
	var wg sync.WaitGroup
	for n := range 12 {
		wg.Go(func() {
			err := db.Update(t.Context(), "looks", func(tx *pgdb.Tx) error {
				if _, err := tx.Exec("put", fmt.Sprint(n)); err != nil {
					return err
				}
				return db.View(t.Context(), "things", func(tx *pgdb.Tx) error {
					return tx.Each("things", nil, func(pgdb.Row) error { return nil })
				})
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// recorder keeps what is sent to the server.
type recorder struct {
	sync.Mutex
	sql []byte
}

func (r *recorder) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	return &recorded{c, r}, err
}

type recorded struct {
	net.Conn
	to *recorder
}

func (c *recorded) Write(b []byte) (int, error) {
	c.to.Lock()
	c.to.sql = append(c.to.sql, b...)
	c.to.Unlock()
	return c.Conn.Write(b)
}

// TestFoundedAtOnce: processes that open a new schema at the same time all find it whole.
func TestFoundedAtOnce(t *testing.T) {
	s := pgtest.New(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			db, err := pgdb.Open(t.Context(), options(s))
			if err != nil {
				t.Error(err)
				return
			}
			db.Close()
		})
	}
	wg.Wait()
	opt := options(s)
	opt.Connection = s.Service
	if err := put(t, open(t, opt), "a"); err != nil {
		t.Fatal(err)
	}
}

// TestVersions: two versions of a program work side by side between the migration that adds
// and the one that takes away, and not beyond.
func TestVersions(t *testing.T) {
	two := fstest.MapFS{
		"0001_start.sql": one["0001_start.sql"],
		"0002_add.sql":   {Data: []byte("-- least: 1\nALTER TABLE thing ADD COLUMN more text;\n")},
	}
	three := fstest.MapFS{
		"0001_start.sql": one["0001_start.sql"], "0002_add.sql": two["0002_add.sql"],
		"0003_take.sql": {Data: []byte("-- least: 2\nALTER TABLE thing RENAME COLUMN name TO called;\n")},
	}
	s := pgtest.New(t)
	at := func(m fs.FS, needs int) (*pgdb.DB, error) {
		opt := options(s)
		opt.Migrations, opt.Needs = m, needs
		db, err := pgdb.Open(t.Context(), opt)
		if err == nil {
			t.Cleanup(db.Close)
		}
		return db, err
	}
	first, err := at(one, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := at(two, 0); err != nil { // adds
		t.Fatal(err)
	}
	if _, err := at(one, 0); err != nil {
		t.Fatalf("the old version beside the new one: %v", err)
	}
	if err := put(t, first, "old"); err != nil {
		t.Fatal(err)
	}
	if _, err := at(three, 3); !errors.Is(err, pgdb.ErrTooOld) {
		t.Fatalf("needs what was not finished: %v", err)
	}
	third, err := at(three, 2) // takes away, but not yet
	if err != nil {
		t.Fatal(err)
	}
	if err := put(t, first, "still"); err != nil {
		t.Fatalf("the old version before the end: %v", err)
	}
	lives := errors.New("the old version lives")
	if err := third.Finish(t.Context(), func(_ *pgdb.Tx, least int) error {
		if least != 2 {
			t.Errorf("asked for programs before %d", least)
		}
		return lives
	}); !errors.Is(err, lives) {
		t.Fatalf("finished: %v", err)
	}
	if err := put(t, first, "and still"); err != nil {
		t.Fatalf("the old version after an end that was refused: %v", err)
	}
	if err := third.Finish(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := first.Update(t.Context(), "any", func(*pgdb.Tx) error { return nil }); !errors.Is(err, pgdb.ErrTooNew) {
		t.Fatalf("the old version runs on after it: %v", err)
	}
	if _, err := at(one, 0); !errors.Is(err, pgdb.ErrTooNew) {
		t.Fatalf("the old version after it: %v", err)
	}
	if _, err := at(two, 0); err != nil {
		t.Fatalf("the version that the last migration is made for: %v", err)
	}
	other := fstest.MapFS{"0001_start.sql": {Data: []byte("-- least: 1\nSELECT 1;\n")}, "0002_add.sql": two["0002_add.sql"]}
	if _, err := at(other, 0); !errors.Is(err, pgdb.ErrForeign) {
		t.Fatalf("another migration of that number: %v", err)
	}
}

// TestHalfMigration: a migration that fails leaves nothing.
func TestHalfMigration(t *testing.T) {
	s := pgtest.New(t)
	opt := options(s)
	opt.Migrations = fstest.MapFS{"0001_start.sql": {Data: []byte("-- least: 1\nCREATE TABLE thing (name text PRIMARY KEY);\nSELECT 1 / 0;\n")}}
	if _, err := pgdb.Open(t.Context(), opt); err == nil {
		t.Fatal("opened")
	}
	open(t, options(s)) // CREATE TABLE again
}

func TestVolatile(t *testing.T) {
	opt := options(pgtest.New(t))
	opt.Volatile = false
	if _, err := pgdb.Open(t.Context(), opt); !errors.Is(err, pgdb.ErrUnsafe) {
		t.Fatalf("a server without fsync: %v", err)
	}
}

// TestDeadlock: two transactions that wait for each other both take place.
func TestDeadlock(t *testing.T) {
	s := pgtest.New(t)
	db := open(t, options(s)) // the owner: a lock takes the right to update
	for _, name := range []string{"a", "b"} {
		if err := put(t, db, name); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	var tries atomic.Int64
	meet := make(chan struct{}, 2)
	both := sync.OnceFunc(func() { <-meet; <-meet; close(meet) })
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		wg.Go(func() {
			err := db.Update(t.Context(), "locks", func(tx *pgdb.Tx) error {
				if _, err := tx.Exec("lock", order[0]); err != nil {
					return err
				}
				if tries.Add(1) <= 2 {
					meet <- struct{}{}
					both()
				}
				_, err := tx.Exec("lock", order[1])
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if tries.Load() < 3 {
		t.Fatal("nobody had to try again")
	}
}

// TestAway: a server that cannot be reached, or answers with conflicts alone, is an error of
// its own, and once that is over the same handle goes on.
func TestAway(t *testing.T) {
	s := pgtest.New(t)
	var fate atomic.Value
	fate.Store(pgtest.Arrives)
	opt := options(s)
	opt.Connection = pgtest.NewLine(t, s.Owner, func(sql string) pgtest.Fate {
		if f := fate.Load().(pgtest.Fate); f != pgtest.Conflict || strings.HasPrefix(sql, "COMMIT") {
			return f
		}
		return pgtest.Arrives
	}, nil).Connection
	opt.Attempts, opt.Pause = 3, time.Microsecond
	db := open(t, opt)
	for _, f := range []pgtest.Fate{pgtest.LostBefore, pgtest.Conflict} {
		fate.Store(f)
		if err := put(t, db, "x"); !errors.Is(err, pgdb.ErrAway) || errors.Is(err, pgdb.ErrUnknown) {
			t.Errorf("%q: %v", f, err)
		}
		fate.Store(pgtest.Arrives)
		if err := put(t, db, "after "+string(f)); err != nil {
			t.Errorf("after %q: %v", f, err)
		}
	}
	if err := put(t, db, "x"); err != nil {
		t.Errorf("what was refused has changed something: %v", err)
	}
}

// A fault breaks the connection of the first commit after it is armed.
type fault struct {
	armed atomic.Bool
	kind  string
}

func (f *fault) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	return &faulty{Conn: c, fault: f}, err
}

type faulty struct {
	net.Conn
	fault *fault
}

func (c *faulty) Write(b []byte) (int, error) {
	if !bytes.Contains(b, []byte("COMMIT\x00")) || !c.fault.armed.CompareAndSwap(true, false) {
		return c.Conn.Write(b)
	}
	if c.fault.kind == "lost" { // it never reaches the server
		_ = c.Conn.Close()
		return 0, net.ErrClosed
	}
	if _, err := c.Conn.Write(b); err != nil {
		return 0, err
	}
	if c.fault.kind == "unheard" { // it took place, and the answer is lost
		if _, err := c.Conn.Read(make([]byte, 512)); err != nil {
			return 0, err
		}
	} // else it is under way when its outcome is looked for
	_ = c.Conn.Close()
	return len(b), nil
}

// TestOutcomes: whatever becomes of a commit and its answer, a transaction takes place
// once, and its caller hears of it.
func TestOutcomes(t *testing.T) {
	for _, kind := range []string{"lost", "unheard", "under way"} {
		t.Run(kind, func(t *testing.T) {
			f := &fault{kind: kind}
			db := opened(t, func(o *pgdb.Options) { o.Dial = f.dial })
			for i := range 20 {
				name := fmt.Sprint(i)
				f.armed.Store(true)
				tries := 0
				err := db.Update(t.Context(), "put", func(tx *pgdb.Tx) error {
					tries++
					_, err := tx.Exec("put", name)
					return err
				})
				if err != nil {
					t.Fatalf("attempt %d: %v", tries, err)
				}
				if f.armed.Load() {
					t.Fatal("nothing was broken")
				}
				if n := count(t, db, name); n != 1 {
					t.Fatalf("it took place %d times", n)
				}
				if want := map[string]int{"lost": 2, "unheard": 1}[kind]; want != 0 && tries != want {
					t.Fatalf("%d attempts, want %d", tries, want)
				}
			}
		})
	}
}

// TestFailpoints: a failure before the commit leaves nothing, and one after it is found to
// have taken place.
func TestFailpoints(t *testing.T) {
	fail := new(disk.Failpoints)
	db := opened(t, func(o *pgdb.Options) { o.Failpoints, o.Prefix = fail, "x" })
	broken := errors.New("broken")
	for place, want := range map[string]error{"before-commit": broken, "after-commit": nil} {
		fail.Arm("x.put."+place, 0, func() error { return broken })
		if err := put(t, db, place); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", place, err, want)
		}
		fail.Disarm("x.put." + place)
		if n := count(t, db, place); n != map[bool]int{true: 1}[want == nil] {
			t.Errorf("%s: %d rows", place, n)
		}
	}
}

// TestKilledConnections: whoever loses a connection inside a transaction begins it again,
// also where the function that noticed it says so in words of its own.
func TestKilledConnections(t *testing.T) {
	db := opened(t, nil)
	for _, run := range []func(context.Context, string, func(*pgdb.Tx) error) error{db.Update, db.View} {
		for _, said := range []func(error) error{
			func(err error) error { return err }, func(error) error { return errors.New("it did not work") },
		} {
			tries := 0
			err := run(t.Context(), "killed", func(tx *pgdb.Tx) error {
				if tries++; tries > 1 {
					return nil
				}
				_, err := tx.Exec("kill")
				return said(err)
			})
			if err != nil || tries != 2 {
				t.Errorf("%d attempts, %v", tries, err)
			}
		}
	}
}

// TestForgetOutcomes: tokens are kept for an hour at least, whatever is asked.
func TestForgetOutcomes(t *testing.T) {
	clock := &clock{disk.SystemClock, time.Unix(1_700_000_000, 0)}
	db := opened(t, func(o *pgdb.Options) { o.Clock = clock })
	for _, name := range []string{"a", "b"} {
		if err := put(t, db, name); err != nil {
			t.Fatal(err)
		}
	}
	forget := func(want int64) {
		t.Helper()
		if n, err := db.ForgetOutcomes(t.Context(), clock.now.Add(time.Hour)); err != nil || n != want {
			t.Fatalf("forgot %d, want %d; %v", n, want, err)
		}
	}
	forget(0)
	clock.now = clock.now.Add(time.Hour + time.Millisecond)
	forget(2)
}

type clock struct {
	disk.Clock
	now time.Time
}

func (c *clock) Now() time.Time { return c.now }

// TestCrash: a server that crashes under load has each transaction whose Update returned
// nil, once, and its clients go on by themselves.
func TestCrash(t *testing.T) {
	server := pgtest.NewServer(t)
	opt := options(server.Schema(t))
	opt.Volatile, opt.Attempts = false, 100
	db := open(t, opt)
	var wg sync.WaitGroup
	var puts atomic.Int64
	enough, crashed := make(chan struct{}), make(chan struct{})
	for worker := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprint(worker, " ", i)
				if err := put(t, db, name); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				if puts.Add(1) == 20 {
					close(enough)
				}
				select {
				case <-crashed: // and one more since
					return
				default:
				}
			}
		})
	}
	<-enough
	server.Crash(t, func() {})
	close(crashed)
	wg.Wait()
	n := int64(0)
	err := db.View(t.Context(), "things", func(tx *pgdb.Tx) error {
		n = 0
		return tx.Each("things", nil, func(r pgdb.Row) error {
			n++
			var name string
			return r.Scan(&name)
		})
	})
	if err != nil || n != puts.Load() {
		t.Fatalf("%d rows of %d that were acknowledged, %v", n, puts.Load(), err)
	}
}

// TestFailover: where the server has a synchronous standby, each transaction whose Update
// returned nil is there once when the standby takes over, and the clients go on by
// themselves. While the standby hears nothing no Update returns.
func TestFailover(t *testing.T) {
	server := pgtest.NewServer(t)
	s := server.Schema(t)
	opt := options(s)
	opt.Volatile = false
	open(t, opt)
	standby := server.Standby(t)
	opt.Connection, opt.Attempts = s.Either(standby), 200
	db := open(t, opt)
	const workers = 4
	var wg sync.WaitGroup
	var puts atomic.Int64
	over := make(chan struct{})
	for worker := range workers {
		wg.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprint(worker, " ", i)
				if err := put(t, db, name); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				puts.Add(1)
				select {
				case <-over: // and one more since
					return
				default:
				}
			}
		})
	}
	for puts.Load() < 20 {
		server.Ask(t, "SELECT 1") // a while
	}
	sender := server.Ask(t, "SELECT pid FROM pg_stat_replication")
	if err := syscall.Kill(sender, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := puts.Load()
	for server.Ask(t, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'") < workers {
		if puts.Load() > stopped+10*workers {
			t.Error("transactions are over that the standby knows nothing of")
			break
		}
	}
	server.FailOver(t, standby)
	close(over)
	wg.Wait()
	var n int64
	err := db.View(t.Context(), "things", func(tx *pgdb.Tx) error {
		n = 0
		return tx.Each("things", nil, func(r pgdb.Row) error {
			n++
			var name string
			return r.Scan(&name)
		})
	})
	if err != nil || n != puts.Load() {
		t.Fatalf("%d rows of %d that were acknowledged, %v", n, puts.Load(), err)
	}
}

// TestPooler: behind a pooler in transaction mode, with fewer connections than clients, all
// goes as without.
func TestPooler(t *testing.T) {
	s := pgtest.New(t)
	open(t, options(s))
	opt := options(s)
	opt.Connection, opt.Connections = pgtest.Pooler(t, s.Service, 2), 6
	db := open(t, opt)
	var wg sync.WaitGroup
	for worker := range 6 {
		wg.Go(func() {
			for i := range 8 {
				name := fmt.Sprint(worker, " ", i)
				if err := put(t, db, name); err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				var n int
				err := db.View(t.Context(), "count", func(tx *pgdb.Tx) error {
					_, err := tx.One("count", []any{name}, &n)
					return err
				})
				if err != nil || n != 1 {
					t.Errorf("%s: %d rows, %v", name, n, err)
				}
			}
		})
	}
	wg.Wait()
	if err := put(t, db, "0 0"); !errors.Is(err, pgdb.ErrConstraint) {
		t.Errorf("twice: %v", err)
	}
}
