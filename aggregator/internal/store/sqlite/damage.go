package sqlite

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/disk"
	"github.com/starling-agg/starling/internal/service/database"
)

// countDamage counts the reports that a log lost, as far as their tasks are known.
func (s *Store) countDamage(tx *database.Tx, log disk.LogID, d *segment.LogDamage) error {
	exact, reports := d.Exact, 0
	ids := slices.SortedFunc(maps.Keys(d.Reports), func(a, b segment.TaskID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range ids {
		n := d.Reports[id]
		t, err := s.task(id)
		if err != nil { // what is left names no task of ours
			exact = false
			continue
		}
		if _, err := tx.Exec("count-acknowledged", t.row, n); err != nil {
			return err
		}
		if err := reject(tx, t, dap.ReportDropped, uint64(n)); err != nil {
			return err
		}
		reports += n
	}
	_, err := tx.Exec("put-damage", log[:], d.File, d.Bytes, d.Records, reports, exact)
	return err
}

// Damages implements [store.Watch].
func (s *Store) Damages(ctx context.Context) (all []store.Damage, err error) {
	err = s.view(ctx, "damages", func(tx *database.Tx) error {
		all = nil
		return tx.Each("damages", nil, func(r database.Row) error {
			var d store.Damage
			err := r.Scan(&d.File, &d.Bytes, &d.Records, &d.Reports, &d.Exact)
			all = append(all, d)
			return err
		})
	})
	return all, err
}

// ForgetDamage implements [store.Embedded].
func (s *Store) ForgetDamage(ctx context.Context, file string) error {
	return s.update(ctx, "forget-damage", func(tx *database.Tx) error {
		_, err := tx.Exec("forget-damage", file)
		return err
	})
}
