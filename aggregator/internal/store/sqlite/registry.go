package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/record"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/rows"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// Register implements [store.Registry].
func (s *Store) Register(ctx context.Context, list ...store.Provision) (made int, err error) {
	for i := range list {
		p := &list[i]
		if err := p.Registration.Validate(); err != nil {
			return 0, err
		}
		if err := checkTask(p.Task); err != nil {
			return 0, fmt.Errorf("store: register: %w", err)
		}
		if p.Task.ID != p.ID {
			return 0, fmt.Errorf("store: register: a task of another id than its registration")
		}
	}
	s.provision.Lock()
	defer s.provision.Unlock()
	var news []dap.TaskID
	for i := range list {
		if _, err := s.task(list[i].ID); errors.Is(err, store.ErrNotFound) {
			news = append(news, list[i].ID)
		}
	}
	if len(news) > 0 { // before anything of them is taken, for a restore asks the record
		if err := record.NoteTasks(s.opt.Record, news); err != nil {
			return 0, outcome("register", err)
		}
	}
	fresh := make(map[dap.TaskID]*task)
	err = s.update(ctx, "register", func(tx *database.Tx) error {
		clear(fresh)
		made = 0
		for i := range list {
			done, err := s.register(tx, &list[i], fresh)
			if err != nil {
				return err
			}
			if done {
				made++
			}
		}
		if made == 0 {
			return nil
		}
		return s.grow(tx, true) // a store that was put back has to miss it
	})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, t := range fresh {
		s.tasks[id], s.rows[t.row] = t, t
	}
	return made, nil
}

// register writes one task down, and says whether it was not there. Tasks that have no row
// yet are put into fresh.
func (s *Store) register(tx *database.Tx, p *store.Provision, fresh map[dap.TaskID]*task) (made bool, err error) {
	t := fresh[p.ID]
	if t == nil {
		t, _ = s.task(p.ID) // nil where it is not found
	}
	if t == nil {
		var one int
		if gone, err := tx.One("forgotten", []any{p.ID[:]}, &one); err != nil || gone {
			return false, errors.Join(err, fmt.Errorf("%w: %v: it came after the backup that was restored", store.ErrEnded, p.ID))
		}
		if err := rows.Within(tx, p); err != nil {
			return false, err
		}
		t = &task{Task: *p.Task, vdaf: p.Task.VDAF, holds: make(map[int64]hold)}
		t.VDAF = nil
		t.Config = bytes.Clone(p.Task.Config)
		if err := t.put(tx); err != nil {
			return false, err
		}
		fresh[p.ID] = t
	} else {
		if err := t.same(p.Task); err != nil {
			return false, err
		}
		there, err := readRegistration(tx, t)
		if err != nil {
			return false, err
		}
		if done, err := p.Again(there, t.ended()); err != nil || done {
			return false, err
		}
	}
	change, err := nextChange(tx)
	if err != nil {
		return false, err
	}
	_, err = tx.Exec("put-registration", rows.PutRegistration(t.row, change, p)...)
	return err == nil, err
}

// nextChange is the number of a change of the registry.
func nextChange(tx *database.Tx) (n uint64, err error) {
	if _, err = tx.Exec("registry-change"); err == nil {
		_, err = tx.One("registry-head", nil, &n)
	}
	return n, err
}

// ended says whether the task was closed, is retired, or was closed by a restore.
func (t *task) ended() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.retired || t.closedIn != 0 || !t.shut.IsZero()
}

// Amend implements [store.Registry].
func (s *Store) Amend(ctx context.Context, id dap.TaskID, terms []byte) error {
	if err := store.CheckTerms(terms); err != nil {
		return err
	}
	t, err := s.task(id)
	if err != nil {
		return err
	}
	s.provision.Lock()
	defer s.provision.Unlock()
	return s.update(ctx, "amend-task", func(tx *database.Tx) error {
		r, err := readRegistration(tx, t)
		switch {
		case err != nil:
			return err
		case r == nil:
			return fmt.Errorf("%w: the task is not registered", store.ErrNotFound)
		case t.ended():
			return fmt.Errorf("%w: %v", store.ErrEnded, id)
		case bytes.Equal(r.Terms, terms):
			return nil
		}
		change, err := nextChange(tx)
		if err != nil {
			return err
		}
		_, err = tx.Exec("amend-registration", t.row, change, terms)
		return err
	})
}

// CloseTask implements [store.Registry].
func (s *Store) CloseTask(ctx context.Context, id dap.TaskID, c store.Closing) (closed store.Closing, err error) {
	if err := c.Validate(); err != nil {
		return closed, err
	}
	t, err := s.task(id)
	if err != nil {
		return closed, err
	}
	s.provision.Lock()
	defer s.provision.Unlock()
	err = s.update(ctx, "close-task", func(tx *database.Tx) error {
		r, err := readRegistration(tx, t)
		switch {
		case err != nil:
			return err
		case r == nil:
			return fmt.Errorf("%w: the task is not registered", store.ErrNotFound)
		case r.Closed != nil:
			closed = *r.Closed
			return nil
		}
		closed = store.Closing{At: c.At.UTC().Round(0), By: c.By, Why: c.Why}
		change, err := nextChange(tx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec("close-registration", t.row, change, c.At.UnixNano(), c.By, c.Why); err != nil {
			return err
		}
		return s.grow(tx, true)
	})
	if err != nil {
		return store.Closing{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shut = closed.At
	return closed, nil
}

// Registration implements [store.Registry].
func (s *Store) Registration(ctx context.Context, id dap.TaskID) (r *store.Registration, err error) {
	t, err := s.task(id)
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, "registration", func(tx *database.Tx) error {
		r, err = readRegistration(tx, t)
		return err
	})
	if err == nil && r == nil {
		err = fmt.Errorf("%w: the task is not registered", store.ErrNotFound)
	}
	return r, err
}

// Registrations implements [store.Registry].
func (s *Store) Registrations(ctx context.Context, after uint64, n int) (list []store.Registration, err error) {
	err = s.view(ctx, "registrations", func(tx *database.Tx) error {
		list = nil
		return tx.Each("registrations", []any{after, n}, func(row database.Row) error {
			r, err := scanRegistration(row)
			if err == nil {
				list = append(list, *r)
			}
			return err
		})
	})
	return list, err
}

// readRegistration is nil where the task has none.
func readRegistration(tx *database.Tx, t *task) (r *store.Registration, err error) {
	err = tx.Each("registration", []any{t.row}, func(row database.Row) error {
		r, err = scanRegistration(row)
		return err
	})
	return r, err
}

func scanRegistration(row database.Row) (*store.Registration, error) {
	r, err := rows.Registration(row)
	if errors.Is(err, rows.ErrDamaged) {
		err = fmt.Errorf("%w: %w", database.ErrDamaged, err)
	}
	return r, err
}

// readRegistry checks that the registry's changes are numbered, and that tasks were made of
// what it says.
func (a *auditor) readRegistry(tx *database.Tx) error {
	var last, counted uint64
	if _, err := tx.One("audit-registry", nil, &last, &counted); err != nil {
		return err
	}
	if last > counted {
		a.add("the registry counts %d changes, and has one of number %d", counted, last)
	}
	return tx.Each("audit-registrations", nil, func(r database.Row) error {
		var row int64
		var sum, made []byte
		if err := r.Scan(&row, &sum, &made); err != nil {
			return err
		}
		if got := sha256.Sum256(made); !bytes.Equal(got[:], sum) {
			a.add("task %v: the bytes that it was made of are not what was written", a.s.taskByRow(row).ID)
		}
		return nil
	})
}
