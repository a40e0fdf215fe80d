package postgres

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/payload"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/internal/service"
)

//go:embed migrations/*.sql statements/*.sql
var files embed.FS

// Options say where the data set is, and whose. Role and Party are required.
type Options struct {
	// Database is where it is; Migrations and Statements are the engine's own.
	Database pgdb.Options
	// Role and Party are the aggregator's: the URL under which it is reached. A data set of
	// another is refused.
	Role  dap.Role
	Party string
	// Wrapper opens what wraps the roots of the tasks' secrets, as it does the secrets of a
	// [Vault]. It is called once the data set is known to be this program's. Required.
	Wrapper func(ctx context.Context) (wrap.Wrapper, error)
	// Keys opens the data keys, whose book is the data set. Required.
	Keys func(ctx context.Context, book datakey.Book) (Keys, error)
	// Objects has the objects of uploads that are no rows; nil where all are.
	Objects payload.Store
	// Marks keeps how far the data set has come, where no backup of the database reaches and
	// all processes do. Optional: without it nobody notices that the database was put back.
	Marks payload.Store
	// Grave is the age of a tombstone at which its object goes; default 10 minutes.
	Grave time.Duration
	// Stray is for how long an object that no row names is left alone; default 24 hours.
	Stray time.Duration
	// Clock says which data key is the one of now; default [disk.SystemClock].
	Clock disk.Clock
	// Rand is the source of keys; default [rand.Reader].
	Rand io.Reader
}

// Validate fills in defaults and says what is wrong.
func (o *Options) Validate() error {
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	if o.Grave == 0 {
		o.Grave = oldGrave
	}
	if o.Keys == nil || o.Wrapper == nil {
		return errors.New("store: Options.Keys and Wrapper are required")
	}
	if o.Stray == 0 {
		o.Stray = strayAge
	}
	if o.Grave < 0 || o.Stray < 0 {
		return errors.New("store: Options.Grave or Stray is negative")
	}
	if o.Party == "" || o.Role != dap.RoleLeader && o.Role != dap.RoleHelper {
		return errors.New("store: Options.Role and Party are required")
	}
	return nil
}

// Store is a handle on the data set of one aggregator. It remembers nothing of it that
// can change, but for hints, so that any number of them may be open.
type Store struct {
	db        *pgdb.DB
	key       []byte         // of resource ids
	setKey    segment.SetKey // of the digests of runs
	filterKey [32]byte       // of their filters
	keys      Keys
	roots     *roots
	clock     disk.Clock
	cache     cache
	objects   payload.Store // nil where all payload is in rows
	marks     *marks        // nil where none are kept
	role      string
	wrong     atomic.Pointer[aggregator.StoreError] // set once the schema is put back, or takes newer programs alone
	grave     time.Duration
	stray     time.Duration
	holder    [16]byte     // of chores: random
	past      past         // free slices that claims pass over
	full      full         // batches that claims pass over
	left      atomic.Int64 // the object behind which Leftover looks next
	tasks     sync.Map     // *store.Task by dap.TaskID, of those that this handle was told of
	views     sync.Map     // []uint64 by dap.TaskID: those of tasks that this handle has met
	viewed    atomic.Bool  // one of the tasks that this handle was told of has views
	forgot    atomic.Int64 // when outcomes were forgotten last, in Unix nanoseconds
}

var (
	_ store.Base      = (*Store)(nil)
	_ store.Helper    = (*Store)(nil)
	_ store.Leader    = (*Store)(nil)
	_ store.Resources = (*Store)(nil)
)

// Open opens the data set of an aggregator, and makes it if there is none and the role may.
// That of another aggregator is an [*aggregator.StoreError].
func Open(ctx context.Context, opt Options) (*Store, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	db, err := reach(ctx, opt.Database, pgdb.Open)
	var wrong *aggregator.StoreError
	if errors.As(err, &wrong) {
		wrong.Role = opt.Role.String()
	}
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, clock: opt.Clock, objects: opt.Objects, grave: opt.Grave, stray: opt.Stray, role: opt.Role.String()}
	rand.Read(s.holder[:]) // never fails
	if err = s.identify(ctx, &opt); err == nil {
		err = s.openMarks(ctx, &opt)
	}
	if err == nil {
		err = s.openRoots(ctx, opt.Wrapper)
	}
	if err == nil {
		s.setKeys()
		s.keys, err = opt.Keys(ctx, s)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return s, nil
}

// setKeys derives what is made from the data set's own key.
func (s *Store) setKeys() {
	s.setKey, s.filterKey = segment.SetKeyOf(s.key), filterKeyOf(s.key)
}

// DatabaseOf is where a database of an aggregator's options is.
func DatabaseOf(d *aggregator.Database) pgdb.Options {
	return pgdb.Options{File: service.Secret(d.File), Schema: d.Schema, Service: d.Service, Connections: d.Connections}
}

// Migrated is how far a schema was, and is.
type Migrated struct {
	Before, After pgdb.Version
	Newest        int // that this program has
}

