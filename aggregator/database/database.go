// Package database is for whoever prepares the database of an aggregator: it brings its schema
// to a version of this program, and makes the keys that wrap what must not lie there as it
// is.
//
// # Versions
//
// Programs of two versions that follow one another may work side by side on one schema: a
// migration either only adds, and is applied while programs of the version before run, or
// takes away what these need, and is applied when none of them runs any more. So the order
// is: [Migrate], then replace the processes one by one, then Migrate with Finish.
package database

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/payload/objects"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
)

// MigrateOptions say which schema, and how far.
type MigrateOptions struct {
	// Database is reached as the role that owns its tables, or is to own them.
	Database aggregator.Database
	// Finish applies what takes away from programs of versions before this one: none of them
	// may run.
	Finish bool
}

// A Schema is how far a schema is.
type Schema struct {
	Name    string
	Version int // of the last migration that was applied; 0: there was none
	Least   int // the oldest version of the program that works with it
	Newest  int // that this program has
}

// Migrate applies the migrations that are due, and says how far the schema was and is. Again is
// harmless, also at once.
func Migrate(ctx context.Context, o MigrateOptions) (before, after Schema, err error) {
	if err := o.Database.Validate(); err != nil {
		return before, after, err
	}
	m, err := postgres.Migrate(ctx, postgres.DatabaseOf(&o.Database), o.Finish)
	if err != nil {
		return before, after, err
	}
	before = Schema{o.Database.Schema, m.Before.Number, m.Before.Least, m.Newest}
	return before, Schema{o.Database.Schema, m.After.Number, m.After.Least, m.Newest}, nil
}

// RestoreOptions say whose database was put back.
type RestoreOptions struct {
	// Database is that of the processes that serve, with its marks.
	Database aggregator.Database
	// Role and Party are the aggregator's: the URL under which it is reached.
	Role  dap.Role
	Party string
}

// Restored is what a restore did.
type Restored struct {
	Epoch     uint64 `json:"restore_epoch"` // how often the aggregator was restored
	Tasks     int    `json:"tasks"`         // that were closed
	Forgotten int    `json:"forgotten"`     // tasks that released after the backup and are not in it
	Reports   uint64 `json:"reports"`       // that waited, and were dropped
}

// ErrNoMarks: a database without marks cannot be restored, for what was released after the
// backup nobody knows.
var ErrNoMarks = errors.New("database: it has no marks")

// Restore takes a database that was put back for the aggregator's own from now on. Every
// task is closed for good, for what it took and released after the backup nobody knows:
// answers that are ready stay, what waited is dropped, and HPKE keys are destroyed. Tasks
// that released after the backup and are not in it are never taken again. No process may
// serve meanwhile. It fails with [ErrNoMarks] and [aggregator.StoreError].
func Restore(ctx context.Context, o RestoreOptions) (done Restored, err error) {
	if err := o.Database.Validate(); err != nil {
		return done, err
	}
	if o.Database.Marks == nil {
		return done, ErrNoMarks
	}
	marks, place, err := objects.Marks(ctx, o.Database.Marks)
	if err != nil {
		return done, err
	}
	defer func() { err = errors.Join(err, place.Close()) }()
	r, err := postgres.Restore(ctx, postgres.Options{Database: postgres.DatabaseOf(&o.Database), Role: o.Role, Party: o.Party, Marks: marks})
	return Restored(r), err
}

// CheckObjects says what is wrong with object storage as it is configured, credentials
// included. It asks nothing of the store.
func CheckObjects(o *aggregator.Objects) error {
	_, err := objects.Configured(o)
	return err
}

// AddWrappingKey makes a wrapping key in a directory, which is made where it is missing, and
// says its name. It is the newest from then on: every process is to have it before any
// does.
func AddWrappingKey(dir string, now time.Time) (name string, err error) {
	fsys, err := disk.OS(filepath.Dir(dir))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, fsys.Close()) }()
	files, err := wrap.OpenFiles(fsys, filepath.Base(dir), nil)
	if err != nil {
		return "", err
	}
	return files.Add(now)
}
