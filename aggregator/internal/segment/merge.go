package segment

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/starling-agg/starling/internal/disk"
)

// A Plan is a merge that is due: Runs become one run of each range of Into. Where that is
// one range and Cut is more than 1 they become Cut runs of about one size, which share
// the range among them.
type Plan struct {
	Runs []RunMeta
	Into []Range
	Cut  int
}

// Merge carries out a plan: it makes durable runs of the ids of several, reading each
// file with little memory. name is asked for the name of each new file. The caller names
// them and drops the rows of the others in one transaction, then calls [Runs.Replace] and
// [Remove]. No two runs of a plan may hold the same id.
func Merge(fsys disk.FS, name func() (string, error), key *SetKey, p *Plan, fp *disk.Failpoints) (out []RunMeta, err error) {
	if len(p.Runs) == 0 {
		return nil, errors.New("segment: nothing to merge")
	}
	var opened []*run
	defer func() {
		for _, r := range opened {
			r.file.Close() // read only
		}
		if err != nil {
			for _, m := range out {
				_ = Remove(fsys, m.Name) // what stays is swept at the next start
			}
			out, err = nil, fmt.Errorf("segment: merge runs: %w", err)
		}
	}()
	for _, meta := range p.Runs {
		r, err := openRun(fsys, meta)
		if err != nil {
			return nil, err
		}
		opened = append(opened, r)
	}
	parts, err := p.parts(opened)
	if err != nil {
		return nil, err
	}
	m, err := newMerger(opened, ReportID{})
	if err != nil {
		return nil, err
	}
	for i, part := range parts {
		if part.Count == 0 {
			continue
		}
		if part.Name, err = name(); err != nil {
			return out, err
		}
		if p.Cut > 1 && i > 0 {
			part.Range.Low = m.peek()
		}
		written, err := writeRun(fsys, part, key, fp, m.next)
		if err != nil {
			return out, err
		}
		if p.Cut > 1 && i < len(parts)-1 {
			written.Range.High = before(m.peek())
		}
		out = append(out, written)
	}
	if _, err := m.next(nil); !errors.Is(err, io.EOF) {
		return out, fmt.Errorf("internal error: ids are left over: %w", err)
	}
	return out, nil
}

// parts are the new runs of a plan, each with its range, which a cut narrows yet, and the
// count of its ids.
func (p *Plan) parts(runs []*run) ([]RunMeta, error) {
	var total int64
	for _, r := range runs {
		total += r.meta.Count
	}
	var parts []RunMeta
	if len(p.Into) == 1 {
		n := int64(max(p.Cut, 1))
		for i := range n {
			parts = append(parts, RunMeta{Range: p.Into[0], Count: total*(i+1)/n - total*i/n, Owned: runs[0].meta.Owned})
		}
		return parts, nil
	}
	for i, into := range p.Into {
		part := RunMeta{Range: into, Owned: runs[0].meta.Owned}
		for _, r := range runs {
			from, err := r.rank(into.Low)
			if err != nil {
				return nil, err
			}
			to := r.meta.Count
			if i < len(p.Into)-1 {
				if to, err = r.rank(p.Into[i+1].Low); err != nil {
					return nil, err
				}
			}
			part.Count += to - from
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// before is the greatest id that comes before id, which is not the least of all.
func before(id ReportID) ReportID {
	for i := idSize - 1; i >= 0; i-- {
		id[i]--
		if id[i] != 0xff {
			break
		}
	}
	return id
}

// merger yields the entries of several runs of one kind in ascending order; an id that two
// runs hold is an error.
type merger struct {
	heap []*cursor // by their next id
	last ReportID
	any  bool
}

// cursor is a place in a run that is not at its end.
type cursor struct {
	*run
	next  int    // block to read
	ids   []byte // entries that are left of the current block
	space []byte
}

// newMerger starts at the first id that is not before from.
func newMerger(runs []*run, from ReportID) (*merger, error) {
	m := new(merger)
	for _, r := range runs {
		c := &cursor{run: r, next: max(r.find(from), 0), space: make([]byte, blockSize)}
		if err := c.fill(); err != nil {
			return nil, err
		}
		c.ids = c.ids[c.rankIn(c.ids, from)*c.entry:]
		if err := c.fill(); err != nil {
			return nil, err
		}
		if len(c.ids) > 0 {
			m.heap = append(m.heap, c)
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.down(i)
	}
	return m, nil
}

// fill makes the next id available; c.ids stays empty at the end.
func (c *cursor) fill() error {
	if len(c.ids) > 0 || c.next == len(c.first) {
		return nil
	}
	var err error
	c.ids, err = c.block(c.next, c.space)
	c.next++
	return err
}

// down restores the order of the heap below i.
func (m *merger) down(i int) {
	for {
		least := i
		for _, child := range []int{2*i + 1, 2*i + 2} {
			if child < len(m.heap) && bytes.Compare(m.heap[child].ids[:idSize], m.heap[least].ids[:idSize]) < 0 {
				least = child
			}
		}
		if least == i {
			return
		}
		m.heap[i], m.heap[least] = m.heap[least], m.heap[i]
		i = least
	}
}

// peek is the next id, of a merger that is not at its end.
func (m *merger) peek() ReportID { return ReportID(m.heap[0].ids) }

// next appends the next entry to b, and returns io.EOF at the end.
func (m *merger) next(b []byte) ([]byte, error) {
	if len(m.heap) == 0 {
		return b, io.EOF
	}
	c := m.heap[0]
	id := ReportID(c.ids)
	b = append(b, c.ids[:c.entry]...)
	c.ids = c.ids[c.entry:]
	if err := c.fill(); err != nil {
		return b, err
	}
	if len(c.ids) == 0 {
		end := len(m.heap) - 1
		m.heap[0], m.heap = m.heap[end], m.heap[:end]
	}
	m.down(0)
	if m.any && compareIDs(id, m.last) <= 0 {
		return b, fmt.Errorf("%w: run %s is not sorted, or has an id that another has", ErrCorrupt, c.meta.Name)
	}
	m.any, m.last = true, id
	return b, nil
}
