// Package pgjournal keeps the journal of a training, and its files, in a schema of a
// PostgreSQL database: a [round.Store] that another machine can go on with.
//
// # One process at a time
//
// The journal's row names its holder by a random name, which is drawn when the store is
// opened. Each write demands that name of the row in its own transaction, and whoever takes
// the journal changes it there: so a process that was paused, or cut off, and was taken for
// dead meanwhile writes nothing any more, whatever the clocks say. A holder adds one to the
// row's beats every [Options].Beat. A process that finds another holder watches the beats by
// its own clock, and takes the journal where there was none for [missed] times as long; where
// there was one it fails with [round.ErrHeld]. No lock of a session is used, so a pooler in
// transaction mode may stand between.
//
// # What a backup brings back
//
// An append demands the number of events, and a hash over all of them, that this process left.
// So a database that is put back under a process that runs is found out by the next event, and
// is [round.ErrLost]. A start has nothing in the database to go by, for all of it is of one
// time: that the journal is an older one is found out by the record and by what is published
// ([round.PutBackError]), neither of which lies here.
//
// # Failure
//
// A commit whose answer was lost is looked for (package pgdb). While the database is not to be
// had each call tries again, as long as its context lasts. An append that was tried again finds
// its own event where that stands.
package pgjournal

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/internal/pgdb"
)

//go:embed migrations statements
var files embed.FS

const (
	// missed is how many beats in a row a holder misses that is taken for dead.
	missed       = 4
	defaultBeat  = 5 * time.Second
	connections  = 4           // of a process
	pause        = time.Second // between attempts while the database is not to be had
	closeTime    = 10 * time.Second
	tidyEvery    = time.Hour
	keptOutcomes = 2 * time.Hour
)

// Options say where the journal is.
type Options struct {
	// Database is the connection, and a schema of this training alone; connections, migrations
	// and statements are filled in. Required.
	Database pgdb.Options
	// Existing refuses a schema that is not there, or has no journal in it, with what wraps
	// [fs.ErrNotExist], and makes nothing. Default false: it is made.
	Existing bool
	// Beat is how often the holder is seen; default 5 s. One that was not seen for four times
	// as long is taken for dead.
	Beat time.Duration
	// Log is told when the database is not to be had; default none.
	Log *slog.Logger
}

