package pgdb

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A kind is what a transaction does to the database.
type kind int

const (
	viewing kind = iota
	passing      // what it writes may go with the power
	lasting
)

// Update runs fn in the transaction called name and commits it if fn returns nil. On any
// error but [ErrUnknown] nothing changed. fn may run several times, one after the other;
// it must not keep tx, nor call Update, which could wait for itself; it may call View. ctx
// ends fn's statements, and never a commit.
func (db *DB) Update(ctx context.Context, name string, fn func(tx *Tx) error) error {
	return db.run(ctx, name, lasting, fn)
}

// Pass is Update whose effect a crash of the server may undo, even after it returned nil.
// It waits for no disk.
func (db *DB) Pass(ctx context.Context, name string, fn func(tx *Tx) error) error {
	return db.run(ctx, name, passing, fn)
}

// View runs fn in the read-only transaction called name: fn sees one state of the
// database, and writes fail.
func (db *DB) View(ctx context.Context, name string, fn func(tx *Tx) error) error {
	return db.run(ctx, name, viewing, fn)
}

func (db *DB) run(ctx context.Context, name string, how kind, fn func(tx *Tx) error) (err error) {
	if observe := db.opt.Observe; observe != nil {
		start := db.opt.Clock.Now()
		defer func() { observe(name, db.opt.Clock.Now().Sub(start), err) }()
	}
	return db.again(ctx, name, func() error { return db.attempt(ctx, name, how, fn) })
}

// attempt runs one transaction once.
func (db *DB) attempt(ctx context.Context, name string, how kind, fn func(tx *Tx) error) error {
	write := how != viewing
	if write {
		leave, err := db.enter(ctx)
		if err != nil {
			return err
		}
		defer leave()
	}
	conn, err := db.pool.Acquire(ctx)
	if err != nil {
		return classify(err)
	}
	defer conn.Release() // ends a connection whose transaction is not over
	c := conn.Conn()
	var token token
	if write {
		if token, err = db.token(); err != nil {
			return err
		}
	}
	done := false
	defer func() {
		if !done {
			rollback(ctx, c)
		}
	}()
	begun, err := exec(ctx, c, db.begin(how, token))
	if err != nil {
		return lost(c, classify(err), write)
	}
	tx := &Tx{ctx: ctx, db: db, conn: c}
	if write && begun[len(begun)-1].CommandTag.RowsAffected() == 0 {
		_, err = tx.Version() // says which are taken
	}
	if err == nil {
		err = fn(tx)
	}
	tx.conn = nil
	if err == nil {
		err = tx.err // of which fn said nothing
	}
	if err != nil {
		return lost(c, err, write)
	}
	if !write {
		return nil
	}
	if err := db.hit(name, "before-commit"); err != nil {
		return err
	}
	done = true
	if err = db.commit(ctx, c); err == nil {
		if hit := db.hit(name, "after-commit"); hit != nil {
			err = fmt.Errorf("%w: %w", errUnheard, hit)
		}
	}
	if !errors.Is(err, errUnheard) {
		return err
	}
	_ = c.Close(ctx) // a transaction that is not committed yet ends with its connection
	conn.Release()
	return db.resolve(ctx, name, token, err)
}

// enter waits for the turn to write. Writers may wait for each other's locks, and one that
// has them may ask for a View: so they leave a connection to those who wait for no lock.
func (db *DB) enter(ctx context.Context) (leave func(), err error) {
	select {
	case db.writers <- struct{}{}:
		return func() { <-db.writers }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// errUnheard: a COMMIT was sent, or may have been, and no answer came.
var errUnheard = errors.New("no answer to a commit")

// commit ends a transaction: nil if it took place, errUnheard if nobody knows. Anything
// else says that it did not.
func (db *DB) commit(ctx context.Context, c *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), db.opt.Resolve)
	defer cancel()
	results, err := exec(ctx, c, "COMMIT")
	if err == nil {
		if len(results) == 1 && results[0].CommandTag.String() == "COMMIT" {
			return nil
		}
		return errors.New("the transaction had failed before its commit")
	}
	var said *pgconn.PgError
	if errors.As(err, &said) && said.SeverityUnlocalized == "ERROR" && said.Code != "40003" && !c.IsClosed() {
		return classify(err)
	}
	return fmt.Errorf("%w: %w", errUnheard, err)
}

// lost adds to the error of a transaction that was not committed whether it may be tried
// again.
func lost(c *pgx.Conn, err error, write bool) error {
	if c.IsClosed() && !errors.Is(err, errAgain) {
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	if write && errors.Is(err, ErrReadOnly) { // this server was the primary once
		_ = c.Close(context.Background())
		return fmt.Errorf("%w: %w", errAgain, err)
	}
	return err
}

// rollback ends a transaction without an effect. Where it fails, the pool ends the
// connection.
func rollback(ctx context.Context, c *pgx.Conn) {
	if c.IsClosed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, _ = exec(ctx, c, "ROLLBACK")
}

// begin is the SQL that begins a transaction, in one round trip. Its settings end with the
// transaction. The last statement of one that writes changes no row where the schema takes no
// program of this version any more: that a program is too old is found out when it starts, and
// one that runs on, or was cut off meanwhile, finds it out here.
func (db *DB) begin(how kind, t token) string {
	set := fmt.Sprintf("; SET LOCAL search_path = %s, pg_temp; SET LOCAL idle_in_transaction_session_timeout = %d",
		quoted(db.opt.Schema), db.opt.Idle.Milliseconds())
	commit := "on"
	switch how {
	case viewing:
		return "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" + set
	case passing:
		commit = "off"
	}
	return "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE" + set + "; SET LOCAL synchronous_commit = " + commit + "; " +
		fmt.Sprintf(`INSERT INTO outcome (token, done) SELECT '\x%x', true FROM version WHERE least <= %d`, t[:], db.Newest())
}

// hit passes a failpoint of the transaction called name.
func (db *DB) hit(name, place string) error {
	if db.opt.Failpoints == nil {
		return nil
	}
	return db.opt.Failpoints.Hit(db.opt.Prefix + "." + name + "." + place)
}

// pause waits before the attempt after the n-th, about twice as long as before the n-th,
// and never quite as long as others who failed at the same time.
func (db *DB) pause(ctx context.Context, n int) error {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return fmt.Errorf("random bytes: %w", err)
	}
	d := db.opt.Pause << min(n-1, 7)
	jitter := time.Duration(binary.BigEndian.Uint64(b[:]) % uint64(d+1))
	timer := time.NewTimer(d/2 + jitter)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
