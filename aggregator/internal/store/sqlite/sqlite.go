package sqlite

import (
	"bytes"
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service/database"
	"github.com/starling-agg/starling/vdaf"
)

//go:embed migrations/*.sql statements/*.sql
var files embed.FS

// DefaultFile is the database where options name no other.
const DefaultFile = "store.db"

// Options say where the store lives, and whose it is. FS, Record, Role and Party are
// required.
type Options struct {
	// FS is this process's alone: whoever opens it takes its lock ([disk.OSFS.Lock])
	// before the store.
	FS disk.FS
	// Record, outside of FS, knows who the store is and how far it has come; this
	// process's alone, too.
	Record disk.FS
	// Role and Party are the aggregator's: the URL under which it is reached. A store of
	// another is refused.
	Role  dap.Role
	Party string
	// Restoring, if set, ends a restore whose record was raised, in the database that was
	// put back.
	Restoring *Restoring
	// File is the database; default [DefaultFile].
	File string
	// Runs is the directory of the run files, the engine's own; default "runs".
	Runs string
	// MaxRuns is how many run files of idle tasks are kept open; default 256.
	MaxRuns int
	// RangeIDs is how many report ids a range has at most; default [segment.RangeIDs].
	// Tests take less.
	RangeIDs int64
	// Rand is the source of keys, lease tokens and batch ids; default [rand.Reader].
	Rand io.Reader
	// Logger gets a line when merging run files fails, which harms nothing but speed;
	// default none.
	Logger *slog.Logger
	// Observe is told of each transaction; see [database.Options].
	Observe func(name string, took time.Duration, err error)
	// Clock measures what Observe is told, and how long the record is behind; default
	// [disk.SystemClock].
	Clock disk.Clock
	// Failpoints is nil in production. Its names are "store.<transaction>.before-commit"
	// and ".after-commit".
	Failpoints *disk.Failpoints
}

