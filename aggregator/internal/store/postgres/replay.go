package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/starling-agg/starling/aggregator/internal/segment"
	"github.com/starling-agg/starling/aggregator/internal/store"
	"github.com/starling-agg/starling/dap"
	"github.com/starling-agg/starling/internal/pgdb"
)

// runs are those of one name, by their rows. A row never changes, so what was read of it
// stays true as long as it is there. Nothing of it changes once another goroutine may have
// it.
type runs struct {
	heads map[int64]*head
	bad   map[int64]*damage // those that are not what was written
}

func newRuns() *runs { return &runs{heads: make(map[int64]*head), bad: make(map[int64]*damage)} }

func (rs *runs) size() (n int) {
	for _, h := range rs.heads {
		n += h.size()
	}
	return n
}

// A total is what runs come to.
type total struct {
	count  uint64
	digest segment.SetDigest
}

func (x *total) add(other total) {
	x.count += other.count
	x.digest.Add(other.digest)
}

// total is that of the whole ones.
func (rs *runs) total() (x total) {
	for _, h := range rs.heads {
		x.add(total{uint64(h.count), h.digest})
	}
	return x
}

// cacheBytes bounds what a handle keeps of runs in memory, of all but those in use.
const cacheBytes = 64 << 20

// A cache keeps what was read of the runs that were used recently, and all damage that was
// met, but for that of marks: nobody else has those, to mend them, and whoever puts the rows
// back is seen. The zero value is ready.
type cache struct {
	mu    sync.Mutex // guards what follows
	names map[runsName]*cached
	bytes int
	tick  uint64
}

type cached struct {
	*runs
	size int
	used uint64
}

// get returns runs, which the caller does not change.
func (c *cache) get(name runsName) *runs {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.names[name]; t != nil {
		return t.runs
	}
	return newRuns()
}

// put keeps runs, and forgets others that were not used for longest.
func (c *cache) put(name runsName, rs *runs) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		c.names = make(map[runsName]*cached)
	}
	if c.forget(name); name.marks && len(rs.bad) > 0 {
		return
	}
	c.tick++
	t := &cached{rs, rs.size(), c.tick}
	c.names[name] = t
	c.bytes += t.size
	for c.bytes > cacheBytes {
		var oldest *cached
		var id runsName
		for other, t := range c.names {
			if other != name && len(t.bad) == 0 && (oldest == nil || t.used < oldest.used) {
				oldest, id = t, other
			}
		}
		if oldest == nil {
			return
		}
		c.forget(id)
	}
}

func (c *cache) forget(name runsName) {
	if t := c.names[name]; t != nil {
		c.bytes -= t.size
		delete(c.names, name)
	}
}

func (c *cache) drop(name runsName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(name)
}

// dropTask drops all runs of a task.
func (c *cache) dropTask(task dap.TaskID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.names {
		if name.task == task {
			c.forget(name)
		}
	}
}

// errChanging: runs were merged between two statements.
var errChanging = errors.New("the runs change all the time")

// steady calls fn until no merge comes in between.
func steady(fn func() error) (err error) {
	for range 8 {
		if err = fn(); !errors.Is(err, errChanging) {
			return err
		}
	}
	return err
}

