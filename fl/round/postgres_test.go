//go:build postgres

package round_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/internal/pgdb/pgtest"
	"github.com/starling-agg/starling/internal/pgjournal"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

func init() { engines["postgres"] = func(t *testing.T) site { return newSchema(t) } }

// beat is how often a process that has a journal is seen.
const beat = 5 * time.Second

// schema is a database, and the way that the process which has it now goes there.
type schema struct {
	*pgtest.Schema
	way *way
}

func newSchema(t *testing.T) *schema { return &schema{pgtest.New(t), new(way)} }

func (s *schema) options(fail *disk.Failpoints) pgjournal.Options {
	return pgjournal.Options{Beat: beat, Database: pgdb.Options{
		Connection: s.Owner, Schema: s.Name, Pause: time.Millisecond, Volatile: true, Dial: s.way.dial, Failpoints: fail, Prefix: "database"}}
}

func (s *schema) open(ctx context.Context, fail *disk.Failpoints) (round.Store, error) {
	store, err := pgjournal.Open(ctx, s.options(fail))
	if err != nil {
		return nil, err
	}
	return store, nil
}

func (s *schema) cut()   { s.way.cut() }
func (s *schema) crash() { s.way = new(way) }

// save copies the tables.
func (s *schema) save(t *testing.T) (back func()) {
	s.exec(t, "CREATE TABLE journal_then AS TABLE journal; CREATE TABLE event_then AS TABLE event; CREATE TABLE file_then AS TABLE file")
	return func() {
		s.exec(t, "TRUNCATE journal, event, file; INSERT INTO journal TABLE journal_then; INSERT INTO event TABLE event_then; INSERT INTO file TABLE file_then")
	}
}

// exec does as somebody else who may.
func (s *schema) exec(t *testing.T, sql string) {
	t.Helper()
	c, err := pgx.Connect(context.Background(), s.Owner)
	if err == nil {
		defer c.Close(context.Background())
		_, err = c.PgConn().Exec(context.Background(), "SET search_path = "+s.Name+"; "+sql).ReadAll()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// way is a way to the server, which may be cut.
type way struct {
	mu    sync.Mutex
	gone  bool
	conns []net.Conn
}

var errGone = errors.New("the way is cut")

func (w *way) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gone {
		return nil, errGone
	}
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		w.conns = append(w.conns, c)
	}
	return c, err
}

func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = true
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.conns = nil
}

func (w *way) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gone = false
}