// Validate fills in defaults and says what is wrong.
func (o *Options) Validate() error {
	if o.File == "" {
		o.File = DefaultFile
	}
	if o.Runs == "" {
		o.Runs = "runs"
	}
	if o.MaxRuns == 0 {
		o.MaxRuns = 256
	}
	if o.RangeIDs == 0 {
		o.RangeIDs = segment.RangeIDs
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Clock == nil {
		o.Clock = disk.SystemClock
	}
	switch {
	case o.FS == nil:
		return errors.New("store: Options.FS is required")
	case o.Record == nil || o.Party == "" || o.Role != dap.RoleLeader && o.Role != dap.RoleHelper:
		return errors.New("store: Options.Record, Role and Party are required")
	case o.MaxRuns < 0 || o.RangeIDs < 0:
		return fmt.Errorf("store: MaxRuns %d or RangeIDs %d is negative", o.MaxRuns, o.RangeIDs)
	}
	return errors.Join(disk.CheckName(o.File), disk.CheckName(o.Runs))
}

// Store is one handle on the embedded engine. Its methods are documented at
// [store.Engine]. A process has one; the conformance suite has two on one engine.
type Store struct {
	*engine
	replay replay // the runs that this handle has read
}

// engine is what the handles share: the database, and the locks, which are rows where
// handles are of many processes. Its memory of tasks agrees with the rows at any time.
type engine struct {
	opt    Options
	db     *database.DB
	key    []byte         // of resource ids
	setKey segment.SetKey // of the digests of runs
	id     origin

	// Locks, in the order in which they are taken; the gate of a task comes after its
	// resource.
	resources keyed[resourceKey]
	flights   flights       // of report ids
	spends    flights       // of marks
	merges    keyed[runsOf] // who merges or mends them, or ends their round
	loads     keyed[runsOf] // who opens them, or has changed the rows of them
	burial    sync.Mutex    // one Bury at a time

	commits atomic.Uint64 // transactions that may have changed a row
	totals  totals

	provision sync.Mutex   // one PutTask at a time
	mu        sync.RWMutex // guards the maps; never held while waiting for the database
	tasks     map[dap.TaskID]*task
	rows      map[int64]*task
}

var (
	_ store.Engine   = (*Store)(nil)
	_ store.Embedded = (*Store)(nil)
)

// task is what the engine keeps in memory of a task.
type task struct {
	store.Task // all but VDAF and End, which is guarded by mu, never change
	row        int64

	// gate: commits hold it shared, changes of a batch's state alone.
	gate sync.RWMutex

	mu     sync.RWMutex   // guards what follows
	vdaf   vdaf.VDAF      // nil until PutTask in this life of the process
	closed []span         // time-interval: what was released, in whatever view; disjoint, ascending
	gone   int64          // batch buckets before it are closed; see [store.Releases].EndViews
	holds  map[int64]hold // time-interval: by row of the resource

	closedIn uint32      // written in Open; see [store.TaskState]
	retired  bool        // written with gate held alone, too
	swept    atomic.Bool // nothing is left to sweep
	shut     time.Time   // guarded by mu; when it was closed in the registry
}

// span is an interval of time with both ends included, clamped to what a row can hold.
type span struct{ first, last int64 }

type hold struct {
	span
	frozen bool
}

// spanOf clamps an interval. No report lies in what is cut off.
func spanOf(iv dap.Interval) (span, error) {
	end, ok := iv.End()
	if !ok || iv.Duration == 0 {
		return span{}, fmt.Errorf("store: invalid interval %v", iv)
	}
	return span{int64(min(iv.Start, math.MaxInt64)), int64(min(end-1, math.MaxInt64))}, nil
}

func (s span) contains(t int64) bool  { return s.first <= t && t <= s.last }
func compareSpan(s span, t int64) int { return cmpInt(s.last, t) }

func cmpInt(a, b int64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// stateOf says where the batch bucket of a time-interval task stands, and whether a
// collection has frozen it.
func (t *task) stateOf(bucket dap.Time) (state store.BatchState, frozen bool) {
	at := int64(min(bucket, math.MaxInt64))
	t.mu.RLock()
	defer t.mu.RUnlock()
	i, _ := slices.BinarySearchFunc(t.closed, at, compareSpan) // the first that ends at or after it
	if at < t.gone || i < len(t.closed) && t.closed[i].contains(at) {
		return store.Closed, false
	}
	for _, h := range t.holds {
		if h.contains(at) {
			return store.Draining, h.frozen
		}
	}
	return store.Open, false
}

func (t *task) close(s span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Spans of views are within one another or apart.
	i, _ := slices.BinarySearchFunc(t.closed, s.first, compareSpan)
	if i < len(t.closed) && t.closed[i].first <= s.first && s.last <= t.closed[i].last {
		return
	}
	end := i
	for end < len(t.closed) && t.closed[end].last <= s.last {
		end++
	}
	t.closed = slices.Replace(t.closed, i, end, s)
}

func (t *task) setHold(resource int64, h hold) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.holds[resource] = h
}

func (t *task) dropHold(resource int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.holds, resource)
}

func (t *task) getVDAF() (vdaf.VDAF, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.vdaf == nil {
		return nil, errors.New("store: task was not provisioned since the start")
	}
	return t.vdaf, nil
}

// minimum is the least count ever released.
func (t *task) minimum() uint64 { return max(t.MinBatch, 1) }