// load reads what a handle keeps of runs, as they are now. The memory spares
// the reading of rows, and not the list of them: rows are numbered when they are written
// and seen when they are committed, so that a new one may have a lower number than one that
// is known.
func (s *Store) load(tx *pgdb.Tx, of runsOf) (now *runs, err error) {
	known := s.cache.get(of.runsName)
	err = steady(func() error {
		now = newRuns()
		var missing []int64
		err := tx.Each(of.listed, of.key(), func(r pgdb.Row) error {
			var id int64
			if err := r.Scan(&id); err != nil {
				return err
			}
			if h := known.heads[id]; h != nil {
				now.heads[id] = h
			} else if d := known.bad[id]; d != nil {
				now.bad[id] = d
			} else {
				missing = append(missing, id)
			}
			return nil
		})
		if err != nil || len(missing) == 0 {
			return err
		}
		found := 0
		err = tx.Each(of.heads, of.key(missing), func(r pgdb.Row) error {
			found++
			return s.scan(now, r, of)
		})
		if err == nil && found < len(missing) {
			known, err = now, errChanging
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s.cache.put(of.runsName, now)
	return now, nil
}

// scan reads the head of a run.
func (s *Store) scan(rs *runs, r pgdb.Row, of runsOf) error {
	var id int64
	var pages, filter, digest, sum []byte
	h := new(head)
	if err := r.Scan(&id, &h.count, &pages, &filter, &h.veil, &digest, &sum); err != nil {
		return err
	}
	h.pages, h.filter, h.stored, h.sum = pages, filter, segment.SetDigest(digest), [32]byte(sum)
	h.digest = h.stored
	if h.own() {
		under, err := s.hidden(of)
		if err != nil {
			return err
		}
		if under == nil {
			return fmt.Errorf("task %v: %w", of.task, errNoSecret)
		}
		h.digest = under.cover(h.stored, h.veil)
	}
	if h.whole(of) {
		rs.heads[id] = h
	} else {
		rs.bad[id] = &damage{count: h.count, digest: h.digest, sum: h.sum, why: fmt.Sprintf("run %d is not what was written", id)}
	}
	return nil
}

// A place is a page of a run.
type place struct {
	row  int64
	page int
}

// pagesAtOnce is how many pages one statement reads.
const pagesAtOnce = 1024

// A form is what ids are in rows, with their hashes for filters.
type form struct {
	ids    []dap.ReportID
	hashes []*idHash
}

// A query is for ids, in the forms that rows may have them in.
type query struct {
	s     *Store
	under *hidden
	ids   []dap.ReportID
	forms [2]*form // as they are, and enciphered
}

func (s *Store) query(under *hidden, ids []dap.ReportID) *query {
	return &query{s: s, under: under, ids: ids}
}

// form makes a form when it is needed: most tasks have rows of one alone.
func (q *query) form(own bool) *form {
	at := 0
	if own {
		at = 1
	}
	if q.forms[at] == nil {
		f := &form{ids: q.ids, hashes: make([]*idHash, len(q.ids))}
		if own {
			f.ids = splitIDs(q.under.hide(joinIDs(q.ids)))
		}
		for i := range f.ids {
			f.hashes[i] = q.s.hashOf(f.ids[i][:])
		}
		q.forms[at] = f
	}
	return q.forms[at]
}

// look says which of the ids are there: aggregated, or marks that have a report. One that is
// in no whole run may be in a damaged one, which is [store.ErrDamaged] unless partial says
// that nobody minds.
func (s *Store) look(tx *pgdb.Tx, of runsOf, q *query, partial bool) (seen []bool, rs *runs, err error) {
	held, rs, err := s.held(tx, of, q)
	if err != nil {
		return nil, nil, err
	}
	seen = make([]bool, len(held))
	for i := range held {
		seen[i] = held[i] != nil
	}
	if len(rs.bad) > 0 && !partial && slices.Contains(seen, false) {
		return nil, nil, fmt.Errorf("%w: %s", store.ErrDamaged, rs.told().Why)
	}
	return seen, rs, nil
}

// held are the entries of ids, as they were put; nil for those that no whole run has.
func (s *Store) held(tx *pgdb.Tx, of runsOf, q *query) (held [][]byte, rs *runs, err error) {
	err = steady(func() error {
		if rs, err = s.load(tx, of); err != nil {
			return err
		}
		held = make([][]byte, len(q.ids))
		asked := make(map[place][]int) // of ids that may be there
		for row, h := range rs.heads {
			f := q.form(h.own())
			for i := range f.ids {
				if h.filter.has(f.hashes[i]) {
					if page := h.find(f.ids[i][:]); page >= 0 {
						at := place{row, page}
						asked[at] = append(asked[at], i)
					}
				}
			}
		}
		rs, err = s.readPages(tx, of, rs, asked, func(i int, own bool, page []byte) {
			if entry := of.inPage(page, q.form(own).ids[i][:]); entry != nil {
				if held[i] = slices.Clone(entry); own {
					held[i] = q.under.show(entry)
				}
			}
		})
		return err
	})
	return held, rs, err
}

// readPages reads pages, and calls fn for each id with the page that it was asked of. A
// page that is not what was written is damage of its run, which the runs that it returns
// have.
func (s *Store) readPages(tx *pgdb.Tx, of runsOf, rs *runs, asked map[place][]int, fn func(i int, own bool, page []byte)) (*runs, error) {
	places := make([]place, 0, len(asked))
	for at := range asked {
		places = append(places, at)
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Or(cmp.Compare(a.row, b.row), cmp.Compare(a.page, b.page)) })
	for some := range slices.Chunk(places, pagesAtOnce) {
		var rows, pages []int64
		for _, at := range some {
			rows, pages = append(rows, at.row), append(pages, int64(at.page))
		}
		found := 0
		err := tx.Each(of.pages, of.key(rows, pages), func(r pgdb.Row) error {
			var at place
			var page []byte
			if err := r.Scan(&at.row, &at.page, &page); err != nil {
				return err
			}
			found++
			switch h := rs.heads[at.row]; {
			case h == nil: // another page of it was damaged
			case !h.proves(of.kind, at.page, page):
				rs = s.spoil(of, rs, at.row)
			default:
				for _, i := range asked[at] {
					fn(i, h.own(), page)
				}
			}
			return nil
		})
		if err == nil && found < len(some) {
			err = errChanging
		}
		if err != nil {
			return nil, err
		}
	}
	return rs, nil
}

// spoil takes note of damage that shows only where ids are read, and returns the runs with
// it.
func (s *Store) spoil(of runsOf, rs *runs, row int64) *runs {
	noted := &runs{heads: maps.Clone(rs.heads), bad: maps.Clone(rs.bad)}
	h := noted.heads[row]
	delete(noted.heads, row)
	noted.bad[row] = &damage{count: h.count, digest: h.digest, sum: h.sum, why: fmt.Sprintf("ids of run %d are not what was written", row)}
	s.cache.put(of.runsName, noted)
	return noted
}

// Seen says which of the ids are already aggregated in the task; see [store.Leader].
func (s *Store) Seen(ctx context.Context, task dap.TaskID, ids []dap.ReportID) ([]bool, error) {
	return s.lookUp(ctx, "seen", task, ids, false)
}

// Aggregated is Seen without what is damaged; see [store.Replay].
func (s *Store) Aggregated(ctx context.Context, task dap.TaskID, ids []dap.ReportID) ([]bool, error) {
	return s.lookUp(ctx, "aggregated", task, ids, true)
}

func (s *Store) lookUp(ctx context.Context, name string, task dap.TaskID, ids []dap.ReportID, partial bool) (seen []bool, err error) {
	err = s.view(ctx, name, func(tx *pgdb.Tx) error {
		t, err := find(tx, reading, task)
		if err != nil {
			return err
		}
		if t.retired { // nothing is known any more
			seen = make([]bool, len(ids))
			return nil
		}
		of := idsOf(task).found(t)
		under, err := s.hidden(of)
		if err != nil {
			return err
		}
		seen, _, err = s.look(tx, of, s.query(under, ids), partial)
		return err
	})
	return seen, err
}