// Validate fills in defaults and says what is wrong.
func (o *Options) Validate() error {
	if o.Beat == 0 {
		o.Beat = defaultBeat
	}
	if o.Beat < 0 {
		return errors.New("pgjournal: a beat of less than nothing")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.Database.Connections = connections
	var err1, err2 error
	o.Database.Migrations, err1 = fs.Sub(files, "migrations")
	o.Database.Statements, err2 = fs.Sub(files, "statements")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return o.Database.Validate()
}

// Store implements [round.Store].
type Store struct {
	o      Options
	db     *pgdb.DB
	holder []byte // this process in this life
	stop   context.CancelFunc
	beats  sync.WaitGroup

	// Of Append and Replay alone, which are called one after the other.
	events int64
	head   []byte

	lost chan struct{}
	mu   sync.Mutex // guards why
	why  error      // set once lost is closed
}

// Open opens the schema, which is made where it is missing, and takes the journal. It fails
// with what wraps [round.ErrHeld] where another process has it.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	reach := pgdb.Open
	if o.Existing {
		reach = pgdb.Attach
	}
	db, err := reach(ctx, o.Database)
	if o.Existing && missing(err) {
		return nil, fmt.Errorf("schema %s: %w", o.Database.Schema, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	s := &Store{o: o, db: db, holder: make([]byte, 16), lost: make(chan struct{})}
	rand.Read(s.holder)
	if err := s.take(ctx); err != nil {
		db.Close()
		return nil, err
	}
	var beating context.Context
	beating, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.beats.Go(func() { s.beat(beating) })
	return s, nil
}

// missing says whether an error is that of a schema, or a table, that is not there.
func missing(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && slices.Contains([]string{"42P01", "3F000"}, e.Code)
}

// A standing is the journal's row.
type standing struct {
	holder        []byte // nil for none
	beats, events int64
	head          []byte
}

func read(tx *pgdb.Tx) (row standing, err error) {
	found, err := tx.One("journal", nil, &row.holder, &row.beats, &row.events, &row.head)
	if err == nil && !found {
		err = fmt.Errorf("%w: the journal's row is gone", round.ErrJournal)
	}
	return row, err
}

func (s *Store) look(ctx context.Context) (row standing, err error) {
	err = s.view(ctx, "look", func(tx *pgdb.Tx) error {
		row, err = read(tx)
		return err
	})
	return row, err
}

// take takes the journal of nobody, or of a process that is not seen any more.
func (s *Store) take(ctx context.Context) error {
	first, err := s.look(ctx)
	if err != nil {
		return err
	}
	if s.o.Existing && first.events == 0 {
		return fmt.Errorf("schema %s has no training: %w", s.o.Database.Schema, fs.ErrNotExist)
	}
	for row, n := first, 0; ; n++ {
		if row.holder == nil || n == missed {
			return s.seize(ctx, row)
		}
		if n == 0 {
			s.o.Log.Info("another process has the journal, or had it when it ended; it is waited for a sign of it", "wait", missed*s.o.Beat)
		}
		if err := s.wait(ctx, s.o.Beat); err != nil {
			return err
		}
		if row, err = s.look(ctx); err != nil {
			return err
		}
		if row.holder != nil && (row.beats != first.beats || !bytes.Equal(row.holder, first.holder)) {
			return fmt.Errorf("%w: schema %s", round.ErrHeld, s.o.Database.Schema)
		}
	}
}

// seize takes the journal if it stands as it was seen.
func (s *Store) seize(ctx context.Context, seen standing) error {
	return s.update(ctx, "take", func(tx *pgdb.Tx) error {
		if n, err := tx.Exec("take-journal", s.holder, seen.holder, seen.beats); err != nil || n == 1 {
			return err
		}
		// By an attempt whose end was not heard of, or by another process.
		if row, err := read(tx); err != nil || bytes.Equal(row.holder, s.holder) {
			return err
		}
		return fmt.Errorf("%w: schema %s", round.ErrHeld, s.o.Database.Schema)
	})
}

// beat has the holder be seen until the context ends or the journal is lost.
func (s *Store) beat(ctx context.Context) {
	tidied := s.o.Database.Clock.Now()
	for s.wait(ctx, s.o.Beat) == nil {
		once, cancel := context.WithTimeout(ctx, s.o.Beat)
		var seen int64
		err := s.db.Pass(once, "beat", func(tx *pgdb.Tx) (err error) {
			seen, err = tx.Exec("beat-journal", s.holder)
			return err
		})
		cancel()
		if err == nil && seen == 0 {
			s.lose("another process has taken it")
		}
		if now := s.o.Database.Clock.Now(); err == nil && now.Sub(tidied) >= tidyEvery {
			tidied = now
			if _, err := s.db.ForgetOutcomes(ctx, now.Add(-keptOutcomes)); err != nil && ctx.Err() == nil {
				s.o.Log.Warn("outcomes of old transactions stay in the database for now", "error", err)
			}
		}
	}
}

// wait fails once the context ends or the journal is lost.
func (s *Store) wait(ctx context.Context, d time.Duration) error {
	timer := s.o.Database.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-s.lost:
		return s.fault()
	case <-timer.C():
		return nil
	}
}

// lose ends all writing for good, and returns the error of it.
func (s *Store) lose(why string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == nil {
		s.why = fmt.Errorf("%w: schema %s: %s", round.ErrLost, s.o.Database.Schema, why)
		close(s.lost)
	}
	return s.why
}

func (s *Store) fault() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

func (s *Store) update(ctx context.Context, name string, fn func(*pgdb.Tx) error) error {
	return s.again(ctx, func() error { return s.db.Update(ctx, name, fn) })
}

func (s *Store) view(ctx context.Context, name string, fn func(*pgdb.Tx) error) error {
	return s.again(ctx, func() error { return s.db.View(ctx, name, fn) })
}

// again tries until the database was to be had.
func (s *Store) again(ctx context.Context, try func() error) error {
	for told := false; ; {
		if err := s.fault(); err != nil {
			return err
		}
		err := try()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("%w: %w", round.ErrAway, errors.Join(context.Cause(ctx), err))
		case !away(err):
			return err
		}
		if !told {
			told = true
			s.o.Log.Warn("the database is not to be had; it is tried again", "error", err)
		}
		if waited := s.wait(ctx, pause); waited != nil {
			if ctx.Err() == nil {
				return waited
			}
			return fmt.Errorf("%w: %w", round.ErrAway, errors.Join(waited, err))
		}
	}
}

