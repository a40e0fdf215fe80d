package database

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/starling-agg/starling/internal/disk"
)

// Errors to branch on with [errors.Is].
var (
	// ErrUnknown: a commit failed half-way or was reported failed. Close the database,
	// open it again and recover.
	ErrUnknown = errors.New("database: outcome of a commit unknown")
	// ErrClosed: the database was closed.
	ErrClosed = errors.New("database: closed")
	// ErrTooNew: the file was written by a later version of the program, with migrations
	// that this one lacks.
	ErrTooNew = errors.New("database: schema newer than this program")
	// ErrNoRoom: the disk has no room for a transaction. Nothing changed; it may be tried
	// again later.
	ErrNoRoom = errors.New("database: no room on the disk")
	// ErrForeign: the file is no database, or another program's.
	ErrForeign = errors.New("database: not a database of this program")
	// ErrMissing: there is no database where one must be, or an empty one.
	ErrMissing = errors.New("database: gone or empty")
	// ErrConstraint: a CHECK, UNIQUE, FOREIGN KEY or trigger of the schema refused the
	// change.
	ErrConstraint = errors.New("database: constraint")
)

// Options say how to open a database. The zero value is not usable: FS, Name and
// Migrations are required.
type Options struct {
	FS         disk.FS // where the file lives
	Name       string  // of the file in FS; SQLite adds "-wal" and "-journal"
	Migrations fs.FS   // files NNNN_name.sql in its root, numbered from 0001 without a gap
	Statements fs.FS   // files *.sql in its root with named statements; may be nil

	// ApplicationID is SQLite's application_id: a new database gets it, and one that has
	// another is [ErrForeign]. Zero is not looked at.
	ApplicationID int32
	// Existing has Open fail with [ErrMissing] where it would make the database.
	Existing bool

	// Prefix begins the names of failpoints; required if Failpoints is set.
	Prefix     string
	Failpoints *disk.Failpoints // nil in production

	// Observe, if set, is called after each transaction with its name, how long it took
	// from its BEGIN, in which the wait for other transactions is not counted, and its
	// error. It must not use the database.
	Observe func(name string, took time.Duration, err error)
	// Clock measures what Observe is told; default [disk.SystemClock].
	Clock disk.Clock
}

// Validate fills in defaults and says what is missing.
func (o *Options) Validate() error {
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	switch {
	case o.FS == nil:
		return errors.New("database: Options.FS is required")
	case o.Migrations == nil:
		return errors.New("database: Options.Migrations is required")
	case o.Failpoints != nil && o.Prefix == "":
		return errors.New("database: Options.Prefix is required with Failpoints")
	}
	return disk.CheckName(o.Name)
}

// DB is one open database. All methods are safe for many goroutines.
type DB struct {
	opt Options
	vfs string

	floor atomic.Int64

	// turn holds one token; its holder owns the fields below.
	turn   chan struct{}
	conn   *sqlite3.Conn
	stmts  map[string]*sqlite3.Stmt
	text   map[string]string // of all named statements, those in stmts too
	broken error             // wraps ErrUnknown or ErrClosed; set once
	behind bool              // what was committed is still to be erased from the log
}

