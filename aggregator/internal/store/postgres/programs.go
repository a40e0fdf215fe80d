package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/starling-agg/starling/aggregator"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/internal/pgdb"
)

// programsSince is the first version of a schema whose replicas say of which version their
// programs are.
const programsSince = 5

// noteProgram says of which version this program is, in the row of its replica, which this
// transaction has written before. It fails where the schema takes newer ones alone.
//
// A migration that takes something away asks who lives (freed). A replica whose row it
// does not see writes that row afterwards, or has waited with it until the migration was
// committed; and reads the version here after that.
func (v *Vault) noteProgram(tx *pgdb.Tx, life string) error {
	version, err := tx.Version()
	if err != nil || version.Number < programsSince {
		return err
	}
	_, err = tx.Exec("note-program", v.opt.Purpose, life, v.s.db.Newest())
	return err
}

// freed refuses a migration that takes away what the program of a living replica needs: one
// whose version is below least. A schema of before replicas said theirs refuses nothing.
func freed(schema string) func(tx *pgdb.Tx, least int) error {
	return func(tx *pgdb.Tx, least int) error {
		version, err := tx.Version()
		if err != nil || version.Number < programsSince {
			return err
		}
		// A row of replica refers to a row of vault: a new one waits for this transaction.
		if err := tx.Each("hold-vaults-alone", nil, func(pgdb.Row) error { return nil }); err != nil {
			return err
		}
		var now int64
		if _, err := tx.One("vault-now", nil, &now); err != nil {
			return err
		}
		if _, err := tx.Exec("drop-dead-replicas", PurposeHPKE, now); err != nil {
			return err
		}
		var n, oldest int
		if _, err := tx.One("older-programs", []any{PurposeHPKE, least}, &n, &oldest); err != nil || n == 0 {
			return err
		}
		which := fmt.Sprintf("of version %d or newer", oldest)
		if oldest == 0 {
			which = fmt.Sprintf("one at least of a version before %d, or it has not yet said its version", programsSince)
		}
		return &aggregator.StoreError{Fault: aggregator.OlderPrograms, Detail: fmt.Sprintf(
			"%s: migration %d takes away what programs before version %d need, and %d of these live: %s", schema, version.Number+1, least, n, which)}
	}
}

// fault is why nothing is done any more; nil while all is well.
func (s *Store) fault() error {
	if wrong := s.wrong.Load(); wrong != nil {
		return fmt.Errorf("%w: %w", store.ErrUnknown, wrong)
	}
	return nil
}

// outcome is the function of that name; and nothing is done any more once the schema takes
// newer programs alone: the process ends.
func (s *Store) outcome(name string, err error) error {
	if errors.Is(err, pgdb.ErrTooNew) {
		s.wrong.CompareAndSwap(nil, &aggregator.StoreError{Fault: aggregator.NewerSchema, Role: s.role, Detail: err.Error()})
		return s.fault()
	}
	return outcome(name, err)
}

// Leave implements [vault.Vault].
func (v *Vault) Leave(ctx context.Context) error {
	v.mu.Lock()
	life := v.life
	v.life = ""
	v.mu.Unlock()
	if life == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaving)
	defer cancel()
	return v.s.update(ctx, "leave", func(tx *pgdb.Tx) error {
		if _, err := tx.Exec("resign-vault", v.opt.Purpose, life); err != nil {
			return err
		}
		_, err := tx.Exec("drop-replica", v.opt.Purpose, life)
		return err
	})
}

// leaving bounds how long a replica that stops waits to say so.
const leaving = 3 * time.Second
