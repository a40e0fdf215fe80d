package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// resourceRow is a resource with what only the engine needs.
type resourceRow struct {
	store.Resource
	row        int64
	stepDigest []byte
	unfinished bool // an aggregation job whose response holds its requests
}

// findResource looks a live resource up by statement: "find-resource", "lock-resource" or
// "find-digest".
func findResource(tx *pgdb.Tx, t *task, kind store.Kind, statement string, by any) (r *resourceRow, found bool, err error) {
	r = &resourceRow{Resource: store.Resource{Task: t.id, Kind: kind}}
	var state, step int
	var created int64
	var problem string
	var digest, sum []byte
	found, err = tx.One(statement, []any{t.row, int(kind), by},
		&r.row, &r.ID, &r.Body, &digest, &state, &step, &r.stepDigest, &r.Response, &problem, &created, &r.unfinished, &sum)
	if err != nil || !found {
		return nil, false, err
	}
	r.State, r.Step, r.Digest = store.ResourceState(state), uint16(step), [32]byte(digest)
	r.Created = time.Unix(0, created).UTC()
	if problem != "" {
		r.Problem = new(dap.Problem)
		if err := json.Unmarshal([]byte(problem), r.Problem); err != nil {
			return nil, false, fmt.Errorf("stored problem: %w", err)
		}
	}
	if want := sha256.Sum256(r.Response); sum != nil && !bytes.Equal(sum, want[:]) {
		return nil, false, fmt.Errorf("task %v resource %s: its response is not what was written", t.id, r.ID)
	}
	if kind == store.KindAggregation && r.State == store.Pending {
		var deleted uint64
		if _, err := tx.One("generation", []any{t.row, int(kind), digest}, &deleted, &r.Again); err != nil {
			return nil, false, err
		}
	}
	if kind == store.KindCollection {
		if r.Frozen, err = frozen(tx, t, r.row); err != nil {
			return nil, false, err
		}
	}
	return r, true, nil
}

// frozen reads what a collection has frozen; nil if it has not.
func frozen(tx *pgdb.Tx, t *task, resource int64) (*store.Frozen, error) {
	var selection, checksum []byte
	var count, first, last, fullest uint64
	found, err := tx.One("find-hold", []any{resource}, &selection, &count, &checksum, &first, &last, &fullest)
	if err != nil || !found || count == 0 {
		return nil, err
	}
	sel, err := store.DecodeSelection(t.mode, selection)
	if err != nil {
		return nil, err
	}
	span, ok := dap.Span(dap.Time(first), dap.Time(last))
	if !ok {
		return nil, errors.New("span of reports is reversed")
	}
	return &store.Frozen{Selection: sel, Count: count, Checksum: dap.Checksum(checksum), Span: span, Fullest: fullest}, nil
}

func mustResource(tx *pgdb.Tx, t *task, kind store.Kind, statement, id string) (*resourceRow, error) {
	r, found, err := findResource(tx, t, kind, statement, id)
	if err == nil && !found {
		err = fmt.Errorf("%w: resource", store.ErrNotFound)
	}
	return r, err
}

