package postgres

import (
	"context"

	"github.com/starling-agg/starling/aggregator/internal/store/commits"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

const (
	// partsMost is how many parts a batch has, but for commits side by side, before they
	// become one: so a commit costs one share written, and a 32nd of one, and a release
	// reads few.
	partsMost = 32
	// talliesMost is how many rows the counts of a task have before they are added up.
	talliesMost = 128
	// tidyTime bounds what a commit does for later ones, after its own answer.
	tidyTime = flightTime
)

// A crowd is what a commit found too much of.
type crowd struct {
	batches []int64 // that have many parts
	tallies bool
}

// tidy makes few rows of many. A step that fails is due again at the next commit.
func (s *Store) tidy(ctx context.Context, task dap.TaskID, c crowd, runs bool) {
	if len(c.batches) == 0 && !c.tallies && !runs {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyTime)
	defer cancel()
	if runs {
		_ = s.mergeRuns(ctx, idsOf(task))
	}
	for _, row := range c.batches {
		_ = s.mergeParts(ctx, task, row)
	}
	if c.tallies {
		_ = s.update(ctx, "sum-tallies", func(tx *pgdb.Tx) error {
			t, err := find(tx, sharing, task)
			if err == nil {
				// Another replica counts the rows that it takes away first.
				_, err = tx.Exec("sum-tallies", t.row)
			}
			return err
		})
	}
}

// mergeParts makes one part of many of a batch. Commits go on meanwhile, and no release
// does.
func (s *Store) mergeParts(ctx context.Context, id dap.TaskID, batch int64) error {
	key, err := s.keys.At(ctx, s.clock.Now())
	if err != nil {
		return err
	}
	defer key.Wipe()
	v, err := s.vdaf(id)
	if err != nil {
		return err
	}
	return s.update(ctx, "merge-parts", func(tx *pgdb.Tx) error {
		t, err := live(tx, sharing, id)
		if err != nil {
			return err
		}
		var closed bool
		var bucket uint64
		var name []byte
		if found, err := tx.One("batch-name", []any{batch}, &closed, &bucket, &name); err != nil || !found || closed {
			return err
		}
		sum := &batchSum{of: batchOf(bucket, name)}
		total := v.NewAggShare()
		defer total.Reset()
		var rows []int64
		err = tx.Each("parts-to-sum", []any{batch, 2 * partsMost}, func(r pgdb.Row) error {
			p := partRow{of: sum.of}
			var box, hash []byte
			var row int64
			if err := p.scan(r, &p.key, &p.own, &box, &hash, &row); err != nil {
				return err
			}
			share, err := t.open(taskKeys{s, t}, v, &p, box, hash)
			if err != nil {
				return err
			}
			defer share.Reset()
			sum.add(&p)
			rows = append(rows, row)
			return total.Merge(share)
		})
		if err != nil || len(rows) < partsMost { // another replica has merged them
			return err
		}
		n, err := tx.Exec("drop-parts-of", rows)
		if err != nil {
			return err
		}
		if n != int64(len(rows)) {
			return errMerged
		}
		own, err := taskKeys{s, t}.of(key)
		if err != nil {
			return err
		}
		defer own.Wipe()
		_, err = t.putPart(tx, own, batch, sum.of, commits.Part{
			Reports: sum.reports, First: dap.Time(sum.first), Last: dap.Time(sum.last), Checksum: sum.checksum, Share: total,
		})
		return err
	})
}
