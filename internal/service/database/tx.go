package database

import (
	"errors"
	"fmt"
	"math"

	"github.com/ncruces/go-sqlite3"
)

// Tx is a transaction, valid while the function it was given to runs, in that goroutine
// alone.
type Tx struct {
	db    *DB
	write bool
	erase bool
	after func() error
}

// After has [DB.Update] call fn once the transaction is durable, before it returns and
// before anybody else sees what it changed. The effects of fn must outlive anybody who
// learns of the transaction. If it fails, the outcome is [ErrUnknown]. The last fn given
// counts.
func (tx *Tx) After(fn func() error) { tx.after = fn }

// Erase has [DB.Update] return only when what the transaction deletes or writes over is
// in no file of the database any more: pages that became free are overwritten, and the
// write-ahead log, where older pages stand until it is begun anew, is emptied. It costs
// two syncs. After a loss of power the next [Open] erases the rest; after a full disk the
// next transaction does, before it begins. Copies of overwritten blocks in the file
// system or the disk are beyond reach.
func (tx *Tx) Erase() { tx.erase = true }

// Row is the current row of a statement, valid during the call it was given to.
type Row struct {
	stmt *sqlite3.Stmt
}

// Exec runs the statement called name and says how many rows it changed. Arguments are
// bound in order and may be int, int64, uint64 (at most math.MaxInt64), bool, string,
// []byte (nil is NULL, an empty slice is an empty blob) or nil.
func (tx *Tx) Exec(name string, args ...any) (changed int, err error) {
	if !tx.write {
		return 0, fmt.Errorf("database: statement %s: a view cannot write", name)
	}
	err = tx.each(name, args, func(Row) error { return nil })
	return int(tx.db.conn.Changes()), err
}

// Insert is Exec that returns the rowid of the row inserted.
func (tx *Tx) Insert(name string, args ...any) (rowid int64, err error) {
	if _, err := tx.Exec(name, args...); err != nil {
		return 0, err
	}
	return tx.db.conn.LastInsertRowID(), nil
}

// One runs the statement called name and scans its first row into dest; false if there is
// none.
func (tx *Tx) One(name string, args []any, dest ...any) (found bool, err error) {
	err = tx.each(name, args, func(r Row) error {
		if found {
			return nil
		}
		found = true
		return r.Scan(dest...)
	})
	return found, err
}

// Each runs the statement called name and calls fn with each row. fn must not run the
// same statement again.
func (tx *Tx) Each(name string, args []any, fn func(r Row) error) error {
	return tx.each(name, args, fn)
}

func (tx *Tx) each(name string, args []any, fn func(r Row) error) (err error) {
	stmt, err := tx.db.statement(name)
	if err != nil {
		return err
	}
	if stmt.Busy() {
		panic(fmt.Sprintf("database: internal error: statement %q inside itself", name))
	}
	if n := stmt.BindCount(); n != len(args) {
		panic(fmt.Sprintf("database: internal error: statement %q takes %d arguments, not %d", name, n, len(args)))
	}
	defer func() {
		// Reset repeats the error of the last step; bindings are cleared so that secrets
		// do not linger in them.
		_ = stmt.Reset()
		_ = stmt.ClearBindings()
		if err != nil {
			err = fmt.Errorf("database: statement %s: %w", name, err)
		}
	}()
	for i, arg := range args {
		if err := bind(stmt, i+1, arg); err != nil {
			return err
		}
	}
	for stmt.Step() {
		if err := fn(Row{stmt}); err != nil {
			return err
		}
	}
	if err := stmt.Err(); err != nil {
		if errors.Is(err, sqlite3.CONSTRAINT) {
			return fmt.Errorf("%w: %w", ErrConstraint, err)
		}
		if damaged(err) {
			return tx.db.damage(err)
		}
		return err
	}
	return nil
}

func bind(stmt *sqlite3.Stmt, i int, arg any) error {
	switch v := arg.(type) {
	case nil:
		return stmt.BindNull(i)
	case int:
		return stmt.BindInt64(i, int64(v))
	case int64:
		return stmt.BindInt64(i, v)
	case uint64:
		if v > math.MaxInt64 {
			return fmt.Errorf("%w: argument %d exceeds 63 bits", ErrConstraint, i)
		}
		return stmt.BindInt64(i, int64(v))
	case bool:
		return stmt.BindBool(i, v)
	case string:
		return stmt.BindText(i, v)
	case []byte:
		switch {
		case v == nil:
			return stmt.BindNull(i)
		case len(v) == 0:
			return stmt.BindZeroBlob(i, 0)
		}
		return stmt.BindBlob(i, v)
	}
	panic(fmt.Sprintf("database: internal error: cannot bind %T", arg))
}

// Scan copies the columns into dest: pointers to int, int64, uint64, bool, string or
// []byte. NULL is the zero value; a []byte is a copy.
func (r Row) Scan(dest ...any) error {
	if n := r.stmt.ColumnCount(); n != len(dest) {
		panic(fmt.Sprintf("database: internal error: %d columns into %d places", n, len(dest)))
	}
	for i, d := range dest {
		switch p := d.(type) {
		case *int:
			*p = r.stmt.ColumnInt(i)
		case *int64:
			*p = r.stmt.ColumnInt64(i)
		case *uint64:
			v := r.stmt.ColumnInt64(i)
			if v < 0 {
				return fmt.Errorf("column %s is negative", r.stmt.ColumnName(i))
			}
			*p = uint64(v)
		case *bool:
			*p = r.stmt.ColumnBool(i)
		case *string:
			*p = r.stmt.ColumnText(i)
		case *[]byte:
			if r.stmt.ColumnType(i) == sqlite3.NULL {
				*p = nil
			} else {
				*p = r.stmt.ColumnBlob(i, []byte{})
			}
		default:
			panic(fmt.Sprintf("database: internal error: cannot scan into %T", d))
		}
	}
	return nil
}
