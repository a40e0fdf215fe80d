package sqlite

import (
	"bytes"
	"context"
	"fmt"

	"github.com/starling-agg/starling/aggregator/internal/datakey"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/rows"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// Kept implements [store.Releases].
func (s *Store) Kept(ctx context.Context, kind store.Kind, id dap.TaskID, resource string) (k *store.Kept, err error) {
	t, err := s.live(id)
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, "kept", func(tx *database.Tx) error {
		r, err := mustResource(tx, t, kind, resource)
		if err == nil {
			k, err = findKept(tx, r)
		}
		return err
	})
	return k, err
}

func findKept(tx *database.Tx, r *resourceRow) (*store.Kept, error) {
	k := new(store.Kept)
	var to []byte
	found, err := tx.One("find-kept", []any{r.row}, &k.Key, &to, &k.Asked, &k.Peer, &k.Box)
	if err == nil && !found {
		err = fmt.Errorf("%w: noised share", store.ErrNotFound)
	}
	if err != nil {
		return nil, err
	}
	k.To = [32]byte(to)
	return k, nil
}

// keep is the part of a release's transaction.
func keep(tx *database.Tx, r *resourceRow, k *store.Kept) error {
	if k == nil {
		return nil
	}
	_, err := tx.Insert("put-kept", r.row, k.Key, k.To[:], append([]byte{}, k.Asked...), k.Peer, append([]byte{}, k.Box...))
	return err
}

// Reseal implements [store.Releases].
func (s *Store) Reseal(ctx context.Context, in *store.Reseal) error {
	t, err := s.live(in.Task)
	if err != nil {
		return err
	}
	defer s.resources.lock(resourceKey{t.row, in.Kind, in.Resource})()
	return s.update(ctx, "reseal", func(tx *database.Tx) error {
		r, err := mustResource(tx, t, in.Kind, in.Resource)
		if err != nil {
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
		n, err := tx.Exec("response-resealed", r.row, append([]byte{}, in.Former...), append([]byte{}, in.Response...),
			responseSum(in.Response))
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("%w: the response was replaced meanwhile", store.ErrDifferent)
		}
		_, err = tx.Insert("put-reseal", t.row, int(in.Kind), in.Resource, int(in.Whose), in.From[:], in.To[:], in.Now.UnixNano())
		return err
	})
}

// Shares implements [store.Watch].
func (s *Store) Shares(ctx context.Context, id dap.TaskID) (kept, resealed uint64, err error) {
	t, err := s.task(id)
	if err != nil {
		return 0, 0, err
	}
	err = s.view(ctx, "shares", func(tx *database.Tx) error {
		_, err := tx.One("shares-of-task", []any{t.row}, &kept, &resealed)
		return err
	})
	return kept, resealed, err
}

// KeptUnder implements [store.Releases].
func (s *Store) KeptUnder(ctx context.Context, serial uint64) (n uint64, err error) {
	err = s.view(ctx, "kept-under", func(tx *database.Tx) error {
		_, err := tx.One("kept-under", []any{serial}, &n)
		return err
	})
	return n, err
}

// DataKeys implements [datakey.Book].
func (s *Store) DataKeys(ctx context.Context) (set datakey.SetID, known []datakey.Record, err error) {
	err = s.view(ctx, "data-keys", func(tx *database.Tx) error {
		var id []byte
		if found, err := tx.One("data-key-set", nil, &id); err != nil || !found {
			return err
		}
		set = datakey.SetID(id)
		return tx.Each("data-keys", nil, func(r database.Row) error {
			k, err := rows.DataKey(r)
			known = append(known, k)
			return err
		})
	})
	return set, known, err
}

// NoteDataKey implements [datakey.Book].
func (s *Store) NoteDataKey(ctx context.Context, set datakey.SetID, k datakey.Record) error {
	return s.update(ctx, "note-data-key", func(tx *database.Tx) error {
		var id []byte
		found, err := tx.One("data-key-set", nil, &id)
		switch {
		case err != nil:
			return err
		case !found:
			if _, err := tx.Insert("put-data-key-set", set[:]); err != nil {
				return err
			}
		case !bytes.Equal(id, set[:]):
			return fmt.Errorf("%w: the data keys are another set", store.ErrDifferent)
		}
		var from, until int64
		found, err = tx.One("data-key", []any{k.Serial}, &from, &until)
		switch {
		case err != nil:
			return err
		case !found:
			_, err := tx.Insert("put-data-key", k.Serial, k.From.Unix(), k.Until.Unix())
			return err
		case from != k.From.Unix() || until != k.Until.Unix():
			return fmt.Errorf("%w: data key %d is of another time", store.ErrDifferent, k.Serial)
		}
		return nil
	})
}

// EndDataKey implements [datakey.Book].
func (s *Store) EndDataKey(ctx context.Context, serial uint64) error {
	return s.update(ctx, "end-data-key", func(tx *database.Tx) error {
		n, err := tx.Exec("end-data-key", serial)
		if err == nil && n != 1 {
			err = fmt.Errorf("%w: data key %d", store.ErrNotFound, serial)
		}
		return err
	})
}
