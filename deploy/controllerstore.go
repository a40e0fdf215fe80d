package deploy

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/starling-agg/starling/fl/round"
	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/internal/pgjournal"
	"github.com/starling-agg/starling/internal/service"
)

// defaultTrainingSchema is where a controller's tables are.
const defaultTrainingSchema = "starling_training"

// A ControllerDatabase is a schema of PostgreSQL, 15 or newer, of one training.
type ControllerDatabase struct {
	// File holds the connection string of the role that makes the schema and owns its tables:
	// host=... dbname=... user=... password=..., or a postgres:// URL, as psql takes it. It is
	// read for each new connection, and TLS is verified, as leader.toml's is. Required.
	File service.Secret `toml:"file"`
	// Schema is where all tables are, of this training alone. Default "starling_training".
	Schema string `toml:"schema"`
}

func (d *ControllerDatabase) options() pgjournal.Options {
	return pgjournal.Options{Database: pgdb.Options{File: d.File, Schema: cmp.Or(d.Schema, defaultTrainingSchema)}}
}

// validateStore says what is wrong with the engine by itself.
func (c *Controller) validateStore() error {
	var f Faults
	switch c.Engine {
	case "", Embedded:
		f.If(c.Database != ControllerDatabase{}, "database: it is for engine = \"postgres\"")
	case Postgres:
		f.If(c.Database.File == "", "database.file: the file with a connection string is required")
		if c.Database.File != "" {
			o := c.Database.options()
			f.Add("database.", o.Validate())
		}
	default:
		f.If(true, "engine: %q is none, want embedded or postgres", c.Engine)
	}
	return f.All()
}

// store opens the controller's, which no other process then has; existing fails with
// [os.ErrNotExist] where no controller has begun one.
func (c *Controller) store(ctx context.Context, f *files, log *slog.Logger, existing bool) (round.Store, error) {
	if c.Engine != Postgres {
		if existing {
			if _, err := os.Stat(filepath.Join(string(c.Data), "journal")); err != nil {
				return nil, fmt.Errorf("data: %w", err)
			}
		}
		return round.OnDisk(f.data, nil), nil
	}
	o := c.Database.options()
	o.Log, o.Existing = log, existing
	s, err := pgjournal.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	return s, nil
}
