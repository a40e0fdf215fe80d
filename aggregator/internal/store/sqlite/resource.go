package sqlite

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/commits"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// resourceKey is the scope of the lock under which a resource gets its answer.
type resourceKey struct {
	task int64
	kind store.Kind
	id   string
}

// resourceRow is a resource with what only the engine needs.
type resourceRow struct {
	store.Resource
	row        int64
	selection  []byte
	stepDigest []byte
	unfinished bool // an aggregation job whose response holds its requests
}

func (r *resourceRow) finish(t *task, kind store.Kind, state, step int, created int64, digest []byte, problem string) error {
	r.Task, r.Kind = t.ID, kind
	r.State, r.Step = store.ResourceState(state), uint16(step)
	r.Created = time.Unix(0, created).UTC()
	r.Digest = [32]byte(digest)
	if problem != "" {
		r.Problem = new(dap.Problem)
		if err := json.Unmarshal([]byte(problem), r.Problem); err != nil {
			return fmt.Errorf("stored problem: %w", err)
		}
	}
	return nil
}

// findResource looks a live resource up by statement, "find-resource" or "find-digest".
func findResource(tx *database.Tx, t *task, kind store.Kind, statement string, by any) (r *resourceRow, found bool, err error) {
	r = new(resourceRow)
	var state, step int
	var created int64
	var digest []byte
	var problem string
	var sum []byte
	found, err = tx.One(statement, []any{t.row, int(kind), by},
		&r.row, &r.ID, &r.Body, &digest, &r.selection, &state, &step, &r.stepDigest, &r.Response, &problem, &created, &r.unfinished, &sum)
	if err != nil || !found {
		return nil, false, err
	}
	if err := r.finish(t, kind, state, step, created, digest, problem); err != nil {
		return nil, false, err
	}
	if err := t.checkResponse(r, sum); err != nil {
		return nil, false, err
	}
	if kind == store.KindAggregation && r.State == store.Pending {
		var deleted uint64
		if _, err := tx.One("generation", []any{t.row, int(kind), digest}, &deleted, &r.Again); err != nil {
			return nil, false, err
		}
	}
	if kind == store.KindCollection {
		h, held, err := findHold(tx, t, r.row)
		if err != nil {
			return nil, false, err
		}
		if held {
			r.Frozen = h.frozen
		}
	}
	return r, true, nil
}

func mustResource(tx *database.Tx, t *task, kind store.Kind, id string) (*resourceRow, error) {
	r, found, err := findResource(tx, t, kind, "find-resource", id)
	if err == nil && !found {
		err = fmt.Errorf("%w: resource", store.ErrNotFound)
	}
	return r, err
}

// pending is mustResource of one that still waits for its answer: a failed one is its
// problem, as an error.
func pending(tx *database.Tx, t *task, kind store.Kind, id string) (*resourceRow, error) {
	r, err := mustResource(tx, t, kind, id)
	if err != nil {
		return nil, err
	}
	switch r.State {
	case store.Failed:
		return nil, r.Problem
	case store.Ready:
		return nil, fmt.Errorf("%w: the resource is ready", store.ErrDifferent)
	}
	return r, nil
}

