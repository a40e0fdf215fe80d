package pgdb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	connLifetime = 30 * time.Minute
	maxResolve   = 10 * time.Minute
	leastServer  = 150000 // server_version_num of PostgreSQL 15
)

// DB is a handle on one schema. All methods are safe for many goroutines.
type DB struct {
	opt        Options
	pool       *pgxpool.Pool
	writers    chan struct{} // as many as may write at one time
	migrations []migration
	statements map[string]string
}

// Open connects, makes the schema if it is not there, and applies the migrations that
// programs of the version before can live with, where its role may.
func Open(ctx context.Context, opt Options) (*DB, error) {
	return reach(ctx, opt, (*DB).inspect, (*DB).found, (*DB).migrate, (*DB).fits)
}

// reach connects and takes some steps.
func reach(ctx context.Context, opt Options, steps ...func(*DB, context.Context) error) (_ *DB, err error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	db := &DB{opt: opt}
	if db.migrations, err = readMigrations(opt.Migrations); err != nil {
		return nil, err
	}
	if db.opt.Needs == 0 {
		db.opt.Needs = len(db.migrations)
	}
	if db.statements, err = readStatements(opt.Statements); err != nil {
		return nil, err
	}
	config, err := db.opt.pool()
	if err != nil {
		return nil, err
	}
	db.writers = make(chan struct{}, db.opt.Connections-1)
	if db.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("pgdb: %w", err)
	}
	for _, step := range steps {
		if err := step(db, ctx); err != nil {
			db.Close()
			return nil, err
		}
	}
	return db, nil
}

// Close ends all connections, when the transactions under way are over.
func (db *DB) Close() { db.pool.Close() }

// inspect refuses servers that are too old, or lose what they have committed.
func (db *DB) inspect(ctx context.Context) error {
	return db.alone(ctx, "inspect", func(ctx context.Context, c *pgx.Conn) error {
		var version, fsync string
		var number int64
		row := c.QueryRow(ctx, "SELECT version(), current_setting('server_version_num')::bigint, coalesce(current_setting('fsync', true), 'on')")
		if err := row.Scan(&version, &number, &fsync); err != nil {
			return err
		}
		// Compatible services say of themselves what they are, and count otherwise.
		if strings.HasPrefix(version, "PostgreSQL ") && number < leastServer {
			return fmt.Errorf("pgdb: the server is %s, want PostgreSQL 15 or newer", version)
		}
		if fsync != "on" && !db.opt.Volatile {
			return fmt.Errorf("%w: fsync is %s: set it to on in postgresql.conf", ErrUnsafe, fsync)
		}
		return nil
	})
}

// alone runs statements that stand for themselves, each a transaction, and may be run
// again.
func (db *DB) alone(ctx context.Context, name string, fn func(ctx context.Context, c *pgx.Conn) error) error {
	return db.again(ctx, name, func() error {
		conn, err := db.pool.Acquire(ctx)
		if err != nil {
			return classify(err)
		}
		defer conn.Release()
		if err = fn(ctx, conn.Conn()); err != nil && conn.Conn().IsClosed() {
			return fmt.Errorf("%w: %w", errAgain, err)
		}
		return classify(err)
	})
}

// again calls try until it fails with something else than errAgain, or the attempts or the
// caller's context are over.
func (db *DB) again(ctx context.Context, name string, try func() error) error {
	for n := 1; ; n++ {
		err := try()
		switch {
		case err == nil:
			return nil
		case over(ctx):
			return fmt.Errorf("pgdb: %s: %w", name, errors.Join(context.Cause(ctx), err))
		case !errors.Is(err, errAgain):
			return fmt.Errorf("pgdb: %s: %w", name, err)
		case n >= db.opt.Attempts:
			return fmt.Errorf("pgdb: %s: %w: %w", name, ErrAway, err)
		}
		if err := db.pause(ctx, n); err != nil {
			return fmt.Errorf("pgdb: %s: %w", name, err)
		}
	}
}

// statement is the text called name.
func (db *DB) statement(name string) string {
	text, ok := db.statements[name]
	if !ok {
		panic(fmt.Sprintf("pgdb: internal error: no statement %q", name))
	}
	return text
}

// exec runs SQL of several statements, as one transaction unless it says otherwise.
func exec(ctx context.Context, c *pgx.Conn, sql string) ([]*pgconn.Result, error) {
	return c.PgConn().Exec(ctx, sql).ReadAll()
}

// quoted is a name as it stands in SQL.
func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }
