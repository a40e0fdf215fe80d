package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// damage is what the row of a damaged run says that it had.
type damage struct {
	count  int
	digest segment.SetDigest
	sum    [sha256.Size]byte
	why    string
}

// rows are those of the damaged runs, in order.
func (rs *runs) rows() []int64 { return slices.Sorted(maps.Keys(rs.bad)) }

// told is the damage to the runs of a task as the store tells of it: in one, for an id may
// be in any of them.
func (rs *runs) told() store.Damaged {
	out := store.Damaged{Files: len(rs.bad), Low: dap.ReportID(segment.AllIDs.Low), High: dap.ReportID(segment.AllIDs.High)}
	var sums []byte
	var whys []string
	for _, row := range rs.rows() {
		d := rs.bad[row]
		out.IDs += int64(d.count)
		out.Sum = d.sum
		sums, whys = append(sums, d.sum[:]...), append(whys, d.why)
	}
	if len(rs.bad) > 1 {
		out.Sum = sha256.Sum256(sums)
	}
	if n := len(whys); n > 3 {
		whys = append(whys[:3], fmt.Sprintf("and %d more", n-3))
	}
	out.Why = strings.Join(whys, ", ")
	return out
}

// all is told where there is any damage.
func (rs *runs) all() []store.Damaged {
	if len(rs.bad) == 0 {
		return nil
	}
	return []store.Damaged{rs.told()}
}

// Damaged lists the damage that this handle has met; see [store.Replay].
func (s *Store) Damaged(_ context.Context, task dap.TaskID) ([]store.Damaged, error) {
	return s.cache.get(idsOf(task)).all(), nil
}

// DamagedTasks lists the tasks of which Damaged says anything; see [store.Replay].
func (s *Store) DamagedTasks(context.Context) (ids []dap.TaskID, err error) {
	s.cache.mu.Lock()
	defer s.cache.mu.Unlock()
	for name, t := range s.cache.names {
		if len(t.bad) > 0 {
			ids = append(ids, name.task)
		}
	}
	return ids, nil
}

// CheckReplay reads all runs of a task; see [store.Replay].
func (s *Store) CheckReplay(ctx context.Context, task dap.TaskID) (out []store.Damaged, err error) {
	s.cache.drop(idsOf(task))
	err = s.view(ctx, "check-replay", func(tx *pgdb.Tx) error {
		out = nil
		t, err := find(tx, reading, task)
		if err != nil || t.retired {
			return err
		}
		of := idsOf(task).found(t)
		rs, err := s.load(tx, of)
		if err != nil {
			return err
		}
		rows := slices.Sorted(maps.Keys(rs.heads))
		for _, row := range rows { // one is in memory at a time
			if rs, err = s.readWhole(tx, of, rs, []int64{row}, func(int64, []byte) {}); err != nil {
				return err
			}
		}
		out = rs.all()
		return nil
	})
	return out, err
}

// readWhole reads all entries of some runs, in any order.
func (s *Store) readWhole(tx *pgdb.Tx, of runsOf, rs *runs, rows []int64, fn func(row int64, entries []byte)) (*runs, error) {
	found := 0
	err := tx.Each(of.entries, of.key(rows), func(r pgdb.Row) error {
		var row int64
		var all []byte
		if err := r.Scan(&row, &all); err != nil {
			return err
		}
		found++
		if h := rs.heads[row]; len(all) != h.count*of.entry || !h.proves(of.kind, 0, all) {
			rs = s.spoil(of, rs, row)
		} else if !h.own() {
			fn(row, all)
		} else if under, err := s.hidden(of); err != nil {
			return err
		} else {
			fn(row, under.show(all))
		}
		return nil
	})
	if err == nil && found < len(rows) {
		err = errChanging
	}
	if err != nil {
		return nil, err
	}
	return rs, nil
}

// AggregatedIDs lists ids that are aggregated; see [store.Replay].
func (s *Store) AggregatedIDs(ctx context.Context, task dap.TaskID, low, high dap.ReportID, n int) (out []dap.ReportID, err error) {
	err = s.view(ctx, "aggregated-ids", func(tx *pgdb.Tx) error {
		out = nil
		t, err := live(tx, reading, task)
		if err != nil || n <= 0 {
			return err
		}
		of := idsOf(task).found(t)
		rs, err := s.load(tx, of)
		if err != nil {
			return err
		}
		in := segment.Range{Low: segment.ReportID(low), High: segment.ReportID(high)}
		_, err = s.ascend(tx, of, rs, false, in, func(id []byte) bool {
			out = append(out, dap.ReportID(id))
			return len(out) < n
		})
		if err != nil {
			return err
		}
		hidden, err := s.least(tx, of, rs, in, n)
		out = append(out, hidden...)
		slices.SortFunc(out, compareIDs)
		out = out[:min(n, len(out))]
		return err
	})
	return out, err
}