// Create implements [store.Resources].
func (s *Store) Create(ctx context.Context, kind store.Kind, task dap.TaskID, id string, body []byte, keep bool,
	sel *store.Selection, now time.Time) (out *store.Resource, made bool, err error) {
	t, err := s.live(task)
	if err != nil {
		return nil, false, err
	}
	digest := store.Identity(id, body)
	var kept, selection []byte
	if keep {
		kept = append([]byte{}, body...)
	}
	if sel != nil {
		selection = sel.Encode(t.Mode)
	}
	err = s.update(ctx, "create-resource", func(tx *database.Tx) error {
		r, found, err := findResource(tx, t, kind, "find-digest", digest[:])
		if err == nil && !found && id != "" {
			var taken bool
			if _, taken, err = findResource(tx, t, kind, "find-resource", id); taken {
				err = store.ErrTaken
			}
		}
		if err != nil {
			return err
		}
		if !found {
			if sel != nil && kind != store.KindAggregation {
				if err := t.refuseOverlap(tx, *sel); err != nil {
					return err
				}
			}
			if kind == store.KindCollection {
				var waiting int
				if _, err := tx.One("count-pending", []any{t.row, int(kind)}, &waiting); err != nil {
					return err
				}
				if waiting >= store.MaxPending {
					return store.ErrFull
				}
			}
			var generation uint64
			var answered bool
			if _, err := tx.One("generation", []any{t.row, int(kind), digest[:]}, &generation, &answered); err != nil {
				return err
			}
			if kind == store.KindCollection && id != "" {
				if generation == 0 {
					if generation, err = t.forgone(tx, id); err != nil {
						return err
					}
				}
				if generation > 0 {
					return store.ErrDeleted
				}
			}
			id := id
			if id == "" {
				id = store.ResourceID(s.key, task, kind, generation, digest)
			}
			_, err := tx.Insert("put-resource", t.row, int(kind), id, digest[:], kept, selection, now.UnixNano())
			if err != nil {
				return err
			}
			made = true
			if r, err = mustResource(tx, t, kind, id); err != nil {
				return err
			}
		}
		out = &r.Resource
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	return out, made, nil
}

// refuseOverlap is ErrOverlap if any of the selection was released.
func (t *task) refuseOverlap(tx *database.Tx, sel store.Selection) error {
	var one int
	var found bool
	if t.Mode == dap.LeaderSelected {
		var err error
		if found, err = tx.One("id-closed", []any{t.row, sel.ID[:]}, &one); err != nil {
			return err
		}
	} else {
		sp, err := spanOf(sel.Interval)
		if err != nil {
			return err
		}
		if len(t.Views) > 0 {
			return t.refuseView(tx, sp)
		}
		if found, err = tx.One("interval-closed", []any{t.row, sp.first, sp.last}, &one); err != nil {
			return err
		}
	}
	if found {
		return store.ErrOverlap
	}
	return nil
}

// HasJob implements [store.Helper].
func (s *Store) HasJob(ctx context.Context, task dap.TaskID, id string, body []byte) (found bool, err error) {
	t, err := s.live(task)
	if err != nil {
		return false, err
	}
	digest := store.Identity(id, body)
	err = s.view(ctx, "has-job", func(tx *database.Tx) error {
		_, found, err = findResource(tx, t, store.KindAggregation, "find-digest", digest[:])
		return err
	})
	return found, err
}

// Resource implements [store.Resources].
func (s *Store) Resource(ctx context.Context, kind store.Kind, task dap.TaskID, id string) (out *store.Resource, err error) {
	t, err := s.live(task)
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, "resource", func(tx *database.Tx) error {
		r, err := mustResource(tx, t, kind, id)
		if err == nil {
			out = &r.Resource
		}
		return err
	})
	return out, err
}

// PendingResources implements [store.Resources].
func (s *Store) PendingResources(ctx context.Context, kind store.Kind, n int) (out []*store.Resource, err error) {
	type name struct {
		task int64
		id   string
	}
	err = s.view(ctx, "pending-resources", func(tx *database.Tx) error {
		var names []name
		err := tx.Each("pending-resources", []any{int(kind), max(n, 0)}, func(r database.Row) error {
			var x name
			err := r.Scan(&x.task, &x.id)
			names = append(names, x)
			return err
		})
		if err != nil {
			return err
		}
		for _, x := range names {
			r, err := mustResource(tx, s.taskByRow(x.task), kind, x.id)
			if err != nil {
				return err
			}
			out = append(out, &r.Resource)
		}
		return nil
	})
	return out, err
}

// Delete implements [store.Resources].
func (s *Store) Delete(ctx context.Context, kind store.Kind, task dap.TaskID, id string) error {
	return s.drop(ctx, kind, task, id, false)
}

// Withdraw implements [store.Leader].
func (s *Store) Withdraw(ctx context.Context, task dap.TaskID, id string) error {
	return s.drop(ctx, store.KindCollection, task, id, true)
}

// forgone says whether an id was given up before its request had come: then it is counted
// as deleted with an empty body, which no collection has.
func (t *task) forgone(tx *database.Tx, id string) (deleted uint64, err error) {
	digest := store.Identity(id, nil)
	var answered bool
	_, err = tx.One("generation", []any{t.row, int(store.KindCollection), digest[:]}, &deleted, &answered)
	return deleted, err
}

// Forgo implements [store.Leader].
func (s *Store) Forgo(ctx context.Context, task dap.TaskID, id string) error {
	t, err := s.live(task)
	if err != nil {
		return err
	}
	return s.update(ctx, "forgo-collection", func(tx *database.Tx) error {
		_, there, err := findResource(tx, t, store.KindCollection, "find-resource", id)
		if err == nil && there {
			err = store.ErrTaken
		}
		if err != nil {
			return err
		}
		if n, err := t.forgone(tx, id); n > 0 || err != nil {
			return err
		}
		digest := store.Identity(id, nil)
		_, err = tx.Exec("count-deleted", t.row, int(store.KindCollection), digest[:], false)
		return err
	})
}

// drop is Delete, or with unanswered Withdraw.
func (s *Store) drop(ctx context.Context, kind store.Kind, task dap.TaskID, id string, unanswered bool) error {
	t, err := s.live(task)
	if err != nil {
		return err
	}
	defer s.resources.lock(resourceKey{t.row, kind, id})()
	if kind == store.KindCollection {
		t.gate.Lock()
		defer t.gate.Unlock()
	}
	var row int64
	err = s.update(ctx, "delete-resource", func(tx *database.Tx) error {
		r, err := mustResource(tx, t, kind, id)
		if err != nil {
			return err
		}
		if r.State == store.Pending && r.Frozen != nil {
			return fmt.Errorf("%w: its batch is being released", store.ErrBusy)
		}
		if unanswered && r.State == store.Ready {
			return fmt.Errorf("%w: it has its answer", store.ErrBusy)
		}
		row = r.row
		if r.Body != nil || r.unfinished {
			tx.Erase()
		}
		// A refused request for a share leaves nothing behind, or a peer could fill the
		// table with ever new ones. One without a body was answered at once: nobody was
		// told its name.
		if refused := r.State == store.Failed || r.State == store.Pending && r.Body == nil; kind != store.KindShare || !refused {
			if _, err := tx.Exec("count-deleted", t.row, int(kind), r.Digest[:], r.State == store.Ready); err != nil {
				return err
			}
		}
		_, err = tx.Exec("drop-resource", r.row) // its hold goes with it
		return err
	})
	if err != nil {
		return err
	}
	t.dropHold(row)
	return nil
}

// keptRefusals is how many refused requests for shares a task keeps with their problems:
// a leader has as many collections under way, and asks again where its request is gone.
const keptRefusals = 64

// Fail implements [store.Resources].
func (s *Store) Fail(ctx context.Context, in *store.Resource, p *dap.Problem) error {
	t, err := s.live(in.Task)
	if err != nil {
		return err
	}
	problem, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("store: fail: %w", err)
	}
	defer s.resources.lock(resourceKey{t.row, in.Kind, in.ID})()
	if in.Kind == store.KindCollection {
		t.gate.Lock()
		defer t.gate.Unlock()
	}
	var row int64
	err = s.update(ctx, "fail-resource", func(tx *database.Tx) error {
		r, err := mustResource(tx, t, in.Kind, in.ID)
		if err != nil {
			return err
		}
		row = r.row
		switch r.State {
		case store.Failed:
			return nil
		case store.Ready:
			return fmt.Errorf("%w: the resource is ready", store.ErrDifferent)
		}
		if r.Body != nil {
			tx.Erase()
		}
		if _, err := tx.Exec("resource-failed", r.row, string(problem)); err != nil {
			return err
		}
		if in.Kind == store.KindShare {
			if _, err := tx.Exec("forget-refused-shares", t.row, keptRefusals); err != nil {
				return err
			}
		}
		_, err = tx.Exec("drop-hold", r.row)
		return err
	})
	if err != nil {
		return err
	}
	t.dropHold(row)
	return nil
}

