package database

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// migrate brings the schema up to date. The number of the last migration is SQLite's
// user_version, which changes in the migration's own transaction.
func (db *DB) migrate() error {
	files, err := fs.Glob(db.opt.Migrations, "*.sql")
	if err != nil {
		return fmt.Errorf("database: list migrations: %w", err)
	}
	slices.Sort(files)
	for i, name := range files {
		number, _, _ := strings.Cut(name, "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 || len(number) != 4 {
			return fmt.Errorf("database: migration %q should be numbered %04d", name, i+1)
		}
	}
	at, err := db.version()
	if err != nil {
		return err
	}
	if at > len(files) {
		return fmt.Errorf("%w: migration %d, this program knows %d", ErrTooNew, at, len(files))
	}
	for i, name := range files[at:] {
		script, err := fs.ReadFile(db.opt.Migrations, name)
		if err != nil {
			return fmt.Errorf("database: read migration: %w", err)
		}
		if err := db.apply(string(script), at+i+1); err != nil {
			return fmt.Errorf("database: migration %s: %w", name, err)
		}
	}
	return nil
}

// apply runs a migration. If it fails, Open closes the connection, which takes back what
// the migration did.
func (db *DB) apply(script string, number int) error {
	if err := db.conn.Exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := db.conn.Exec(script)
	if err == nil && number == 1 && db.opt.ApplicationID != 0 {
		err = db.conn.Exec("PRAGMA application_id = " + strconv.Itoa(int(db.opt.ApplicationID)))
	}
	if err == nil {
		err = db.conn.Exec("PRAGMA user_version = " + strconv.Itoa(number))
	}
	if err == nil {
		err = db.conn.Exec("COMMIT")
	}
	return err
}

func (db *DB) version() (int, error) { return db.pragma("user_version") }

// pragma reads a number.
func (db *DB) pragma(name string) (int, error) {
	stmt, _, err := db.conn.Prepare("PRAGMA " + name)
	if err != nil {
		return 0, fmt.Errorf("database: read %s: %w", name, err)
	}
	defer stmt.Close()
	if !stmt.Step() {
		return 0, fmt.Errorf("database: read %s: %w", name, stmt.Err())
	}
	return stmt.ColumnInt(0), nil
}

// recognise refuses a file that is another program's, before anything in it is changed. A
// file without a schema is new, unless it has to be there.
func (db *DB) recognise() error {
	schema, err := db.pragma("schema_version")
	if errors.Is(err, sqlite3.NOTADB) {
		return fmt.Errorf("%w: %s", ErrForeign, db.opt.Name)
	}
	if err != nil {
		return err
	}
	if schema == 0 {
		if db.opt.Existing {
			return fmt.Errorf("%w: %s has no tables", ErrMissing, db.opt.Name)
		}
		return nil
	}
	version, err := db.version()
	if err != nil {
		return err
	}
	id, err := db.pragma("application_id")
	if err != nil {
		return err
	}
	if version == 0 || db.opt.ApplicationID != 0 && int32(id) != db.opt.ApplicationID {
		return fmt.Errorf("%w: %s", ErrForeign, db.opt.Name)
	}
	return nil
}

// readStatements reads the named statements: a line "-- name: x" begins the one called x,
// which ends at the next such line. The statements around transactions are prepared.
func (db *DB) readStatements() error {
	for _, sql := range []string{beginView, beginUpdate, commit, rollback} {
		stmt, _, err := db.conn.Prepare(sql)
		if err != nil {
			return fmt.Errorf("database: prepare%s: %w", sql, err)
		}
		db.stmts[sql] = stmt
	}
	if db.opt.Statements == nil {
		return nil
	}
	files, err := fs.Glob(db.opt.Statements, "*.sql")
	if err != nil {
		return fmt.Errorf("database: list statements: %w", err)
	}
	for _, file := range files {
		text, err := fs.ReadFile(db.opt.Statements, file)
		if err != nil {
			return fmt.Errorf("database: read statements: %w", err)
		}
		_, rest, _ := strings.Cut("\n"+string(text), "\n-- name: ")
		for rest != "" {
			var name, block string
			block, rest, _ = strings.Cut(rest, "\n-- name: ")
			name, block, _ = strings.Cut(block, "\n")
			name = strings.TrimSpace(name)
			if _, twice := db.text[name]; twice {
				return fmt.Errorf("database: %s: statement %q twice", file, name)
			}
			db.text[name] = block
		}
	}
	return nil
}

// statement returns the statement called name, prepared at its first use.
func (db *DB) statement(name string) (*sqlite3.Stmt, error) {
	if stmt := db.stmts[name]; stmt != nil {
		return stmt, nil
	}
	text, ok := db.text[name]
	if !ok {
		panic(fmt.Sprintf("database: internal error: no statement %q", name))
	}
	stmt, tail, err := db.conn.Prepare(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("database: statement %q: %w", name, err)
	case stmt == nil:
		return nil, fmt.Errorf("database: statement %q is empty", name)
	case strings.TrimSpace(tail) != "":
		return nil, errors.Join(fmt.Errorf("database: more than one statement under %q", name), stmt.Close())
	}
	db.stmts[name] = stmt
	return stmt, nil
}

// Prepare prepares all named statements, which else happens at the first use of each, and
// says what is wrong with them. The tests of whoever brings statements call it.
func (db *DB) Prepare(ctx context.Context) error {
	return db.View(ctx, "prepare", func(*Tx) error {
		var errs []error
		for _, name := range slices.Sorted(maps.Keys(db.text)) {
			_, err := db.statement(name)
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	})
}
