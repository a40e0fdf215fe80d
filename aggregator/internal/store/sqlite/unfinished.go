package sqlite

import (
	"context"
	"time"

	"github.com/starling-agg/starling/internal/service/database"
)

// UnfinishedJobs implements [store.Helper].
func (s *Store) UnfinishedJobs(ctx context.Context, before time.Time) (n uint64, err error) {
	err = s.view(ctx, "unfinished-jobs", func(tx *database.Tx) error {
		_, err := tx.One("unfinished-jobs", []any{before.UnixNano()}, &n)
		return err
	})
	return n, err
}
