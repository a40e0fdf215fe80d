package postgres

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres/pgdb"
)

// The shape of a task's runs. Runs of about one size become one when there are mergeFan of
// them, until one has mergeMost ids: so an id is written once for each of a few sizes, and a
// row is 4 MiB at most.
const (
	mergeFan   = 8
	mergeLeast = 1 << 12 // up to this many ids runs are of one size
	mergeMost  = 1 << 18
)

// errMerged: another replica has merged some of the runs.
var errMerged = errors.New("the runs are merged already")

// tier is 0 up to mergeLeast ids, and one more for each mergeFan times as many.
func tier(ids int) (t int) {
	for size := mergeLeast; ids > size; size *= mergeFan {
		t++
	}
	return t
}

// plan is a merge that is due: the rows that become one; nil if there is none.
func (rs runs) plan() (rows []int64) {
	tiers := make(map[int][]int64)
	for row, r := range rs {
		if r.len() <= mergeMost/mergeFan {
			at := tier(r.len())
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

// merge makes few runs of many where that is due. Commits go on meanwhile, and so may the
// merges of other replicas: whoever takes a row away first has merged it.
func (s *Store) merge(ctx context.Context, task int64) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flightTime)
	defer cancel()
	for {
		var rs runs
		err := s.view(ctx, "read-runs", func(tx *pgdb.Tx) (err error) {
			rs, err = s.load(tx, task)
			return err
		})
		rows := rs.plan()
		if err != nil || rows == nil {
			return err
		}
		into := rs.union(rows)
		err = s.update(ctx, "merge-runs", func(tx *pgdb.Tx) error {
			n, err := tx.Exec("drop-runs", task, rows)
			if err != nil {
				return err
			}
			if n != int64(len(rows)) {
				return errMerged
			}
			return into.put(tx, task)
		})
		if err != nil && !errors.Is(err, errMerged) {
			return err
		}
	}
}

// union is a run of the ids of those rows, which have none in common.
func (rs runs) union(rows []int64) *run {
	all := &run{in: segment.AllIDs}
	var ids []segment.ReportID
	for _, row := range rows {
		r := rs[row]
		for i := range r.len() {
			ids = append(ids, segment.ReportID(r.at(i)))
		}
		all.digest.Add(r.digest)
	}
	slices.SortFunc(ids, func(a, b segment.ReportID) int { return bytes.Compare(a[:], b[:]) })
	for _, id := range ids {
		all.ids = append(all.ids, id[:]...)
	}
	return all
}