// Migrate makes the schema, or brings it to this program's version, as the role that owns
// it. Programs of the version before go on meanwhile; with finish it takes away what they
// need, and is refused where one of them lives.
func Migrate(ctx context.Context, opt pgdb.Options, finish bool) (m Migrated, err error) {
	db, err := reach(ctx, opt, pgdb.Found)
	if err != nil {
		return m, err
	}
	defer db.Close()
	m.Newest = db.Newest()
	steps := []func(context.Context) error{db.Migrate}
	if finish {
		steps = []func(context.Context) error{func(ctx context.Context) error { return db.Finish(ctx, freed(opt.Schema)) }, db.Migrate}
	}
	m.Before, err = db.Version(ctx)
	for _, step := range steps {
		if err == nil {
			err = step(ctx)
		}
	}
	if err == nil {
		m.After, err = db.Version(ctx)
	}
	return m, unfit("migrate", opt.Schema, err)
}

// reach opens the schema, with the engine's own files.
func reach(ctx context.Context, opt pgdb.Options, open func(context.Context, pgdb.Options) (*pgdb.DB, error)) (db *pgdb.DB, err error) {
	if opt.Migrations, err = fs.Sub(files, "migrations"); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	opt.Needs = 3 // all but what older programs cannot read
	if opt.Statements, err = fs.Sub(files, "statements"); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	db, err = open(ctx, opt)
	return db, unfit("open", opt.Schema, err)
}

// unfit turns what makes a schema no place for this program into a StoreError, which whoever
// configured it is told.
func unfit(name, schema string, err error) error {
	for sentinel, fault := range map[error]aggregator.StoreFault{
		pgdb.ErrTooNew: aggregator.NewerSchema, pgdb.ErrTooOld: aggregator.OlderSchema, pgdb.ErrForeign: aggregator.ForeignSchema,
	} {
		if errors.Is(err, sentinel) {
			return &aggregator.StoreError{Fault: fault, Detail: fmt.Sprintf("%s: %v", schema, err)}
		}
	}
	if errors.Is(err, pgdb.ErrUnreached) {
		return &aggregator.StoreError{Fault: aggregator.Unreached, Detail: err.Error()}
	}
	if name == "open" && errors.Is(err, pgdb.ErrDenied) {
		return &aggregator.StoreError{Fault: aggregator.OlderSchema,
			Detail: fmt.Sprintf("%s: it is not there, or not whole, and the role that serves may not make it: %v", schema, err)}
	}
	return outcome(name, err)
}

// identify makes a new data set the aggregator's, and refuses one of another.
func (s *Store) identify(ctx context.Context, opt *Options) error {
	fresh := make([]byte, 32+16)
	if _, err := io.ReadFull(opt.Rand, fresh); err != nil {
		return fmt.Errorf("store: random bytes: %w", err)
	}
	var role int
	var party string
	err := s.update(ctx, "open", func(tx *pgdb.Tx) error {
		if _, err := tx.Exec("put-identity", fresh[:32], fresh[32:], int(opt.Role), opt.Party); err != nil {
			return err
		}
		_, err := tx.One("identity", nil, &s.key, &role, &party)
		return err
	})
	if err != nil {
		return err
	}
	return opt.owns(dap.Role(role), party)
}

// owns refuses the data set of another aggregator.
func (opt *Options) owns(role dap.Role, party string) error {
	if role != opt.Role || party != opt.Party {
		return &aggregator.StoreError{Fault: aggregator.ForeignSchema, Role: opt.Role.String(),
			Detail: fmt.Sprintf("the schema %s is that of the %v at %s, not of the %v at %s", opt.Database.Schema, role, party, opt.Role, opt.Party)}
	}
	return nil
}

// Close ends the handle when its transactions are over.
func (s *Store) Close() error {
	s.db.Close()
	return nil
}

func (s *Store) update(ctx context.Context, name string, fn func(tx *pgdb.Tx) error) error {
	if err := s.fault(); err != nil {
		return err
	}
	return s.outcome(name, s.rooted(ctx, func() error { return s.db.Update(ctx, name, fn) }))
}

func (s *Store) view(ctx context.Context, name string, fn func(tx *pgdb.Tx) error) error {
	if err := s.fault(); err != nil {
		return err
	}
	return s.outcome(name, s.rooted(ctx, func() error { return s.db.View(ctx, name, fn) }))
}

// outcome turns what the database says into the store's errors.
func outcome(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, pgdb.ErrUnknown):
		return fmt.Errorf("%w: %s: %w", store.ErrUnknown, name, err)
	case errors.Is(err, pgdb.ErrNoRoom):
		return fmt.Errorf("%w: %s: %w", store.ErrNoRoom, name, err)
	case errors.Is(err, pgdb.ErrAway), errors.Is(err, errGrounded):
		return fmt.Errorf("%w: %s: %w", store.ErrAgain, name, err)
	}
	return fmt.Errorf("store: %w", err)
}
