package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
	"github.com/starling-agg/starling/vdaf"
)

// task is a row of the table task, as a transaction found it.
type task struct {
	id       dap.TaskID
	row      int64
	mode     dap.BatchMode
	least    uint64 // what the task has as its minimum
	retired  bool
	swept    bool // and nothing of it is left to erase
	closedIn uint64
	closed   time.Time          // by a person; zero while it is live
	sealed   []byte             // its secret, behind the root's name; none once it is retired
	views    []uint64           // see [store.Task]; once [Store.spans] has read them
	hidden   map[string]*hidden // keys of the secret, by their domains, once they were asked for
}

// minimum is the least count ever released.
func (t *task) minimum() uint64 { return max(t.least, 1) }

// How a transaction finds a task's row: to read it, to have it stay as it is, as commits
// do side by side, to take turns with others but not with commits, or alone.
const (
	reading   = "task"
	sharing   = "share-task"
	inTurn    = "task-in-turn"
	excluding = "exclude-task"
)

// find reads a task; ErrNotFound if it was never provisioned.
func find(tx *pgdb.Tx, how string, id dap.TaskID) (*task, error) {
	t := &task{id: id}
	var mode int
	var closed int64 // 0 for NULL
	found, err := tx.One(how, []any{id[:]}, &t.row, &mode, &t.least, &t.retired, &t.swept, &t.closedIn, &closed, &t.sealed)
	if err == nil && !found {
		err = fmt.Errorf("%w: task", store.ErrNotFound)
	}
	if t.mode = dap.BatchMode(mode); closed != 0 {
		t.closed = time.Unix(0, closed).UTC()
	}
	return t, err
}

// live is find for tasks that are not retired.
func live(tx *pgdb.Tx, how string, id dap.TaskID) (*task, error) {
	t, err := find(tx, how, id)
	if err == nil && t.retired {
		err = fmt.Errorf("%w: the task is retired", store.ErrNotFound)
	}
	return t, err
}

// PutTask implements [store.Tasks].
func (s *Store) PutTask(ctx context.Context, in *store.Task) error {
	if in.VDAF == nil {
		return errors.New("store: put task: VDAF is required")
	}
	if err := checkTask(in); err != nil {
		return fmt.Errorf("store: put task: %w", err)
	}
	err := s.update(ctx, "put-task", func(tx *pgdb.Tx) error { return s.provision(tx, in) })
	if err == nil {
		told := *in
		s.tasks.Store(in.ID, &told)
		s.toldViews(in)
	}
	return err
}

// told is a task as this handle was told of it.
func (s *Store) told(id dap.TaskID) (*store.Task, error) {
	t, ok := s.tasks.Load(id)
	if !ok {
		return nil, errors.New("store: task was not provisioned since the start")
	}
	return t.(*store.Task), nil
}

// vdaf is that of a task which this handle was told of.
func (s *Store) vdaf(id dap.TaskID) (vdaf.VDAF, error) {
	t, err := s.told(id)
	if err != nil {
		return nil, err
	}
	return t.VDAF, nil
}

// LetGo implements [store.Tasks].
func (s *Store) LetGo(id dap.TaskID) { s.tasks.Delete(id) }

// Tasks implements [store.Tasks].
func (s *Store) Tasks(ctx context.Context) (ids []dap.TaskID, err error) {
	err = s.view(ctx, "tasks", func(tx *pgdb.Tx) error {
		ids, err = taskIDs(tx, "tasks")
		return err
	})
	return ids, err
}

// taskIDs are what a statement selects that has no parameters.
func taskIDs(tx *pgdb.Tx, statement string) (ids []dap.TaskID, err error) {
	err = tx.Each(statement, nil, func(r pgdb.Row) error {
		var id []byte
		if err := r.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, dap.TaskID(id))
		return nil
	})
	return ids, err
}

// TaskState implements [store.Tasks]. It is never stale.
func (s *Store) TaskState(ctx context.Context, id dap.TaskID) (state store.TaskState, err error) {
	err = s.view(ctx, "task-state", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, id)
		state = store.TaskState{Retired: t.retired, ClosedIn: uint32(t.closedIn), Closed: t.closed}
		return err
	})
	return state, err
}