// Create implements [store.Resources].
func (s *Store) Create(ctx context.Context, kind store.Kind, task dap.TaskID, id string, body []byte, keep bool,
	sel *store.Selection, now time.Time) (out *store.Resource, made bool, err error) {
	digest := store.Identity(id, body)
	how := sharing
	if kind == store.KindCollection { // or several would make one more than may wait
		how = inTurn
	}
	err = s.update(ctx, "create-resource", func(tx *pgdb.Tx) error {
		out, made = nil, false
		t, err := live(tx, how, task)
		if err != nil {
			return err
		}
		var kept, selection []byte
		if keep {
			kept = append([]byte{}, body...)
		}
		if sel != nil {
			selection = sel.Encode(t.mode)
		}
		// The row of another handle may come, and go, between the look and the insertion.
		for range 8 {
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
			if found {
				out = &r.Resource
				return nil
			}
			if sel != nil && kind != store.KindAggregation {
				if err := s.spans(tx, t); err != nil {
					return err
				}
				if err := t.refuseOverlap(tx, *sel); err != nil {
					return err
				}
			}
			if kind == store.KindCollection {
				var waiting int
				if _, err := tx.One("count-pending", []any{t.row, int(kind), store.MaxPending}, &waiting); err != nil {
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
			name := id
			if name == "" {
				name = store.ResourceID(s.key, task, kind, generation, digest)
			}
			n, err := tx.Exec("put-resource", t.row, int(kind), name, digest[:], kept, selection, now.UnixNano())
			if err != nil {
				return err
			}
			made = n == 1
		}
		return errors.New("the resource comes and goes")
	})
	if err == nil {
		err = s.tellOf(ctx, out)
	}
	if err != nil {
		return nil, false, err
	}
	return out, made, nil
}

// tellOf puts the mark of a release before anybody learns of it.
func (s *Store) tellOf(ctx context.Context, r *store.Resource) error {
	if r.Kind == store.KindAggregation || r.State != store.Ready {
		return nil
	}
	return s.tell(ctx)
}

// refuseOverlap is ErrOverlap if any of the selection was released.
func (t *task) refuseOverlap(tx *pgdb.Tx, sel store.Selection) (err error) {
	var one int
	var found bool
	if len(t.views) > 0 {
		return t.refuseView(tx, sel)
	}
	if t.mode == dap.LeaderSelected {
		found, err = tx.One("id-closed", []any{t.row, sel.ID[:]}, &one)
	} else {
		end, ok := sel.Interval.End()
		if !ok || sel.Interval.Duration == 0 {
			return fmt.Errorf("invalid interval %v", sel.Interval)
		}
		// No report lies in what is cut off.
		found, err = tx.One("interval-closed", []any{t.row, min(uint64(sel.Interval.Start), math.MaxInt64), min(uint64(end-1), math.MaxInt64)}, &one)
	}
	if err == nil && found {
		err = store.ErrOverlap
	}
	return err
}

// HasJob implements [store.Helper].
func (s *Store) HasJob(ctx context.Context, task dap.TaskID, id string, body []byte) (found bool, err error) {
	digest := store.Identity(id, body)
	err = s.view(ctx, "has-job", func(tx *pgdb.Tx) error {
		t, err := live(tx, reading, task)
		if err != nil {
			return err
		}
		_, found, err = findResource(tx, t, store.KindAggregation, "find-digest", digest[:])
		return err
	})
	return found, err
}

// Resource implements [store.Resources].
func (s *Store) Resource(ctx context.Context, kind store.Kind, task dap.TaskID, id string) (out *store.Resource, err error) {
	err = s.view(ctx, "resource", func(tx *pgdb.Tx) error {
		t, err := live(tx, reading, task)
		if err != nil {
			return err
		}
		r, err := mustResource(tx, t, kind, "find-resource", id)
		if err == nil {
			out = &r.Resource
		}
		return err
	})
	if err == nil {
		err = s.tellOf(ctx, out)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// PendingResources implements [store.Resources].
func (s *Store) PendingResources(ctx context.Context, kind store.Kind, n int) (out []*store.Resource, err error) {
	type name struct {
		task dap.TaskID
		id   string
	}
	err = s.view(ctx, "pending-resources", func(tx *pgdb.Tx) error {
		out = nil
		var names []name
		err := tx.Each("pending-resources", []any{int(kind), max(n, 0)}, func(r pgdb.Row) error {
			var task []byte
			var x name
			if err := r.Scan(&task, &x.id); err != nil {
				return err
			}
			x.task = dap.TaskID(task)
			names = append(names, x)
			return nil
		})
		if err != nil {
			return err
		}
		tasks := make(map[dap.TaskID]*task)
		for _, x := range names {
			if tasks[x.task] == nil {
				if tasks[x.task], err = find(tx, reading, x.task); err != nil {
					return err
				}
			}
			r, err := mustResource(tx, tasks[x.task], kind, "find-resource", x.id)
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

// drop is Delete, or with unanswered Withdraw.
func (s *Store) drop(ctx context.Context, kind store.Kind, task dap.TaskID, id string, unanswered bool) error {
	return s.update(ctx, "delete-resource", func(tx *pgdb.Tx) error {
		t, r, err := alone(tx, kind, task, id)
		if err != nil {
			return err
		}
		if r.State == store.Pending && r.Frozen != nil {
			return fmt.Errorf("%w: its batch is being released", store.ErrBusy)
		}
		if unanswered && r.State == store.Ready {
			return fmt.Errorf("%w: it has its answer", store.ErrBusy)
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
}

// alone finds a resource that the transaction is about to end, under the locks for it: the
// resource's, and the task's where a hold may go.
func alone(tx *pgdb.Tx, kind store.Kind, id dap.TaskID, resource string) (*task, *resourceRow, error) {
	t, err := live(tx, reading, id)
	if err != nil {
		return nil, nil, err
	}
	if _, err := mustResource(tx, t, kind, "lock-resource", resource); err != nil {
		return nil, nil, err
	}
	how := sharing
	if kind == store.KindCollection {
		how = excluding
	}
	if t, err = live(tx, how, id); err != nil {
		return nil, nil, err
	}
	r, err := mustResource(tx, t, kind, "find-resource", resource) // with its hold, as it is now
	return t, r, err
}

// keptRefusals is how many refused requests for shares a task keeps with their problems.
const keptRefusals = 64

// Fail implements [store.Resources].
func (s *Store) Fail(ctx context.Context, in *store.Resource, p *dap.Problem) error {
	problem, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("store: fail: %w", err)
	}
	return s.update(ctx, "fail-resource", func(tx *pgdb.Tx) error {
		t, r, err := alone(tx, in.Kind, in.Task, in.ID)
		if err != nil {
			return err
		}
		switch r.State {
		case store.Failed:
			return nil
		case store.Ready:
			return fmt.Errorf("%w: the resource is ready", store.ErrDifferent)
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
}
