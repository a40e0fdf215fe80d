package sqlite

import (
	"context"
	"time"

	"github.com/starling-agg/starling/internal/service/database"
)

// SeenTime implements [store.Engine].
func (s *Store) SeenTime(ctx context.Context) (t time.Time, err error) {
	err = s.view(ctx, "seen-time", func(tx *database.Tx) error {
		var seen int64
		found, err := tx.One("seen-time", nil, &seen)
		if found {
			t = time.Unix(0, seen).UTC()
		}
		return err
	})
	return t, err
}

// SaveTime implements [store.Engine].
func (s *Store) SaveTime(ctx context.Context, t time.Time) error {
	return s.update(ctx, "save-time", func(tx *database.Tx) error {
		_, err := tx.Exec("save-time", t.UnixNano())
		return err
	})
}
