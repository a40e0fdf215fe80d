package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/store/postgres/pgdb"
	"github.com/starling-agg/starling/dap"
)

// The shape of a task's runs. Runs of about one size become one when there are mergeFan of
// them, until one has mergeMost ids: so an id is written once for each of a few sizes, and a
// row is 4 MiB at most.
const (
	mergeFan   = 8
	mergeLeast = 1 << 12 // up to this many ids runs are of one size
	mergeMost  = 1 << 18
)

// errMerged: another replica has merged some of the rows.
var errMerged = errors.New("the rows are merged already")

// tier is 0 up to mergeLeast ids, and one more for each mergeFan times as many.
func tier(ids int) (t int) {
	for size := mergeLeast; ids > size; size *= mergeFan {
		t++
	}
	return t
}

// plan is a merge that is due: the rows that become one; nil if there is none.
func (rs *runs) plan() (rows []int64) {
	tiers := make(map[int][]int64)
	for row, h := range rs.heads {
		if h.count <= mergeMost/mergeFan {
			at := tier(h.count)
			tiers[at] = append(tiers[at], row)
		}
	}
	for at, rows := range tiers {
		if len(rows) < mergeFan {
			continue
		}
		slices.Sort(rows) // the oldest first
		most := mergeFan
		if at == 0 {
			most = mergeMost / mergeLeast
		}
		return rows[:min(len(rows), most)]
	}
	return nil
}

// mergeRuns makes few runs of many where that is due. Commits go on meanwhile, and so may
// the merges of other replicas: whoever takes a row away first has merged it.
func (s *Store) mergeRuns(ctx context.Context, task dap.TaskID) error {
	for more := true; more; {
		err := s.update(ctx, "merge-runs", func(tx *pgdb.Tx) error {
			more = false
			t, err := live(tx, sharing, task)
			if err != nil {
				return err
			}
			rs, err := s.load(tx, t)
			if err != nil {
				return err
			}
			rows := rs.plan()
			if rows == nil {
				return nil
			}
			var ids []dap.ReportID
			damaged := len(rs.bad)
			rs, err = s.readWhole(tx, t, rs, rows, func(_ int64, all []byte) {
				ids = append(ids, splitIDs(all)...)
			})
			if more = true; err != nil || len(rs.bad) > damaged { // these are left out next time
				return err
			}
			n, err := tx.Exec("drop-runs", t.row, rows)
			if err != nil {
				return err
			}
			if n != int64(len(rows)) {
				return errMerged
			}
			return s.putRun(tx, t, ids)
		})
		switch {
		case errors.Is(err, errMerged) || errors.Is(err, errChanging):
			more = true
		case err != nil:
			return err
		}
	}
	return nil
}