// CommitJob implements [store.Helper].
func (s *Store) CommitJob(ctx context.Context, in *store.Resource, c *store.Commit,
	reply func(verdict []dap.ReportError) ([]byte, error)) ([]byte, error) {
	t, err := s.live(in.Task)
	if err != nil {
		return nil, err
	}
	if c.Task != in.Task {
		return nil, errors.New("store: commit-job: commit of another task")
	}
	defer s.resources.lock(resourceKey{t.row, in.Kind, in.ID})()
	r, err := s.reload(ctx, t, in)
	if err != nil {
		return nil, err
	}
	switch r.State {
	case store.Ready:
		return r.Response, nil
	case store.Failed:
		return nil, r.Problem
	}
	var response []byte
	err = s.settle(ctx, "commit-job", t, c, answer(reply, &response), func(tx *database.Tx, total commits.Tally) error {
		if c.Final && r.Body != nil {
			tx.Erase()
		}
		if n, err := tx.Exec("job-ready", r.row, response, c.Final); err != nil || n != 1 {
			return errors.Join(err, missing(n))
		}
		_, err := tx.Exec("count-acknowledged", t.row, total.Sum())
		return err
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

// Advance implements [store.Helper].
func (s *Store) Advance(ctx context.Context, in *store.Resource, step uint16, digest [32]byte, c *store.Commit,
	reply func(verdict []dap.ReportError) ([]byte, error)) ([]byte, error) {
	t, err := s.live(in.Task)
	if err != nil {
		return nil, err
	}
	if c == nil {
		c = &store.Commit{Task: in.Task}
	}
	if c.Task != in.Task {
		return nil, errors.New("store: advance-job: commit of another task")
	}
	defer s.resources.lock(resourceKey{t.row, in.Kind, in.ID})()
	r, err := s.reload(ctx, t, in)
	if err != nil {
		return nil, err
	}
	switch {
	case r.State == store.Failed:
		return nil, r.Problem
	case step == 0 || r.State != store.Ready:
		return nil, store.ErrStep
	case step == r.Step && bytes.Equal(digest[:], r.stepDigest):
		return r.Response, nil
	case int(step) != int(r.Step)+1:
		return nil, store.ErrStep
	}
	var response []byte
	err = s.settle(ctx, "advance-job", t, c, answer(reply, &response), func(tx *database.Tx, total commits.Tally) error {
		if c.Final { // the response held the init request
			tx.Erase()
		}
		if n, err := tx.Exec("job-advance", r.row, int(step), digest[:], response, c.Final); err != nil || n != 1 {
			return errors.Join(err, missing(n))
		}
		_, err := tx.Exec("count-acknowledged", t.row, total.Sum())
		return err
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

// answer adapts reply to settle. A response is never NULL, which would mean that there is
// none.
func answer(reply func([]dap.ReportError) ([]byte, error), response *[]byte) func([]dap.ReportError) error {
	return func(verdict []dap.ReportError) error {
		b, err := reply(verdict)
		if err != nil {
			return fmt.Errorf("store: reply: %w", err)
		}
		*response = append([]byte{}, b...)
		return nil
	}
}

// missing is the error of a change that should have met one row and met n.
func missing(n int) error {
	if n == 1 {
		return nil
	}
	return fmt.Errorf("%w: resource", store.ErrNotFound)
}

func (s *Store) reload(ctx context.Context, t *task, in *store.Resource) (r *resourceRow, err error) {
	err = s.view(ctx, "reload-resource", func(tx *database.Tx) error {
		r, err = mustResource(tx, t, in.Kind, in.ID)
		return err
	})
	return r, err
}
