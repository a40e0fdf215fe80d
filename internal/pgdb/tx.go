package pgdb

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
)

// Tx is a transaction, valid while the function it was given to runs, in that goroutine
// alone.
type Tx struct {
	ctx  context.Context
	db   *DB
	conn *pgx.Conn
	err  error // the first that the server or the connection gave
}

// Exec runs the statement called name and says how many rows it changed. Arguments are
// $1, $2, ... in order and may be int, int64, uint64 (at most math.MaxInt64), bool, string,
// []byte (nil is NULL, an empty slice is empty), []int64, [][]byte or nil.
func (tx *Tx) Exec(name string, args ...any) (changed int64, err error) {
	if args, err = tx.bind(name, args); err != nil {
		return 0, err
	}
	tag, err := tx.conn.Exec(tx.ctx, tx.db.statement(name), args...)
	return tag.RowsAffected(), tx.fail(name, err)
}

// One runs the statement called name and scans its first row into dest; false if there is
// none.
func (tx *Tx) One(name string, args []any, dest ...any) (found bool, err error) {
	err = tx.Each(name, args, func(r Row) error {
		if found {
			return nil
		}
		found = true
		return r.Scan(dest...)
	})
	return found, err
}

// Each runs the statement called name and calls fn with each row. fn must not run a
// statement: the connection is in use.
func (tx *Tx) Each(name string, args []any, fn func(r Row) error) error {
	args, err := tx.bind(name, args)
	if err != nil {
		return err
	}
	rows, err := tx.conn.Query(tx.ctx, tx.db.statement(name), args...)
	if err != nil {
		return tx.fail(name, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(Row{rows}); err != nil {
			return err
		}
	}
	return tx.fail(name, rows.Err())
}

// fail remembers what broke the transaction, in case that the function says nothing of it.
func (tx *Tx) fail(name string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("statement %s: %w", name, classify(err))
	if tx.err == nil {
		tx.err = err
	}
	return err
}

func (tx *Tx) bind(name string, args []any) ([]any, error) {
	bound := make([]any, len(args))
	for i, arg := range args {
		switch v := arg.(type) {
		case nil, bool, string, int64, []byte, []int64, [][]byte:
			bound[i] = v
		case int:
			bound[i] = int64(v)
		case uint64:
			if v > math.MaxInt64 {
				return nil, fmt.Errorf("%w: statement %s: argument %d exceeds 63 bits", ErrConstraint, name, i+1)
			}
			bound[i] = int64(v)
		default:
			panic(fmt.Sprintf("pgdb: internal error: cannot bind %T", arg))
		}
	}
	return bound, nil
}

// Row is the current row of a statement, valid during the call it was given to.
type Row struct{ rows pgx.Rows }

// Scan copies the columns into dest: pointers to int, int64, uint64, bool, string or
// []byte. NULL is the zero value; a []byte is a copy.
func (r Row) Scan(dest ...any) error {
	if n := len(r.rows.FieldDescriptions()); n != len(dest) {
		panic(fmt.Sprintf("pgdb: internal error: %d columns into %d places", n, len(dest)))
	}
	through := make([]any, len(dest))
	for i, d := range dest {
		switch d.(type) {
		case *int, *int64, *uint64:
			through[i] = new(*int64)
		case *bool:
			through[i] = new(*bool)
		case *string:
			through[i] = new(*string)
		case *[]byte:
			through[i] = d
		default:
			panic(fmt.Sprintf("pgdb: internal error: cannot scan into %T", d))
		}
	}
	if err := r.rows.Scan(through...); err != nil {
		return fmt.Errorf("pgdb: %w", err)
	}
	for i, d := range dest {
		switch p := d.(type) {
		case *int:
			*p = int(valued(through[i].(**int64)))
		case *int64:
			*p = valued(through[i].(**int64))
		case *uint64:
			n := valued(through[i].(**int64))
			if n < 0 {
				return fmt.Errorf("pgdb: column %s is negative", r.rows.FieldDescriptions()[i].Name)
			}
			*p = uint64(n)
		case *bool:
			*p = valued(through[i].(**bool))
		case *string:
			*p = valued(through[i].(**string))
		}
	}
	return nil
}

func valued[T any](p **T) (v T) {
	if *p != nil {
		v = **p
	}
	return v
}

// Encrypted says whether the connection to the server is.
func (tx *Tx) Encrypted() bool {
	_, ok := tx.conn.PgConn().Conn().(*tls.Conn)
	return ok
}