// TestHeld: of two processes at one journal the second does not start while the first lives,
// starts at once where that has ended, and after four beats where it has died.
func TestHeld(t *testing.T) {
	at := newSchema(t)
	synctest.Test(t, func(t *testing.T) {
		other := &schema{at.Schema, new(way)}
		first := replayed(t, at)
		for range 2 {
			begun := time.Now()
			if s, err := other.open(t.Context(), nil); !errors.Is(err, round.ErrHeld) {
				t.Fatalf("%v, %v", s, err)
			}
			if took := time.Since(begun); took > 2*beat {
				t.Errorf("it waited %v", took)
			}
		}
		if err := first.Append(t.Context(), []byte("a")); err != nil {
			t.Fatal(err)
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		second := replayed(t, other, "a")
		if took := time.Since(begun); took > 0 {
			t.Errorf("it waited %v for nobody", took)
		}
		other.cut()
		begun = time.Now()
		third := replayed(t, at, "a")
		if took := time.Since(begun); took < 4*beat {
			t.Errorf("a process is dead after %v", took)
		}
		if err := errors.Join(second.Close(), third.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestTakenForDead: a process that was paused, or cut off, for so long that another took its
// journal writes nothing and removes nothing when it wakes up, also in the middle of a
// transaction, and ends.
func TestTakenForDead(t *testing.T) {
	at := newSchema(t)
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		first := replayed(t, at)
		if err := errors.Join(first.Append(ctx, []byte("a")), first.Put(ctx, "sums/0", []byte("first"))); err != nil {
			t.Fatal(err)
		}
		at.cut()
		other := &schema{at.Schema, new(way)}
		second := replayed(t, other, "a")
		if err := errors.Join(second.Append(ctx, []byte("b")), second.Put(ctx, "sums/0", []byte("second"))); err != nil {
			t.Fatal(err)
		}
		select {
		case <-first.Lost():
			t.Error("it knows what it cannot have heard")
		default:
		}
		at.way.mend()
		for name, err := range map[string]error{
			"append": first.Append(ctx, []byte("b")), // the same event, which is another's
			"put":    first.Put(ctx, "sums/0", []byte("first")),
			"retain": first.Retain(ctx, nil),
		} {
			if !errors.Is(err, round.ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
		}
		<-first.Lost()
		if err := errors.Join(first.Close(), second.Close()); err != nil {
			t.Error(err)
		}
		third := replayed(t, at, "a", "b")
		if b, err := third.Get(ctx, "sums/0"); err != nil || string(b) != "second" {
			t.Errorf("%q, %v", b, err)
		}
		// Also where the other has written nothing yet.
		at.cut()
		fourth := replayed(t, other, "a", "b")
		at.way.mend()
		if err := third.Append(ctx, []byte("c")); !errors.Is(err, round.ErrLost) {
			t.Error(err)
		}
		// One that writes nothing hears of it by its beat.
		other.cut()
		if err := third.Close(); err != nil {
			t.Error(err)
		}
		fifth := replayed(t, at, "a", "b")
		other.way.mend()
		<-fourth.Lost()
		if err := errors.Join(fourth.Close(), fifth.Close()); err != nil {
			t.Error(err)
		}
	})
}

// TestTakenWhileItRuns: a controller whose journal another process has taken ends, and says
// so; the other goes on with the training, and no round has two announcements.
func TestTakenWhileItRuns(t *testing.T) {
	at := newSchema(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorldAt(t, at, nil)
		c, err := w.open()
		if err != nil {
			t.Fatal(err)
		}
		paused := at.way
		w.paused = c
		ended := make(chan error, 1)
		go func() { ended <- w.run(c) }()
		time.Sleep(3 * units * time.Second / 2)
		paused.cut()
		at.way, w.newest = new(way), nil
		other, err := w.open()
		if err != nil {
			t.Fatal(err)
		}
		paused.mend()
		if err := w.run(other); err != nil {
			t.Error(err)
		}
		if err := <-ended; !errors.Is(err, round.ErrLost) {
			t.Error(err)
		}
		if s := w.check(other); s.Stepped != rounds {
			t.Errorf("%+v", s)
		}
		c.Close()
	})
}

// TestAway: the database is away for three minutes, from any transaction on, before or after
// its commit, which nobody hears of: the training goes on when it is back, in the same
// process, and each event stands once.
func TestAway(t *testing.T) {
	var places []string
	at := newSchema(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorldAt(t, at, nil)
		w.ran()
		places = slices.DeleteFunc(w.fail.Seen(), func(name string) bool {
			return !strings.HasPrefix(name, "database.") || strings.Contains(name, "migrate") || strings.Contains(name, "give-up")
		})
	})
	if len(places) != 2*5 { // take, beat, append, put, retain
		t.Errorf("the places %v", places)
	}
	for _, name := range places {
		at := newSchema(t)
		synctest.Test(t, func(t *testing.T) {
			w, hit := newWorldAt(t, at, nil), 0
			skip := 1
			if strings.Contains(name, ".take.") || strings.Contains(name, ".retain.") {
				skip = 0
			}
			w.fail.Arm(name, skip, func() error {
				if hit++; hit > 1 {
					return nil
				}
				at.cut()
				go func() {
					time.Sleep(3 * time.Minute)
					at.way.mend()
				}()
				if strings.HasSuffix(name, ".before-commit") {
					return nil // the commit finds no way
				}
				return errPower
			})
			c, err := w.open()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := w.run(c); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if s := w.check(c); s.Stepped+s.Skipped != rounds || hit == 0 {
				t.Errorf("%s: hit %d times, %+v", name, hit, s)
			}
		})
	}
}

// TestPutBackWhileItRuns: a database that is put back under a process that runs is found out
// by the next event.
func TestPutBackWhileItRuns(t *testing.T) {
	at := newSchema(t)
	s := replayed(t, at)
	if err := s.Append(t.Context(), []byte("a")); err != nil {
		t.Fatal(err)
	}
	back := at.save(t)
	if err := s.Append(t.Context(), []byte("b")); err != nil {
		t.Fatal(err)
	}
	back()
	if err := s.Append(t.Context(), []byte("c")); !errors.Is(err, round.ErrLost) || !strings.Contains(err.Error(), "put back") {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestRowsDamaged: rows that somebody changed or removed are found out.
func TestRowsDamaged(t *testing.T) {
	at := newSchema(t)
	synctest.Test(t, func(t *testing.T) {
		w := newWorldAt(t, at, nil)
		w.ran()
		back := at.save(t)
		for _, sql := range []string{
			"UPDATE event SET content = set_byte(content, length(content) - 1, get_byte(content, length(content) - 1) # 1) WHERE number = 3",
			"DELETE FROM event WHERE number = 0",
			"DELETE FROM event WHERE number = 2",
			"DELETE FROM event WHERE number = (SELECT max(number) FROM event)",
			"DELETE FROM journal",
			"UPDATE journal SET head = set_byte(head, 0, get_byte(head, 0) # 1)",
			"UPDATE file SET content = set_byte(content, 40, get_byte(content, 40) # 1) WHERE name LIKE 'states/%'",
			"UPDATE file SET content = set_byte(content, 40, get_byte(content, 40) # 1) WHERE name LIKE 'models/%'",
			"UPDATE file SET content = set_byte(content, 40, get_byte(content, 40) # 1) WHERE name LIKE 'sums/%'",
			"DELETE FROM file",
		} {
			at.exec(t, sql)
			c, err := w.open()
			if err == nil {
				for i := range uint32(rounds) {
					if _, e := c.Mean(i); e != nil {
						err = errors.Join(err, e)
					}
				}
				c.Close()
			}
			if !errors.Is(err, round.ErrJournal) {
				t.Errorf("%s: %v", sql, err)
			}
			back()
		}
		c, err := w.open()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	})
}

// TestExisting: who only looks makes nothing; a schema of others is refused.
func TestExisting(t *testing.T) {
	at := newSchema(t)
	o := at.options(nil)
	o.Existing = true
	if _, err := pgjournal.Open(t.Context(), o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no schema: %v", err)
	}
	if n := at.Server.Ask(t, fmt.Sprintf("SELECT count(*) FROM pg_namespace WHERE nspname = '%s'", at.Name)); n != 0 {
		t.Error("it was made")
	}
	if err := replayed(t, at).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := pgjournal.Open(t.Context(), o); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no training: %v", err)
	}
	s := replayed(t, at)
	if err := errors.Join(s.Append(t.Context(), []byte("a")), s.Close()); err != nil {
		t.Fatal(err)
	}
	s, err := pgjournal.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	at.exec(t, "UPDATE migration SET sum = decode(repeat('11', 32), 'hex')")
	for _, o.Existing = range []bool{false, true} {
		if _, err := pgjournal.Open(t.Context(), o); !errors.Is(err, pgdb.ErrForeign) {
			t.Error(err)
		}
	}
}