// Open opens the database, makes it if it is not there, and applies the migrations it
// lacks, each in a transaction of its own.
func Open(opt Options) (_ *DB, err error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	if opt.Existing {
		e, err := opt.FS.Stat(opt.Name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && e.Size == 0 {
			return nil, fmt.Errorf("%w: %s", ErrMissing, opt.Name)
		}
		if err != nil {
			return nil, fmt.Errorf("database: %s: %w", opt.Name, err)
		}
	}
	db := &DB{opt: opt, vfs: registerVFS(opt.FS), turn: make(chan struct{}, 1),
		stmts: make(map[string]*sqlite3.Stmt), text: make(map[string]string)}
	defer func() {
		if err != nil {
			if damaged(err) && !errors.Is(err, ErrDamaged) {
				err = fmt.Errorf("%w: %s: %w", ErrDamaged, opt.Name, err)
			}
			db.shut()
		}
	}()
	if err := errors.Join(checkHeader(opt.FS, opt.Name), checkLog(opt.FS, opt.Name)); err != nil {
		return nil, err
	}
	db.conn, err = sqlite3.Open("file:/" + opt.Name + "?vfs=" + db.vfs)
	if err != nil {
		return nil, fmt.Errorf("database: open %s: %w", opt.Name, err)
	}
	// Statements keep the plan they were prepared with. Otherwise this build of SQLite
	// (STAT4) parses and plans a statement again whenever a value is bound that its plan
	// might depend on, which is in nearly every call.
	if _, err := db.conn.Config(sqlite3.DBCONFIG_ENABLE_QPSG, true); err != nil {
		return nil, fmt.Errorf("database: %s: stable plans: %w", opt.Name, err)
	}
	// Closing leaves the log where it is: that it is gone is then somebody's doing. See
	// [DB.Close].
	if _, err := db.conn.Config(sqlite3.DBCONFIG_NO_CKPT_ON_CLOSE, true); err != nil {
		return nil, fmt.Errorf("database: %s: keep the log: %w", opt.Name, err)
	}
	// A new file gets checksums from its first page on.
	if _, err := db.conn.FileControl("main", sqlite3.FCNTL_RESERVE_BYTES, reserved); err != nil {
		return nil, fmt.Errorf("database: %s: checksums: %w", opt.Name, err)
	}
	// Exclusive locking must come before WAL, or SQLite wants shared memory.
	if err := db.conn.Exec("PRAGMA locking_mode = exclusive"); err != nil {
		return nil, fmt.Errorf("database: %s: pragma locking_mode: %w", opt.Name, err)
	}
	if err := db.recognise(); err != nil {
		return nil, err
	}
	for _, pragma := range []string{
		"journal_mode = wal",
		"synchronous = full",
		"foreign_keys = on",
		"trusted_schema = off",
		"temp_store = memory",
		"secure_delete = on",
		"journal_size_limit = 16777216",
		"cache_size = -16384",
	} {
		if err := db.conn.Exec("PRAGMA " + pragma); err != nil {
			return nil, fmt.Errorf("database: %s: pragma %s: %w", opt.Name, pragma, err)
		}
	}
	// The pages in the log may be torn in the database.
	if err := db.emptyLog(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnknown, opt.Name, err)
	}
	if err := db.checkPages(); err != nil {
		return nil, err
	}
	if err := db.migrate(); err != nil {
		return nil, err
	}
	if err := db.readStatements(); err != nil {
		return nil, err
	}
	// An earlier life may have ended between a commit that erases and the end of its log.
	if err := db.emptyLog(); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrUnknown, opt.Name, err)
	}
	db.turn <- struct{}{}
	return db, nil
}

// KeepFree sets how many bytes have to be free on the disk for a write transaction to
// begin, where the file system knows (disk.Free): else it fails with [ErrNoRoom]. At
// first it is 0.
func (db *DB) KeepFree(bytes int64) { db.floor.Store(bytes) }

// Kept is what KeepFree was given last.
func (db *DB) Kept() int64 { return db.floor.Load() }

// Close waits for the transaction under way, moves the write-ahead log into the database
// and closes the file. Later calls fail with [ErrClosed].
func (db *DB) Close() error { return db.CloseAfter(nil) }

// CloseAfter is Close that calls fn, if it is not nil, when the write-ahead log is empty
// and before the file is closed. After [ErrUnknown] it leaves the log as it is, and does
// not call fn.
func (db *DB) CloseAfter(fn func() error) error {
	<-db.turn
	defer func() { db.turn <- struct{}{} }()
	if errors.Is(db.broken, ErrClosed) {
		return nil
	}
	var err error
	if db.broken == nil {
		if err = db.emptyLog(); err == nil && fn != nil {
			err = fn()
		}
	}
	db.broken = ErrClosed
	return errors.Join(err, db.shut())
}

func (db *DB) shut() error {
	var errs []error
	for _, s := range db.stmts {
		errs = append(errs, s.Close())
	}
	clear(db.stmts)
	if db.conn != nil {
		// Errors of statements repeat what their last step reported.
		errs = append(errs[:0], db.conn.Close())
		db.conn = nil
	}
	vfs.Unregister(db.vfs)
	return errors.Join(errs...)
}

// Update runs fn in the write transaction called name and commits it if fn returns nil.
// On any error but [ErrUnknown] nothing changed. fn must not keep tx or call Update or
// View. ctx ends the wait for other transactions, not fn.
func (db *DB) Update(ctx context.Context, name string, fn func(tx *Tx) error) error {
	return db.run(ctx, name, true, fn, nil)
}

// View runs fn in the read transaction called name: fn sees one state of the database,
// and writes fail.
func (db *DB) View(ctx context.Context, name string, fn func(tx *Tx) error) error {
	return db.run(ctx, name, false, fn, nil)
}

