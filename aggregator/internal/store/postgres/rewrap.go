package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/wrap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// Secrets are those of all vaults of a schema, for whoever looks after the keys that wrap
// them. Replicas go on meanwhile.
type Secrets struct {
	s      *Store
	vaults []*Vault
}

// OpenSecrets reaches the schema of an aggregator that has been started before.
func OpenSecrets(ctx context.Context, opt pgdb.Options, wrapper wrap.Wrapper) (_ *Secrets, err error) {
	db, err := reach(ctx, opt, pgdb.Open)
	if err != nil {
		return nil, err
	}
	x := &Secrets{s: &Store{db: db}}
	for _, purpose := range []int{PurposeHPKE, PurposeData, purposeTasks} {
		v, err := x.s.Vault(ctx, VaultOptions{Purpose: purpose, Wrapper: wrapper})
		if err == nil && v.store == nil {
			err = errors.New("store: no aggregator has been started on this schema yet, so no key is there")
		}
		if err != nil {
			db.Close()
			return nil, err
		}
		x.vaults = append(x.vaults, v)
	}
	return x, nil
}

// Close ends the handle.
func (x *Secrets) Close() { x.s.db.Close() }

// Rewrap is [Vault.Rewrap] of all vaults.
func (x *Secrets) Rewrap(ctx context.Context) (n int, err error) {
	for _, v := range x.vaults {
		some, err := v.Rewrap(ctx)
		n += some
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// A Wrapping is what the schema says of a wrapping key.
type Wrapping struct {
	Key     string
	Secrets uint64 // that it wraps
	Ended   bool
}

// Wrappings lists the wrapping keys that wrap something, or have ended.
func (x *Secrets) Wrappings(ctx context.Context) (list []Wrapping, err error) {
	err = x.s.view(ctx, "wrappings", func(tx *pgdb.Tx) error {
		list = nil
		return tx.Each("wrappings", nil, func(r pgdb.Row) error {
			var w Wrapping
			err := r.Scan(&w.Key, &w.Secrets, &w.Ended)
			list = append(list, w)
			return err
		})
	})
	return list, err
}

// ErrWraps: a wrapping key wraps secrets, and does not end.
var ErrWraps = errors.New("store: the key wraps secrets, which would be lost with it")

// End notes that a wrapping key ends, so that nothing is wrapped by it from then on, whoever
// still has it for the newest; [ErrWraps] where something is. Its file goes after that.
func (x *Secrets) End(ctx context.Context, key string, now time.Time) error {
	return x.s.update(ctx, "end-wrapping", func(tx *pgdb.Tx) error {
		err := tx.Each("hold-vaults-alone", nil, func(pgdb.Row) error { return nil })
		if err != nil {
			return err
		}
		var n uint64
		if _, err := tx.One("secrets-of-wrapping", []any{key}, &n); err != nil {
			return err
		}
		if n > 0 {
			return fmt.Errorf("%w: %d are wrapped by %s", ErrWraps, n, key)
		}
		_, err = tx.Exec("end-wrapping", key, now.UnixMicro())
		return err
	})
}

// ended says why nothing is wrapped by a key.
func ended(key string) error {
	return fmt.Errorf("%w: wrapping key %s has ended: give this process the newer one, as the others have it", wrap.ErrNoKey, key)
}

// spent refuses a wrapping key that has ended.
func spent(tx *pgdb.Tx, key string) error {
	var one int
	found, err := tx.One("wrapping-ended", []any{key}, &one)
	if err == nil && found {
		err = ended(key)
	}
	return err
}

// Rewrap wraps the secrets that an older wrapping key wraps again with the newest one, and
// says how many there were. Stopped on the way it leaves some of both, which both open; of
// two that run at once each secret is wrapped by one.
func (v *Vault) Rewrap(ctx context.Context) (n int, err error) {
	newest, err := v.opt.Wrapper.Newest(ctx)
	if err != nil {
		return 0, err
	}
	var names []string
	err = v.s.view(ctx, "secrets-to-rewrap", func(tx *pgdb.Tx) error {
		names = nil
		if err := spent(tx, newest); err != nil {
			return err
		}
		return tx.Each("secrets-to-rewrap", []any{v.opt.Purpose, newest}, func(r pgdb.Row) error {
			var name string
			err := r.Scan(&name)
			names = append(names, name)
			return err
		})
	})
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		done, err := v.rewrap(ctx, name, newest)
		if err != nil {
			return n, fmt.Errorf("wrap secret %s again: %w", name, err)
		}
		if done {
			n++
		}
	}
	return n, nil
}

func (v *Vault) rewrap(ctx context.Context, name, newest string) (done bool, err error) {
	box, err := v.box(ctx, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil // it was destroyed meanwhile
	}
	if err != nil || box.Key == newest {
		return false, err
	}
	secret, err := v.opt.Wrapper.Unwrap(ctx, box, v.aad(name))
	if err != nil {
		return false, err
	}
	defer clear(secret)
	fresh, err := v.opt.Wrapper.Wrap(ctx, secret, v.aad(name))
	if err != nil {
		return false, err
	}
	err = v.s.update(ctx, "rewrap", func(tx *pgdb.Tx) error {
		done = false
		var one int
		if _, err := tx.One("hold-vault", []any{v.opt.Purpose}, &one); err != nil {
			return err
		}
		n, err := tx.Exec("rewrap-secret", v.opt.Purpose, name, fresh.Key, fresh.Sealed, box.Key)
		if done = n == 1; err != nil || done {
			return err
		}
		return spent(tx, fresh.Key) // else another has wrapped it, or it was destroyed
	})
	return done, err
}