// away says whether the same may be tried again later. All calls write the same once, however
// often they are tried.
func away(err error) bool {
	for _, passing := range []error{pgdb.ErrAway, pgdb.ErrUnreached, pgdb.ErrNoRoom, pgdb.ErrUnknown} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

// write is update, of a process that has the journal.
func (s *Store) write(ctx context.Context, name string, fn func(*pgdb.Tx) error) error {
	return s.update(ctx, name, func(tx *pgdb.Tx) error {
		var events int64
		if held, err := tx.One("hold-journal", []any{s.holder}, &events); err != nil {
			return err
		} else if !held {
			return s.lose("another process has taken it")
		}
		return fn(tx)
	})
}

// next is the hash over all events with one more.
func next(head, event []byte) []byte {
	h := sha256.New()
	h.Write(head)
	h.Write(event)
	return h.Sum(nil)
}

// Replay implements [round.Store].
func (s *Store) Replay(ctx context.Context, visit func(event []byte) error) error {
	var row standing
	var list [][]byte
	err := s.view(ctx, "replay", func(tx *pgdb.Tx) (err error) {
		list = nil
		if row, err = read(tx); err != nil {
			return err
		}
		return tx.Each("events", nil, func(r pgdb.Row) error {
			var number int
			var content []byte
			if err := r.Scan(&number, &content); err != nil {
				return err
			}
			if number != len(list) {
				return fmt.Errorf("%w: journal: event %d is gone", round.ErrJournal, len(list))
			}
			list = append(list, content)
			return nil
		})
	})
	if err != nil {
		return err
	}
	s.events, s.head = int64(len(list)), make([]byte, sha256.Size)
	for _, event := range list {
		s.head = next(s.head, event)
	}
	if s.events != row.events || !bytes.Equal(s.head, row.head) {
		return fmt.Errorf("%w: journal: its %d events are not the %d that were written", round.ErrJournal, s.events, row.events)
	}
	for _, event := range list {
		if err := visit(event); err != nil {
			return err
		}
	}
	return nil
}

// Append implements [round.Store].
func (s *Store) Append(ctx context.Context, event []byte) error {
	head := next(s.head, event)
	err := s.update(ctx, "append", func(tx *pgdb.Tx) error {
		if n, err := tx.Exec("grow-journal", s.holder, s.events, s.head, head); err != nil {
			return err
		} else if n == 1 {
			_, err := tx.Exec("put-event", s.events, event)
			return err
		}
		row, err := read(tx)
		switch {
		case err != nil:
			return err
		case !bytes.Equal(row.holder, s.holder):
			return s.lose("another process has taken it")
		case row.events == s.events+1 && bytes.Equal(row.head, head): // an attempt whose end was not heard of
			return nil
		}
		return s.lose(fmt.Sprintf("it has %d events, and was left with others, %d: the database was put back", row.events, s.events))
	})
	if err != nil {
		return err
	}
	s.events, s.head = s.events+1, head
	return nil
}

// Put implements [round.Store].
func (s *Store) Put(ctx context.Context, name string, content []byte) error {
	return s.write(ctx, "put", func(tx *pgdb.Tx) error {
		_, err := tx.Exec("put-file", name, content)
		return err
	})
}

// Get implements [round.Store]. That a file is not there says something only to who has the
// journal: another process may have removed it.
func (s *Store) Get(ctx context.Context, name string) (content []byte, err error) {
	err = s.view(ctx, "get", func(tx *pgdb.Tx) error {
		if found, err := tx.One("file", []any{name}, &content); err != nil || found {
			return err
		}
		if row, err := read(tx); err != nil {
			return err
		} else if !bytes.Equal(row.holder, s.holder) {
			return s.lose("another process has taken it")
		}
		return fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	})
	return content, err
}

// Retain implements [round.Store].
func (s *Store) Retain(ctx context.Context, names map[string]bool) error {
	return s.write(ctx, "retain", func(tx *pgdb.Tx) error {
		var old []string
		err := tx.Each("files", nil, func(r pgdb.Row) error {
			var name string
			err := r.Scan(&name)
			if err == nil && !names[name] {
				old = append(old, name)
			}
			return err
		})
		for _, name := range old {
			if err == nil {
				_, err = tx.Exec("drop-file", name)
			}
		}
		return err
	})
}

// Lost implements [round.Store].
func (s *Store) Lost() <-chan struct{} { return s.lost }

// Close implements [round.Store]. Where the database is not to be had, the next process has
// to wait until this one is taken for dead.
func (s *Store) Close() error {
	s.stop()
	s.beats.Wait()
	defer s.db.Close()
	if s.fault() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTime)
	defer cancel()
	err := s.db.Update(ctx, "give-up", func(tx *pgdb.Tx) error {
		_, err := tx.Exec("give-up-journal", s.holder)
		return err
	})
	if err != nil {
		s.o.Log.Warn("the journal was not given up: who opens it next has to wait", "error", err)
	}
	return nil
}
