package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/rows"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// checkTask says what no row can hold.
func checkTask(in *store.Task) error {
	switch {
	case in == nil || in.Mode != dap.TimeInterval && in.Mode != dap.LeaderSelected:
		return errors.New("no task, or of an unknown batch mode")
	case in.TimePrecision > math.MaxInt64 || in.MinBatch > math.MaxInt64:
		return errors.New("time precision or minimum exceeds 63 bits")
	}
	return store.CheckViews(in)
}

// provision makes the row of a task, or finds that it is there with the same configuration.
func (s *Store) provision(tx *pgdb.Tx, in *store.Task) error {
	var one int
	if gone, err := tx.One("forgotten", []any{in.ID[:]}, &one); err != nil {
		return err
	} else if gone {
		return fmt.Errorf("%w: %v: it came after the backup that was restored", store.ErrEnded, in.ID)
	}
	// Of two that come at once the second waits, and finds the first.
	made, err := tx.Exec("put-task", in.ID[:], append([]byte{}, in.Config...), int(in.Mode), uint64(in.TimePrecision), in.MinBatch)
	if err == nil && made == 1 {
		if err := s.putViews(tx, in); err != nil {
			return err
		}
		return s.putSecret(tx, in.ID)
	}
	if err != nil {
		return err
	}
	var config []byte
	var mode int
	var precision, minimum uint64
	if _, err := tx.One("task-config", []any{in.ID[:]}, &config, &mode, &precision, &minimum); err != nil {
		return err
	}
	if !bytes.Equal(config, in.Config) || dap.BatchMode(mode) != in.Mode || precision != uint64(in.TimePrecision) || minimum != in.MinBatch {
		return fmt.Errorf("%w: task provisioned with another configuration", store.ErrDifferent)
	}
	t, err := find(tx, reading, in.ID)
	if err != nil {
		return err
	}
	if err := s.spans(tx, t); err != nil {
		return err
	}
	if !slices.Equal(t.views, in.Views) {
		return fmt.Errorf("%w: task provisioned with other views", store.ErrDifferent)
	}
	return nil
}

// Register provisions tasks and writes down how they came; see [store.Registry].
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
			return 0, errors.New("store: register: a task of another id than its registration")
		}
	}
	err = s.update(ctx, "register", func(tx *pgdb.Tx) error {
		made = 0
		change, err := registryTurn(tx)
		if err != nil {
			return err
		}
		for i := range list {
			done, err := s.register(tx, &list[i], change+uint64(made)+1)
			if err != nil {
				return err
			}
			if done {
				made++
			}
		}
		_, err = tx.Exec("move-registry", change+uint64(made))
		return err
	})
	if err != nil {
		return 0, err
	}
	return made, nil
}

// registryTurn waits for the turn to change the registry, so that its changes are numbered
// in the order in which they are committed, and is the number of the last one.
func registryTurn(tx *pgdb.Tx) (change uint64, err error) {
	found, err := tx.One("registry-turn", nil, &change)
	return change, expect(found, err, "head of the registry")
}

// register writes one task down, and says whether it was not there.
func (s *Store) register(tx *pgdb.Tx, p *store.Provision, change uint64) (made bool, err error) {
	if err := s.provision(tx, p.Task); err != nil {
		return false, err
	}
	t, err := find(tx, inTurn, p.ID) // neither closed nor retired meanwhile
	if err != nil {
		return false, err
	}
	there, err := readRegistration(tx, t)
	if err != nil {
		return false, err
	}
	if done, err := p.Again(there, t.ended()); err != nil || done {
		return false, err
	}
	// All that come are counted: the registry's turn is this transaction's.
	if err := rows.Within(tx, p); err != nil {
		return false, err
	}
	_, err = tx.Exec("put-registration", rows.PutRegistration(t.row, change, p)...)
	return err == nil, err
}

// ended says whether the task was closed, is retired, or was closed by a restore.
func (t *task) ended() bool { return t.retired || t.closedIn != 0 || !t.closed.IsZero() }

// Amend gives a task other terms; see [store.Registry].
func (s *Store) Amend(ctx context.Context, id dap.TaskID, terms []byte) error {
	if err := store.CheckTerms(terms); err != nil {
		return err
	}
	return s.update(ctx, "amend-task", func(tx *pgdb.Tx) error {
		change, err := registryTurn(tx)
		if err != nil {
			return err
		}
		t, err := find(tx, inTurn, id)
		if err != nil {
			return err
		}
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
		change++
		if _, err := tx.Exec("amend-registration", t.row, change, terms); err != nil {
			return err
		}
		_, err = tx.Exec("move-registry", change)
		return err
	})
}

// CloseTask closes a task for good; see [store.Registry].
func (s *Store) CloseTask(ctx context.Context, id dap.TaskID, c store.Closing) (closed store.Closing, err error) {
	if err := c.Validate(); err != nil {
		return closed, err
	}
	err = s.update(ctx, "close-task", func(tx *pgdb.Tx) error {
		change, err := registryTurn(tx)
		if err != nil {
			return err
		}
		t, err := find(tx, excluding, id) // of uploads under way each is acknowledged before, or refused
		if err != nil {
			return err
		}
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
		change++
		closed = store.Closing{At: c.At.UTC().Round(0), By: c.By, Why: c.Why}
		if _, err := tx.Exec("close-registration", t.row, change, c.At.UnixNano(), c.By, c.Why); err != nil {
			return err
		}
		_, err = tx.Exec("move-registry", change)
		return err
	})
	if err != nil {
		return store.Closing{}, err
	}
	return closed, nil
}

// Registration is how a task came; see [store.Registry].
func (s *Store) Registration(ctx context.Context, id dap.TaskID) (r *store.Registration, err error) {
	err = s.view(ctx, "registration", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, id)
		if err == nil {
			r, err = readRegistration(tx, t)
		}
		return err
	})
	if err == nil && r == nil {
		err = fmt.Errorf("%w: the task is not registered", store.ErrNotFound)
	}
	return r, err
}

// Registrations lists what changed in the registry; see [store.Registry].
func (s *Store) Registrations(ctx context.Context, after uint64, n int) (list []store.Registration, err error) {
	err = s.view(ctx, "registrations", func(tx *pgdb.Tx) error {
		list = nil
		return tx.Each("registrations", []any{min(after, math.MaxInt64), max(n, 0)}, func(row pgdb.Row) error {
			r, err := rows.Registration(row)
			if err == nil {
				list = append(list, *r)
			}
			return err
		})
	})
	return list, err
}

// readRegistration is nil where the task has none.
func readRegistration(tx *pgdb.Tx, t *task) (r *store.Registration, err error) {
	err = tx.Each("registration", []any{t.row}, func(row pgdb.Row) error {
		r, err = rows.Registration(row)
		return err
	})
	return r, err
}

// registry checks that the registry's changes are numbered, and that tasks were made of
// what it says.
func (a *auditor) registry(tx *pgdb.Tx) error {
	var last, counted uint64
	if _, err := tx.One("audit-registry", nil, &last, &counted); err != nil {
		return err
	}
	if last > counted {
		a.add("the registry counts %d changes, and has one of number %d", counted, last)
	}
	return tx.Each("audit-registrations", nil, func(r pgdb.Row) error {
		var id, sum, made []byte
		if err := r.Scan(&id, &sum, &made); err != nil {
			return err
		}
		if got := sha256.Sum256(made); !bytes.Equal(got[:], sum) {
			a.add("task %v: the bytes that it was made of are not what was written", dap.TaskID(id))
		}
		return nil
	})
}