func compareIDs(a, b dap.ReportID) int { return bytes.Compare(a[:], b[:]) }

// least are the first ids of a range in whole runs that are enciphered, whose order is
// another one: all of them are read, and few kept in memory.
func (s *Store) least(tx *pgdb.Tx, of runsOf, rs *runs, in segment.Range, n int) (out []dap.ReportID, err error) {
	under, err := s.hidden(of)
	if err != nil || under == nil {
		return nil, err
	}
	_, err = s.ascend(tx, of, rs, true, segment.AllIDs, func(id []byte) bool {
		if id := under.show(id); in.Contains(segment.ReportID(id)) {
			if out = append(out, dap.ReportID(id)); len(out) >= 2*n {
				slices.SortFunc(out, compareIDs)
				out = out[:n]
			}
		}
		return true
	})
	return out, err
}

// ascend calls fn with the entries of a range in whole runs of one form, as they are there, in
// order, until it has enough. An id that is in two runs comes twice. It runs in a view,
// which sees no merge.
func (s *Store) ascend(tx *pgdb.Tx, of runsOf, rs *runs, own bool, in segment.Range, fn func(entry []byte) (more bool)) (more bool, err error) {
	asked := make(map[place][]int)
	for row, h := range rs.heads {
		if h.own() != own {
			continue
		}
		for page := max(0, h.find(in.Low[:])); page <= h.find(in.High[:]); page++ {
			asked[place{row, page}] = []int{0}
		}
	}
	if len(asked) > pagesAtOnce {
		if lower, upper, ok := halves(in); ok {
			if more, err = s.ascend(tx, of, rs, own, lower, fn); err != nil || !more {
				return more, err
			}
			return s.ascend(tx, of, rs, own, upper, fn)
		}
	}
	var all [][]byte
	_, err = s.readPages(tx, of, rs, asked, func(_ int, _ bool, page []byte) {
		for entry := range slices.Chunk(page, of.entry) {
			if in.Contains(segment.ReportID(entry)) {
				all = append(all, entry)
			}
		}
	})
	if err != nil {
		return false, err
	}
	slices.SortFunc(all, bytes.Compare)
	for _, entry := range all {
		if !fn(entry) {
			return false, nil
		}
	}
	return true, nil
}

// halves are those of a range, by the first eight bytes; not ok where it has one value of
// these.
func halves(in segment.Range) (lower, upper segment.Range, ok bool) {
	low, high := binary.BigEndian.Uint64(in.Low[:]), binary.BigEndian.Uint64(in.High[:])
	if low >= high {
		return in, in, false
	}
	mid := low + (high-low)/2
	lower, upper = in, in
	lower.High = segment.AllIDs.High
	binary.BigEndian.PutUint64(lower.High[:], mid)
	upper.Low = segment.AllIDs.Low
	binary.BigEndian.PutUint64(upper.Low[:], mid+1)
	return lower, upper, true
}

// Mend replaces damaged runs by others of the same ids; see [store.Replay].
func (s *Store) Mend(ctx context.Context, task dap.TaskID, sum [32]byte, ids []dap.ReportID) error {
	err := s.update(ctx, "mend-runs", func(tx *pgdb.Tx) error {
		t, err := live(tx, sharing, task)
		if err != nil {
			return err
		}
		of := idsOf(task).found(t)
		rs, err := s.load(tx, of)
		if err != nil {
			return err
		}
		if len(rs.bad) == 0 || rs.told().Sum != sum {
			return fmt.Errorf("mend: %w: no such damage", store.ErrNotFound)
		}
		var want segment.SetDigest
		count := 0
		for _, d := range rs.bad {
			want.Add(d.digest)
			count += d.count
		}
		all := ascending(ids)
		var got segment.SetDigest
		for id := range slices.Chunk(all, idSize) {
			got.Put(&s.setKey, segment.ReportID(id))
		}
		if len(ids) != count || len(all) != count*idSize || got != want {
			return fmt.Errorf("mend: %w: those are not the ids of the damaged runs", store.ErrMismatch)
		}
		rows := rs.rows()
		n, err := tx.Exec("drop-runs", t.row, rows)
		if err = expect(n == int64(len(rows)), err, "damage: it was mended meanwhile"); err != nil {
			return err
		}
		for part := range slices.Chunk(all, mergeMost*idSize) {
			if _, err := s.putRun(tx, of, part); err != nil {
				return err
			}
		}
		_, err = tx.Exec("hurry-jobs", t.row) // what waited for the mending
		return err
	})
	if err == nil {
		s.cache.drop(idsOf(task))
	}
	return err
}
