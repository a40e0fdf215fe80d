package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/database"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service"
)

// An Engine is what keeps an aggregator's rows.
type Engine string

// The engines.
const (
	Embedded Engine = "embedded" // a file in the data directory, of one process
	Postgres Engine = "postgres" // a schema of PostgreSQL, of any number of processes
)

// A Database is a schema of PostgreSQL, 15 or newer, which the processes of one aggregator
// share.
type Database struct {
	// File holds the connection string of the role that serves: host=... dbname=... user=...
	// password=..., or a postgres:// URL, as psql takes it. It is read for each new
	// connection, so that a password is replaced without a restart. TLS is verified as
	// sslmode=verify-full does, unless it says otherwise, and what is weaker is refused but on
	// this machine. A pooler in transaction mode may stand between. Required.
	File service.Secret `toml:"file"`
	// Owner holds the connection string of the role that owns the tables, for starling
	// migrate alone; Service is then required. Default: File's role owns them, and migrates
	// at the start by itself as far as processes of the version before can live with.
	Owner service.Secret `toml:"owner"`
	// Service is the name of the role in File, to which Owner grants what it needs.
	Service string `toml:"service"`
	// Schema is where all tables are, of this aggregator alone. Default "starling".
	Schema string `toml:"schema"`
	// WrappingKeys is the directory of the keys that wrap the aggregator's own keys, which
	// lie in the database: the same files at all processes, in no backup of the database, and
	// made by starling key wrapping. Required.
	WrappingKeys service.Path `toml:"wrapping_keys"`
	// Connections is how many connections a process has at most. Default 16.
	Connections int `toml:"connections"`
}

// options are those of a process that serves.
func (d *Database) options() *aggregator.Database {
	return &aggregator.Database{File: string(d.File), Schema: d.Schema, WrappingKeys: string(d.WrappingKeys), Connections: d.Connections}
}

// validateDatabase says what is wrong with the engine by itself.
func (a *Aggregator) validateDatabase() error {
	var f Faults
	d := &a.Database
	switch a.Engine {
	case "", Embedded:
		f.If(*d != (Database{}), "database: it is for engine = \"postgres\"")
		return f.All()
	case Postgres:
	default:
		f.If(true, "engine: %q is none, want embedded or postgres", a.Engine)
		return f.All()
	}
	f.If(a.Role != dap.RoleHelper, "engine: a leader keeps what it has in its own directory: leave it out")
	f.If(d.File == "", "database.file: the file with a connection string is required")
	f.If((d.Owner == "") != (d.Service == ""), "database.owner: it needs database.service, the name of the role in database.file, and that needs it")
	if d.File != "" {
		f.Add("database.", d.options().Validate())
	}
	f.If(d.WrappingKeys == "", "database.wrapping_keys: the directory is required: starling key wrapping --out DIR")
	return f.All()
}

// checkDatabase reads the files with connection strings.
func (a *Aggregator) checkDatabase() error {
	var f Faults
	for name, file := range map[string]service.Secret{"database.file: ": a.Database.File, "database.owner: ": a.Database.Owner} {
		if file != "" {
			_, err := file.Text()
			f.Add(name, err)
		}
	}
	return f.All()
}

// ErrEmbedded: there is nothing to migrate.
var ErrEmbedded = errors.New("engine is embedded: its file is brought to this version by the start")

// migrateTime bounds a migration that waits for locks.
const migrateTime = time.Hour

// Migrate brings the schema of the aggregator's database to this program's version, as the
// role that owns it; see [database.Migrate].
func (a *Aggregator) Migrate(ctx context.Context, finish bool) (before, after database.Schema, err error) {
	if a.Engine != Postgres {
		return before, after, ErrEmbedded
	}
	ctx, cancel := context.WithTimeout(ctx, migrateTime)
	defer cancel()
	d := a.Database.options()
	if a.Database.Owner != "" {
		d.File, d.Service = string(a.Database.Owner), a.Database.Service
	}
	before, after, err = database.Migrate(ctx, database.MigrateOptions{Database: *d, Finish: finish})
	var wrong *aggregator.StoreError
	if errors.As(err, &wrong) {
		wrong.Role = a.Role.String()
	}
	if err != nil {
		return before, after, fmt.Errorf("database: %w", err)
	}
	return before, after, nil
}
