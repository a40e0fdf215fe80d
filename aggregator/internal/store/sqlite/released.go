package sqlite

import (
	"context"
	"encoding/binary"

	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/service/database"
)

// name is how both aggregators call a batch of a task: [store.Released.Batch].
func (t *task) name(sp span, id []byte) []byte {
	if t.Mode == dap.LeaderSelected {
		return id
	}
	b := binary.BigEndian.AppendUint64(nil, uint64(sp.first))
	return binary.BigEndian.AppendUint64(b, uint64(sp.last))
}

// ReleasesAfter implements [store.Releases].
func (s *Store) ReleasesAfter(ctx context.Context, task dap.TaskID, after int64, n int) (out []store.Released, err error) {
	t, err := s.task(task)
	if err != nil || n <= 0 {
		return nil, err
	}
	err = s.view(ctx, "releases-after", func(tx *database.Tx) error {
		out = nil
		return tx.Each("releases-after", []any{t.row, after, n}, func(r database.Row) error {
			var x store.Released
			var sp span
			var id, checksum []byte
			if err := r.Scan(&x.Seq, &sp.first, &sp.last, &id, &x.Count, &checksum); err != nil {
				return err
			}
			x.Batch, x.Checksum = t.name(sp, id), dap.Checksum(checksum)
			out = append(out, x)
			return nil
		})
	})
	return out, err
}

// Frozen implements [store.Releases].
func (s *Store) Frozen(ctx context.Context, task dap.TaskID) (out []store.Released, err error) {
	t, err := s.task(task)
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, "frozen", func(tx *database.Tx) error {
		out = nil
		return tx.Each("frozen", []any{t.row}, func(r database.Row) error {
			var x store.Released
			var selection, checksum []byte
			if err := r.Scan(&selection, &x.Count, &checksum); err != nil {
				return err
			}
			sel, err := store.DecodeSelection(t.Mode, selection)
			if err != nil {
				return err
			}
			var sp span
			if t.Mode == dap.TimeInterval {
				if sp, err = spanOf(sel.Interval); err != nil {
					return err
				}
			}
			x.Batch, x.Checksum = t.name(sp, sel.ID[:]), dap.Checksum(checksum)
			out = append(out, x)
			return nil
		})
	})
	return out, err
}
