package pgdb

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

//go:embed ground.sql
var ground string

// migration is one step of the schema.
type migration struct {
	number, least int
	name, sql     string
	sum           [32]byte // of the file
}

var (
	migrationName  = regexp.MustCompile(`^([0-9]{4})_[a-z0-9_]+\.sql$`)
	migrationLeast = regexp.MustCompile(`\A-- least: ([0-9]{1,4})\n`)
)

func readMigrations(files fs.FS) ([]migration, error) {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return nil, fmt.Errorf("pgdb: list migrations: %w", err)
	}
	var all []migration
	for _, e := range entries { // by name
		named := migrationName.FindStringSubmatch(e.Name())
		if named == nil {
			return nil, fmt.Errorf("pgdb: %s is no name of a migration, want NNNN_name.sql", e.Name())
		}
		b, err := fs.ReadFile(files, e.Name())
		if err != nil {
			return nil, fmt.Errorf("pgdb: read migration: %w", err)
		}
		least := migrationLeast.FindSubmatch(b)
		if least == nil {
			return nil, fmt.Errorf("pgdb: %s does not begin with \"-- least: N\"", e.Name())
		}
		m := migration{name: e.Name(), sql: string(b), sum: sha256.Sum256(b)}
		m.number, _ = strconv.Atoi(named[1])
		m.least, _ = strconv.Atoi(string(least[1]))
		if m.number != len(all)+1 {
			return nil, fmt.Errorf("pgdb: %s is migration %d by its place", m.name, len(all)+1)
		}
		if m.least < 1 || m.least > m.number || len(all) > 0 && m.least < all[len(all)-1].least {
			return nil, fmt.Errorf("pgdb: %s has least %d, want one from that of the migration before to its own number", m.name, m.least)
		}
		all = append(all, m)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("pgdb: no migrations")
	}
	return all, nil
}

// fill puts the names of the schema and of the replicas' role into SQL.
func (db *DB) fill(sql string) string {
	service := "CURRENT_USER"
	if db.opt.Service != "" {
		service = quoted(db.opt.Service)
	}
	return strings.NewReplacer(":schema", quoted(db.opt.Schema), ":service", service).Replace(sql)
}

// found makes what pgdb keeps itself, if it is not there.
func (db *DB) found(ctx context.Context) error {
	return db.alone(ctx, "found", func(ctx context.Context, c *pgx.Conn) error {
		var there bool
		if err := c.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", db.opt.Schema+".version").Scan(&there); err != nil || there {
			return err
		}
		_, err := exec(ctx, c, "BEGIN; "+db.fill(ground)+"; COMMIT")
		if err != nil {
			rollback(ctx, c)
		}
		if made(err) { // by another process, a moment ago
			return fmt.Errorf("%w: %w", errAgain, err)
		}
		return err
	})
}

// made says whether an object that was to be made is there already: what CREATE ... IF NOT
// EXISTS says too where two of them meet.
func made(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && slices.Contains([]string{"23505", "42P06", "42P07", "42710"}, e.Code)
}

// migrate applies what programs of the version before can live with, if the role may.
func (db *DB) migrate(ctx context.Context) error {
	var may bool
	err := db.alone(ctx, "may-migrate", func(ctx context.Context, c *pgx.Conn) error {
		return c.QueryRow(ctx, "SELECT has_schema_privilege($1, 'CREATE') AND has_table_privilege($2, 'UPDATE')",
			db.opt.Schema, db.opt.Schema+".version").Scan(&may)
	})
	if err != nil || !may {
		return err
	}
	return db.apply(ctx, nil)
}

// Finish applies the migrations that take away what older programs need. None of them may
// run any more: free is asked, in the transaction of each such migration and before it,
// whether all programs that may run have a version of at least least, and its error is
// Finish's. A nil free has nobody asked.
func (db *DB) Finish(ctx context.Context, free func(tx *Tx, least int) error) error {
	if free == nil {
		free = func(*Tx, int) error { return nil }
	}
	return db.apply(ctx, free)
}

