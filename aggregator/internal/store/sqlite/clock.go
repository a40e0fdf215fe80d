package sqlite

import (
	"context"
	"time"

	"github.com/starling-agg/starling/aggregator/internal/store/rows"
	"github.com/starling-agg/starling/internal/service/database"
)

// SeenTime implements [store.Engine].
func (s *Store) SeenTime(ctx context.Context) (t time.Time, err error) {
	err = s.view(ctx, "seen-time", func(tx *database.Tx) (err error) {
		t, err = rows.SeenTime(tx)
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
