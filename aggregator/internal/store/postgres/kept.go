package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/rows"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// Kept is what a release left beside its resource; see [store.Releases].
func (s *Store) Kept(ctx context.Context, kind store.Kind, id dap.TaskID, resource string) (*store.Kept, error) {
	var k store.Kept
	err := s.view(ctx, "kept", func(tx *pgdb.Tx) error {
		t, err := live(tx, reading, id)
		if err != nil {
			return err
		}
		r, err := mustResource(tx, t, kind, "find-resource", resource)
		if err != nil {
			return err
		}
		var to []byte
		var own bool
		found, err := tx.One("find-kept", []any{r.row}, &k.Key, &to, &k.Asked, &k.Peer, &k.Box, &own)
		if err = expect(found, err, "noised share"); err != nil {
			return err
		}
		k.To = [32]byte(to)
		if !own {
			return nil
		}
		key, err := s.expand(t, domainTaskKept, 32)
		if err != nil {
			return err
		}
		defer clear(key)
		if k.Box, err = aead(key).Open(nil, nil, k.Box, keptName(t, kind, resource)); err != nil {
			return fmt.Errorf("task %v: the noised share of resource %s is not what was written", t.id, resource)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &k, nil
}

// keep is the part of a release's transaction.
func (s *Store) keep(tx *pgdb.Tx, t *task, r *resourceRow, k *store.Kept) error {
	if k == nil {
		return nil
	}
	box := append([]byte{}, k.Box...)
	if t.own() { // it lies under the data key already
		key, err := s.expand(t, domainTaskKept, 32)
		if err != nil {
			return err
		}
		defer clear(key)
		box = aead(key).Seal(nil, nil, box, keptName(t, r.Kind, r.ID))
	}
	_, err := tx.Exec("put-kept", r.row, k.Key, k.To[:], append([]byte{}, k.Asked...), k.Peer, box, t.own())
	return err
}

// keptName is what a noised share belongs to.
func keptName(t *task, kind store.Kind, resource string) []byte {
	return append(append([]byte(domainTaskKept), t.id[:]...), fmt.Sprintf("%d %s", kind, resource)...)
}

// Reseal replaces the response of a resource that is Ready; see [store.Releases].
func (s *Store) Reseal(ctx context.Context, in *store.Reseal) error {
	return s.update(ctx, "reseal", func(tx *pgdb.Tx) error {
		t, err := live(tx, reading, in.Task)
		if err != nil {
			return err
		}
		r, err := mustResource(tx, t, in.Kind, "lock-resource", in.Resource)
		if err != nil {
			return err
		}
		if t, err = live(tx, sharing, in.Task); err != nil {
			return err
		}
		if in.Whose == store.Own {
			n, err := tx.Exec("kept-resealed", r.row, in.From[:], in.To[:])
			if err != nil {
				return err
			}
			if n == 0 {
				return fmt.Errorf("%w: the share was sealed again meanwhile", store.ErrDifferent)
			}
		}
		sum := sha256.Sum256(in.Response)
		n, err := tx.Exec("response-resealed", r.row, append([]byte{}, in.Former...), append([]byte{}, in.Response...), sum[:])
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w: the response was replaced meanwhile", store.ErrDifferent)
		}
		_, err = tx.Exec("put-reseal", t.row, int(in.Kind), in.Resource, int(in.Whose), in.From[:], in.To[:], in.Now.UnixNano())
		return err
	})
}

// Shares counts the noised shares of a task; see [store.Watch].
func (s *Store) Shares(ctx context.Context, id dap.TaskID) (kept, resealed uint64, err error) {
	err = s.view(ctx, "shares", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, id)
		if err == nil {
			_, err = tx.One("shares-of-task", []any{t.row}, &kept, &resealed)
		}
		return err
	})
	return kept, resealed, err
}

// KeptUnder counts what lies under a data key: noised shares, and parts of aggregate shares
// that are not released yet.
func (s *Store) KeptUnder(ctx context.Context, serial uint64) (n uint64, err error) {
	err = s.view(ctx, "kept-under", func(tx *pgdb.Tx) error {
		_, err := tx.One("kept-under", []any{serial}, &n)
		return err
	})
	return n, err
}

// DataKeys implements [datakey.Book].
func (s *Store) DataKeys(ctx context.Context) (set datakey.SetID, known []datakey.Record, err error) {
	err = s.view(ctx, "data-keys", func(tx *pgdb.Tx) error {
		set, known = datakey.SetID{}, nil
		var id []byte
		if found, err := tx.One("data-key-set", nil, &id); err != nil || !found {
			return err
		}
		set = datakey.SetID(id)
		return tx.Each("data-keys", nil, func(r pgdb.Row) error {
			k, err := rows.DataKey(r)
			known = append(known, k)
			return err
		})
	})
	return set, known, err
}

// NoteDataKey implements [datakey.Book].
func (s *Store) NoteDataKey(ctx context.Context, set datakey.SetID, k datakey.Record) error {
	return s.update(ctx, "note-data-key", func(tx *pgdb.Tx) error {
		// Of two that come at once the second waits, and finds the first.
		if _, err := tx.Exec("put-data-key-set", set[:]); err != nil {
			return err
		}
		var id []byte
		if _, err := tx.One("data-key-set", nil, &id); err != nil {
			return err
		}
		if !bytes.Equal(id, set[:]) {
			return fmt.Errorf("%w: the data keys are another set", store.ErrDifferent)
		}
		if _, err := tx.Exec("put-data-key", k.Serial, k.From.Unix(), k.Until.Unix()); err != nil {
			return err
		}
		var from, until int64
		if _, err := tx.One("data-key", []any{k.Serial}, &from, &until); err != nil {
			return err
		}
		if from != k.From.Unix() || until != k.Until.Unix() {
			return fmt.Errorf("%w: data key %d is of another time", store.ErrDifferent, k.Serial)
		}
		return nil
	})
}

// EndDataKey implements [datakey.Book].
func (s *Store) EndDataKey(ctx context.Context, serial uint64) error {
	return s.update(ctx, "end-data-key", func(tx *pgdb.Tx) error {
		n, err := tx.Exec("end-data-key", serial)
		return expect(n == 1, err, fmt.Sprintf("data key %d", serial))
	})
}