// apply applies the migrations that are due, each in a transaction of its own, and those that
// take away where free lets it.
func (db *DB) apply(ctx context.Context, free func(tx *Tx, least int) error) error {
	first := -1 // the version that was found
	for more := true; more; {
		err := db.Update(ctx, "migrate", func(tx *Tx) error {
			more = false
			version, least, err := tx.version(" FOR UPDATE")
			if err != nil {
				return err
			}
			if first < 0 {
				first = version
			}
			if version >= len(db.migrations) {
				return nil
			}
			m := db.migrations[version]
			if first > 0 && m.least > least { // there may be programs of a version before
				if free == nil {
					return nil
				}
				if err := free(tx, m.least); err != nil {
					return err
				}
			}
			if _, err := exec(ctx, tx.conn, db.fill(m.sql)); err != nil {
				return tx.fail(m.name, err)
			}
			_, err = tx.conn.Exec(ctx, "INSERT INTO migration (number, name, sum, least) VALUES ($1, $2, $3, $4)",
				int64(m.number), m.name, m.sum[:], int64(m.least))
			if err != nil {
				return tx.fail("migrate", err)
			}
			more = true
			_, err = tx.conn.Exec(ctx, "UPDATE version SET number = $1, least = $2", int64(m.number), int64(max(m.least, least)))
			return tx.fail("migrate", err)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// fits refuses a schema that this program does not work with.
func (db *DB) fits(ctx context.Context) error {
	return db.View(ctx, "version", func(tx *Tx) error {
		v, err := tx.Version()
		if err != nil {
			return err
		}
		if v.Number < db.opt.Needs {
			return fmt.Errorf("%w: it is of version %d, this program needs %d: have the role that owns the schema migrate it",
				ErrTooOld, v.Number, db.opt.Needs)
		}
		rows, err := tx.conn.Query(ctx, "SELECT number, sum FROM migration ORDER BY number LIMIT $1", int64(db.Newest()))
		if err != nil {
			return tx.fail("version", err)
		}
		defer rows.Close()
		for rows.Next() {
			var number int64
			var sum []byte
			if err := rows.Scan(&number, &sum); err != nil {
				return err
			}
			if m := db.migrations[number-1]; !bytes.Equal(sum, m.sum[:]) {
				return fmt.Errorf("%w: %s was applied otherwise", ErrForeign, m.name)
			}
		}
		return tx.fail("version", rows.Err())
	})
}

// A Version is how far a schema is.
type Version struct {
	Number int // of the last migration that was applied
	Least  int // what a program must have at least
}

// Version reads how far the schema is.
func (db *DB) Version(ctx context.Context) (v Version, err error) {
	err = db.View(ctx, "version", func(tx *Tx) error {
		v.Number, v.Least, err = tx.version("")
		return err
	})
	return v, err
}

// Version reads how far the schema is, and fails with ErrTooNew where it takes no program of
// this version.
func (tx *Tx) Version() (v Version, err error) {
	v.Number, v.Least, err = tx.version("")
	if err == nil && v.Least > tx.db.Newest() {
		err = fmt.Errorf("%w: it is of version %d and takes programs from version %d on, this one is of version %d: start a newer one",
			ErrTooNew, v.Number, v.Least, tx.db.Newest())
	}
	return v, err
}

// Newest is the number of the last migration that this program has.
func (db *DB) Newest() int { return len(db.migrations) }

// Found connects and makes what pgdb itself keeps, and leaves the schema otherwise as it is,
// for the role that owns it: [DB.Migrate] and [DB.Finish] come next.
func Found(ctx context.Context, opt Options) (*DB, error) {
	return reach(ctx, opt, (*DB).inspect, (*DB).found)
}

// Attach connects and leaves the schema as it is; one that this program does not work with
// is refused.
func Attach(ctx context.Context, opt Options) (*DB, error) {
	return reach(ctx, opt, (*DB).inspect, (*DB).fits)
}

// Migrate applies what programs of the version before can live with. It refuses a schema
// that this program does not work with then.
func (db *DB) Migrate(ctx context.Context) error {
	if err := db.apply(ctx, nil); err != nil {
		return err
	}
	return db.fits(ctx)
}

func (tx *Tx) version(lock string) (number, least int, err error) {
	err = tx.conn.QueryRow(tx.ctx, "SELECT number, least FROM version"+lock).Scan(&number, &least)
	return number, least, tx.fail("version", err)
}
