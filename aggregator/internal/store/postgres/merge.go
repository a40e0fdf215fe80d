package postgres

import (
	"context"
	"errors"
	"slices"

	"github.com/starling-agg/starling/internal/pgdb"
)

// The shape of runs. Those of about one size become one when there are mergeFan of them,
// until one has mergeMost ids: so an id is written once for each of a few sizes, and a row is
// 4 MiB at most, or 8 where ids have owners.
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
func (s *Store) mergeRuns(ctx context.Context, name runsName) error {
	for more := true; more; {
		err := s.update(ctx, "merge-runs", func(tx *pgdb.Tx) error {
			more = false
			t, err := live(tx, sharing, name.task)
			if err != nil {
				return err
			}
			of := name.found(t)
			if over, err := of.stay(tx); err != nil || over {
				return err
			}
			rs, err := s.load(tx, of)
			if err != nil {
				return err
			}
			rows := rs.plan()
			if rows == nil {
				return nil
			}
			var entries []byte
			damaged := len(rs.bad)
			rs, err = s.readWhole(tx, of, rs, rows, func(_ int64, all []byte) { entries = append(entries, all...) })
			if err != nil || len(rs.bad) > damaged {
				more = !of.marks // these are left out next time, and no marks of a round that has any
				return err
			}
			more = true
			n, err := tx.Exec(of.drop, of.key(rows)...)
			if err != nil {
				return err
			}
			if n != int64(len(rows)) {
				return errMerged
			}
			_, err = s.putRun(tx, of, entries)
			return err
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
