package postgres

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/aggregator/internal/store/postgres/pgdb"
	"github.com/starling-agg/starling/dap"
)

const idSize = len(dap.ReportID{})

// cacheBytes bounds the ids that a handle keeps in memory, of all tasks but the one in use.
const cacheBytes = 64 << 20

// run is a row of the table run: the ids ascend.
type run struct {
	in     segment.Range
	ids    []byte
	digest segment.SetDigest
}

func (r *run) len() int { return len(r.ids) / idSize }

func (r *run) at(i int) []byte { return r.ids[i*idSize : (i+1)*idSize] }

func (r *run) has(id dap.ReportID) bool {
	i := sort.Search(r.len(), func(i int) bool { return bytes.Compare(r.at(i), id[:]) >= 0 })
	return i < r.len() && bytes.Equal(r.at(i), id[:])
}

// runs are those of a task, by their rows. A row never changes, so what was read of it
// stays true as long as it is there.
type runs map[int64]*run

func (rs runs) has(id dap.ReportID) bool {
	for _, r := range rs {
		if r.has(id) {
			return true
		}
	}
	return false
}

func (rs runs) size() (n int) {
	for _, r := range rs {
		n += len(r.ids)
	}
	return n
}

// A cache keeps the runs of recently used tasks. The zero value is ready.
type cache struct {
	mu    sync.Mutex
	tasks map[int64]*cached
	bytes int
	tick  uint64
}

type cached struct {
	runs runs
	size int
	used uint64
}

func (c *cache) get(task int64) runs {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.tasks[task]; t != nil {
		return t.runs
	}
	return nil
}

// put keeps the runs of a task, and forgets those of others that were not used for longest.
func (c *cache) put(task int64, rs runs) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tasks == nil {
		c.tasks = make(map[int64]*cached)
	}
	if t := c.tasks[task]; t != nil {
		c.bytes -= t.size
	}
	c.tick++
	t := &cached{rs, rs.size(), c.tick}
	c.tasks[task] = t
	c.bytes += t.size
	for c.bytes > cacheBytes && len(c.tasks) > 1 {
		var oldest int64
		for row, t := range c.tasks {
			if row != task && (oldest == 0 || t.used < c.tasks[oldest].used) {
				oldest = row
			}
		}
		c.bytes -= c.tasks[oldest].size
		delete(c.tasks, oldest)
	}
}

// load reads the runs of a task as they are now. The memory spares the reading of rows, and
// not the list of them: rows are numbered when they are written and seen when they are
// committed, so that a new one may have a lower number than one that is known.
func (s *Store) load(tx *pgdb.Tx, task int64) (runs, error) {
	known := s.cache.get(task)
	for range 8 { // between list and rows a merge may be committed
		now := make(runs)
		var missing []int64
		err := tx.Each("run-ids", []any{task}, func(r pgdb.Row) error {
			var id int64
			if err := r.Scan(&id); err != nil {
				return err
			}
			if now[id] = known[id]; now[id] == nil {
				missing = append(missing, id)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if len(missing) > 0 {
			read, err := readRuns(tx, task, missing)
			if err != nil {
				return nil, err
			}
			for id, r := range read {
				now[id] = r
			}
			if len(read) < len(missing) {
				known = now.whole()
				continue
			}
		}
		s.cache.put(task, now)
		return now, nil
	}
	return nil, errors.New("the runs of the task change all the time")
}

// whole leaves out what was listed and not read.
func (rs runs) whole() runs {
	for id, r := range rs {
		if r == nil {
			delete(rs, id)
		}
	}
	return rs
}

// readRuns reads rows of runs; an [store.ErrDamaged] where one is not what was written.
func readRuns(tx *pgdb.Tx, task int64, rows []int64) (runs, error) {
	out := make(runs, len(rows))
	err := tx.Each("runs", []any{task, rows}, func(row pgdb.Row) error {
		var id int64
		var low, high, sum, digest []byte
		r := new(run)
		if err := row.Scan(&id, &low, &high, &r.ids, &sum, &digest); err != nil {
			return err
		}
		if got := sha256.Sum256(r.ids); !bytes.Equal(got[:], sum) {
			return fmt.Errorf("%w: run %d is not what was written", store.ErrDamaged, id)
		}
		r.in = segment.Range{Low: segment.ReportID(low), High: segment.ReportID(high)}
		r.digest = segment.SetDigest(digest)
		out[id] = r
		return nil
	})
	return out, err
}

// newRun is the run of ids that ascend, of one commit.
func (s *Store) newRun(ids []byte) *run {
	r := &run{in: segment.AllIDs, ids: ids}
	for i := range r.len() {
		r.digest.Put(&s.setKey, segment.ReportID(r.at(i)))
	}
	return r
}

// put appends a run to those of a task.
func (r *run) put(tx *pgdb.Tx, task int64) error {
	sum := sha256.Sum256(r.ids)
	_, err := tx.Exec("put-run", task, r.in.Low[:], r.in.High[:], r.len(), r.ids, sum[:], r.digest[:])
	return err
}

// ascending is the encoding of distinct ids in order.
func ascending(ids []dap.ReportID) []byte {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b dap.ReportID) int { return bytes.Compare(a[:], b[:]) })
	sorted = slices.Compact(sorted)
	out := make([]byte, 0, len(sorted)*idSize)
	for _, id := range sorted {
		out = append(out, id[:]...)
	}
	return out
}

// meet says whether two lists of ids that ascend have one in common.
func meet(a, b []byte) bool {
	for len(a) > 0 && len(b) > 0 {
		switch bytes.Compare(a[:idSize], b[:idSize]) {
		case 0:
			return true
		case -1:
			a = a[idSize:]
		default:
			b = b[idSize:]
		}
	}
	return false
}

// Seen says which of the ids are already aggregated in the task; see [store.Leader].
func (s *Store) Seen(ctx context.Context, task dap.TaskID, ids []dap.ReportID) (seen []bool, err error) {
	err = s.view(ctx, "seen", func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, task)
		if err != nil {
			return err
		}
		rs, err := s.load(tx, t.row)
		if err != nil {
			return err
		}
		seen = make([]bool, len(ids))
		for i, id := range ids {
			seen[i] = rs.has(id)
		}
		return nil
	})
	return seen, err
}