// Open opens the store of a process and makes it if nothing of one is there. A store that
// does not fit its record, its files or the options is an [*aggregator.StoreError].
// Leases of earlier lives are void, and files that lost their rows in them are removed.
// Those that never had one are the caller's matter.
func Open(ctx context.Context, opt Options) (_ *Store, err error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	s := &Store{engine: &engine{opt: opt, tasks: make(map[dap.TaskID]*task), rows: make(map[int64]*task)}}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := s.recognise(); err != nil {
		return nil, err
	}
	for _, dir := range []string{path.Dir(opt.File), opt.Runs} {
		if err := disk.MakeDirs(opt.FS, dir); err != nil {
			return nil, fmt.Errorf("store: %w", err)
		}
	}
	migrations, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	statements, err := fs.Sub(files, "statements")
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	s.db, err = database.Open(database.Options{
		FS: opt.FS, Name: opt.File, Migrations: migrations, Statements: statements,
		Prefix: "store", Failpoints: opt.Failpoints, Observe: opt.Observe, Clock: opt.Clock,
		ApplicationID: applicationID, Existing: !s.id.fresh,
	})
	switch {
	case errors.Is(err, database.ErrForeign):
		return nil, s.unfit(aggregator.ForeignStore, "%s is not the database of an aggregator", opt.File)
	case errors.Is(err, database.ErrMissing):
		return nil, s.unfit(aggregator.DatabaseLost, "%s has nothing in it", opt.File)
	case errors.Is(err, database.ErrDamaged):
		return nil, s.damaged(err)
	case err != nil:
		return nil, outcome("open", err)
	}
	key, err := s.random(32)
	if err != nil {
		return nil, err
	}
	if err := s.update(ctx, "open", func(tx *database.Tx) error { return s.load(tx, key) }); err != nil {
		if unfit := new(aggregator.StoreError); errors.As(err, &unfit) {
			return nil, unfit
		}
		if errors.Is(err, database.ErrDamaged) {
			return nil, s.damaged(err)
		}
		return nil, err
	}
	if err := s.Bury(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// load is the transaction of Open. key becomes the key of resource ids of a new store.
func (s *Store) load(tx *database.Tx, key []byte) error {
	if err := s.identify(tx, key); err != nil {
		return err
	}
	s.setKey = segment.SetKeyOf(s.key)
	if _, err := tx.Exec("void-leases"); err != nil {
		return err
	}
	err := tx.Each("tasks", nil, func(r database.Row) error {
		var id []byte
		var mode int
		var precision uint64
		t := &task{holds: make(map[int64]hold)}
		var swept bool
		var closed uint64
		var shut, ends int64
		if err := r.Scan(&t.row, &id, &t.Config, &mode, &precision, &t.MinBatch, &t.retired, &swept, &closed, &shut, &ends, &t.gone); err != nil {
			return err
		}
		if shut != 0 {
			t.shut = time.Unix(0, shut).UTC()
		}
		if ends != 0 { // of a task that nobody may open any more
			t.End = time.Unix(ends, 0).UTC()
		}
		t.swept.Store(swept)
		t.closedIn = uint32(closed)
		t.ID, t.Mode, t.TimePrecision = dap.TaskID(id), dap.BatchMode(mode), dap.TimePrecision(precision)
		s.tasks[t.ID], s.rows[t.row] = t, t
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.readViews(tx); err != nil {
		return err
	}
	if err := s.checkBatches(tx); err != nil {
		return err
	}
	err = tx.Each("releases", nil, func(r database.Row) error {
		var row int64
		var sp span
		if err := r.Scan(&row, &sp.first, &sp.last); err != nil {
			return err
		}
		s.rows[row].close(sp)
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.closeAll(tx); err != nil {
		return err
	}
	return tx.Each("holds", nil, func(r database.Row) error {
		var resource, row int64
		var h hold
		if err := r.Scan(&resource, &row, &h.first, &h.last, &h.frozen); err != nil {
			return err
		}
		s.rows[row].setHold(resource, h)
		return nil
	})
}

// Close implements [store.Engine].
func (s *Store) Close() error {
	s.replay.close()
	var errs []error
	if s.db != nil {
		errs = append(errs, s.db.CloseAfter(s.rest))
	}
	if s.id.record != nil {
		errs = append(errs, s.id.record.Close())
		s.id.record = nil
	}
	return errors.Join(errs...)
}

// KeepFree sets how many bytes have to be free on the disk for a transaction to begin;
// below that they fail with [store.ErrNoRoom].
func (s *Store) KeepFree(bytes int64) { s.db.KeepFree(bytes) }

// KeysWereMade implements [store.Engine].
func (s *Store) KeysWereMade(ctx context.Context) (made bool, err error) {
	err = s.view(ctx, "keys-made", func(tx *database.Tx) error {
		_, err := tx.One("keys-made", nil, &made)
		return err
	})
	return made, err
}

// NoteKeys implements [store.Engine].
func (s *Store) NoteKeys(ctx context.Context) error {
	if made, err := s.KeysWereMade(ctx); made || err != nil {
		return err
	}
	return s.update(ctx, "note-keys", func(tx *database.Tx) error {
		_, err := tx.Exec("note-keys")
		return err
	})
}

func (s *Store) update(ctx context.Context, name string, fn func(tx *database.Tx) error) error {
	defer s.commits.Add(1)
	return outcome(name, s.db.Update(ctx, name, fn))
}

func (s *Store) view(ctx context.Context, name string, fn func(tx *database.Tx) error) error {
	return outcome(name, s.db.View(ctx, name, fn))
}

func (s *Store) snapshot(ctx context.Context, name string, fn func(tx *database.Tx, file disk.File) error) error {
	return outcome(name, s.db.Snapshot(ctx, name, fn))
}

// outcome names the operation and turns the database's unknown into the store's.
func outcome(name string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, database.ErrUnknown):
		return fmt.Errorf("%w: %s: %w", store.ErrUnknown, name, err)
	case errors.Is(err, database.ErrNoRoom), disk.IsFull(err):
		// of the database, of a file beside it
		return fmt.Errorf("%w: %s: %w", store.ErrNoRoom, name, err)
	}
	return fmt.Errorf("store: %s: %w", name, err)
}

func (s *Store) random(n int) ([]byte, error) {
	b := make([]byte, n)
	if _, err := io.ReadFull(s.opt.Rand, b); err != nil {
		return nil, fmt.Errorf("store: random bytes: %w", err)
	}
	return b, nil
}

func (s *Store) task(id dap.TaskID) (*task, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t := s.tasks[id]
	if t == nil {
		return nil, fmt.Errorf("%w: task", store.ErrNotFound)
	}
	return t, nil
}

func (s *Store) taskByRow(row int64) *task {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rows[row]
}

// checkTask says what no row can hold.
func checkTask(in *store.Task) error {
	if in == nil || in.Mode != dap.TimeInterval && in.Mode != dap.LeaderSelected {
		return errors.New("no task, or of an unknown batch mode")
	}
	return store.CheckViews(in)
}

// same says whether a task that is there is provisioned with the same configuration.
func (t *task) same(in *store.Task) error {
	if !bytes.Equal(t.Config, in.Config) || t.Mode != in.Mode || t.TimePrecision != in.TimePrecision || t.MinBatch != in.MinBatch ||
		!slices.Equal(t.Views, in.Views) {
		return fmt.Errorf("%w: task provisioned with another configuration", store.ErrDifferent)
	}
	return nil
}

// PutTask implements [store.Tasks].
func (s *Store) PutTask(ctx context.Context, in *store.Task) error {
	if in.VDAF == nil {
		return errors.New("store: put task: VDAF is required")
	}
	if err := checkTask(in); err != nil {
		return fmt.Errorf("store: put task: %w", err)
	}
	s.provision.Lock()
	defer s.provision.Unlock()
	if t, err := s.task(in.ID); err == nil {
		if err := t.same(in); err != nil {
			return err
		}
		t.mu.Lock()
		t.vdaf, t.End = in.VDAF, in.End
		t.mu.Unlock()
		return nil
	}
	t := &task{Task: *in, vdaf: in.VDAF, holds: make(map[int64]hold)}
	t.Config, t.VDAF = bytes.Clone(in.Config), nil
	err := s.update(ctx, "put-task", func(tx *database.Tx) error { return t.put(tx) })
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tasks[t.ID], s.rows[t.row] = t, t
	return nil
}

// LetGo implements [store.Tasks].
func (s *Store) LetGo(id dap.TaskID) {
	if t, err := s.task(id); err == nil {
		t.mu.Lock()
		t.vdaf = nil
		t.mu.Unlock()
	}
}

// Tasks implements [store.Tasks].
func (s *Store) Tasks(context.Context) ([]dap.TaskID, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	ids := make([]dap.TaskID, 0, len(s.tasks))
	for id := range s.tasks {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b dap.TaskID) int { return bytes.Compare(a[:], b[:]) })
	return ids, nil
}

// BatchState implements [store.Leader].
func (s *Store) BatchState(ctx context.Context, id dap.TaskID, b store.Batch) (state store.BatchState, err error) {
	t, err := s.task(id)
	if err != nil {
		return 0, err
	}
	if t.Mode == dap.TimeInterval {
		state, _ = t.stateOf(b.Start)
		return state, nil
	}
	err = s.view(ctx, "batch-state", func(tx *database.Tx) error {
		var frozen bool
		state, frozen, err = idState(tx, t, b.ID)
		_ = frozen
		return err
	})
	return state, err
}

// idState is stateOf for a leader-selected batch.
func idState(tx *database.Tx, t *task, id dap.BatchID) (state store.BatchState, frozen bool, err error) {
	var one int
	if found, err := tx.One("id-closed", []any{t.row, id[:]}, &one); err != nil || found {
		return store.Closed, false, err
	}
	held, err := tx.One("id-held", []any{t.row, id[:]}, &frozen)
	if held {
		return store.Draining, frozen, err
	}
	return store.Open, false, err
}