// run runs fn in a transaction, and before, where it is not nil, outside of it.
func (db *DB) run(ctx context.Context, name string, write bool, fn func(tx *Tx) error, before func() error) (err error) {
	select {
	case <-db.turn:
	case <-ctx.Done():
		return fmt.Errorf("database: %s: %w", name, context.Cause(ctx))
	}
	defer func() { db.turn <- struct{}{} }()
	if db.broken != nil {
		return fmt.Errorf("database: %s: %w", name, db.broken)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("database: %s: %w", name, context.Cause(ctx))
	}
	if observe := db.opt.Observe; observe != nil {
		start := db.opt.Clock.Now()
		defer func() { observe(name, db.opt.Clock.Now().Sub(start), err) }()
	}
	defer func() {
		if damaged(err) {
			err = fmt.Errorf("database: %s: %w", name, db.damage(err))
		}
	}()
	if before != nil {
		switch err := before(); {
		case err != nil && !full(err):
			return db.unknown(name, err)
		case err != nil:
			return fmt.Errorf("%w: %s: %w", ErrNoRoom, name, err)
		}
	}
	begin := beginView
	if write {
		begin = beginUpdate
		if free, known := disk.Free(db.opt.FS); known && free < db.floor.Load() {
			return fmt.Errorf("%w: %s: %d bytes are free", ErrNoRoom, name, free)
		}
		if err := db.catchUp(name); err != nil {
			return err
		}
		if db.behind {
			return fmt.Errorf("%w: %s: the log cannot be emptied", ErrNoRoom, name)
		}
	}
	if err := db.control(begin); err != nil {
		return fmt.Errorf("database: begin %s: %w", name, err)
	}
	tx := &Tx{db: db, write: write}
	done := false
	defer func() {
		tx.db = nil
		if !done { // fn failed or panicked
			db.rollback()
		}
	}()
	if err := fn(tx); err != nil {
		if full(err) {
			return fmt.Errorf("%w: %s: %w", ErrNoRoom, name, err)
		}
		return err
	}
	if db.broken != nil { // fn said nothing of it
		return fmt.Errorf("database: %s: %w", name, db.broken)
	}
	if !write {
		return nil
	}
	if err := db.hit(name, "before-commit"); err != nil {
		return fmt.Errorf("database: %s: %w", name, err)
	}
	done = true
	if err := db.control(commit); err != nil {
		db.rollback()
		// A log without room did not take the last frame of the transaction, which alone
		// makes it one: there is no padding behind that frame
		// (IOCAP_POWERSAFE_OVERWRITE), and the next transaction is written in its place.
		if full(err) && db.broken == nil {
			return fmt.Errorf("%w: %s: %w", ErrNoRoom, name, err)
		}
		return db.unknown(name, err)
	}
	if err := db.hit(name, "after-commit"); err != nil {
		return db.unknown(name, err)
	}
	if tx.after != nil {
		if err := tx.after(); err != nil {
			return db.unknown(name, err)
		}
	}
	db.behind = db.behind || tx.erase
	return db.catchUp(name)
}

// Snapshot runs fn between two transactions, which wait meanwhile: the write-ahead log is
// empty, and file has the whole database. tx, in which nothing can be written, sees the
// same.
func (db *DB) Snapshot(ctx context.Context, name string, fn func(tx *Tx, file disk.File) error) (err error) {
	return db.run(ctx, name, false, func(tx *Tx) error {
		f, err := db.opt.FS.Open(db.opt.Name)
		if err != nil {
			return fmt.Errorf("database: %w", err)
		}
		return errors.Join(fn(tx, f), f.Close())
	}, db.emptyLog)
}

// catchUp erases what committed transactions want erased. Where the disk has no room for
// that it is done before the next transaction begins.
func (db *DB) catchUp(name string) error {
	if !db.behind {
		return nil
	}
	switch err := db.emptyLog(); {
	case err == nil:
		db.behind = false
	case !full(err):
		// After a sync that failed, only a restart can tell what the disk holds.
		return db.unknown(name, err)
	}
	return nil
}

// full says whether a write found no room, and nothing worse happened.
func full(err error) bool { return errors.Is(err, sqlite3.FULL) }

// emptyLog moves the write-ahead log into the database and cuts it to nothing. Outside of
// transactions only.
func (db *DB) emptyLog() error {
	if _, _, err := db.conn.WALCheckpoint("main", sqlite3.CHECKPOINT_TRUNCATE); err != nil {
		return fmt.Errorf("empty the write-ahead log: %w", err)
	}
	return nil
}

// The statements around every transaction, by the names under which they are prepared: no
// named statement can have a space in front.
const (
	beginView   = " BEGIN DEFERRED"
	beginUpdate = " BEGIN IMMEDIATE"
	commit      = " COMMIT"
	rollback    = " ROLLBACK" // which ends views, too
)

// control runs one of the statements above.
func (db *DB) control(sql string) error {
	stmt := db.stmts[sql]
	err := stmt.Exec()
	_ = stmt.Reset() // repeats the error of the last step
	return err
}

// unknown ends the life of db: what was committed is known to the disk alone.
func (db *DB) unknown(name string, cause error) error {
	db.broken = fmt.Errorf("%w: commit %s: %w", ErrUnknown, name, cause)
	return db.broken
}

// rollback undoes the open transaction. If that fails the connection is of no more use;
// the transaction is not committed either way, because only COMMIT writes the frame that
// ends it.
func (db *DB) rollback() {
	if db.conn.GetAutocommit() {
		return // SQLite has rolled back by itself
	}
	if err := db.control(rollback); err != nil && db.broken == nil {
		db.broken = fmt.Errorf("%w: rollback: %w", ErrUnknown, err)
	}
}

func (db *DB) hit(name, place string) error {
	if db.opt.Failpoints == nil {
		return nil
	}
	return db.opt.Failpoints.Hit(db.opt.Prefix + "." + name + "." + place)
}
