package sqlite

import (
	"context"

	"github.com/starling-agg/starling/internal/service/database"
)

// Exchange puts the share of each of two buckets of the first task, with its hash, into
// the row of the other, as no code does.
func (s *Store) Exchange(ctx context.Context, a, b uint64) error {
	return s.update(ctx, "exchange", func(tx *database.Tx) error {
		var rows [2]batchRow
		for i, bucket := range []uint64{a, b} {
			if found, err := tx.One("batch-of-bucket", []any{int64(1), bucket}, rows[i].dest()...); err != nil || !found {
				return err
			}
		}
		for i, r := range rows {
			from := rows[1-i]
			if _, err := tx.Exec("merge-batch", r.id, from.verified, from.first, from.last, from.checksum, from.share, from.sum); err != nil {
				return err
			}
		}
		return nil
	})
}

// Prepare prepares all statements.
func (s *Store) Prepare(ctx context.Context) error { return s.db.Prepare(ctx) }

// Beside returns another handle on the engine of an open one: it shares the database and
// the locks, and knows nothing of what the first has read.
func (s *Store) Beside() *Beside { return &Beside{&Store{engine: s.engine}} }

// Beside is a handle that leaves the engine open.
type Beside struct{ *Store }

func (b *Beside) Close() error {
	b.replay.close()
	return nil
}
