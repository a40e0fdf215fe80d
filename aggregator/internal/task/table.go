package task

import (
	"cmp"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/starling-agg/starling/dap"
)

// A Head is what is known of every task at any time, whether it was opened or not. Times
// that are not known, or never come, are zero.
type Head struct {
	// Begin is when the task's first report can be of, and End when its last can have
	// come, without what clocks add: its calendar's grace is in it.
	Begin, End time.Time
}

// A Table has the tasks of a service: the head of each, and the working form of those that
// are open. Tasks come to it while requests are served: a reader finds all of a task or
// nothing. No head ever leaves it: what a task may still do the store says; a working form
// does, with [Table.Drop], and is made again when it is asked for. The zero value is empty.
// Safe for concurrent use.
type Table struct {
	// Open makes the working form of a task that was only noted, when it is first asked
	// for, and enters it with [Table.Put]. It is called for one task by one goroutine at a
	// time. Optional where no task is only noted.
	Open func(dap.TaskID) error

	m      sync.Map // of *slot by dap.TaskID
	n      atomic.Int64
	turn   atomic.Uint32 // see Table.Turn
	mu     sync.Mutex    // guards what follows: slices that are appended to, or replaced
	opened []*Task
	places []uint64 // of each, rising
	next   uint64   // place
}

// slot is the place of one task. The head is of seconds since 1970, for there may be
// hundreds of thousands; 0 is none.
type slot struct {
	begin, end int64
	opening    sync.Mutex
	task       atomic.Pointer[Task]
	used       atomic.Uint32 // the turn in which it was asked for last
}

func seconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func moment(s int64) time.Time {
	if s == 0 {
		return time.Time{}
	}
	return time.Unix(s, 0).UTC()
}

// Note enters a task that is opened when it is asked for. One that is there stays.
func (t *Table) Note(id dap.TaskID, h Head) {
	if _, there := t.m.LoadOrStore(id, &slot{begin: seconds(h.Begin), end: seconds(h.End)}); !there {
		t.n.Add(1)
	}
}

// Put enters a task, which nothing changes from then on, and says whether it is new, or was
// only noted: one that was opened stays.
func (t *Table) Put(w *Task) bool {
	h := w.Head()
	v, there := t.m.LoadOrStore(w.ID, &slot{begin: seconds(h.Begin), end: seconds(h.End)})
	if !there {
		t.n.Add(1)
	}
	if !v.(*slot).task.CompareAndSwap(nil, w) {
		return false
	}
	v.(*slot).used.Store(t.turn.Load())
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	t.opened, t.places = append(t.opened, w), append(t.places, t.next)
	return true
}

// Find is the task, opened if need be; nil where there is none. The error is that of the
// opening, which the next call tries again.
func (t *Table) Find(id dap.TaskID) (*Task, error) {
	v, ok := t.m.Load(id)
	if !ok {
		return nil, nil
	}
	s := v.(*slot)
	if turn := t.turn.Load(); s.used.Load() != turn {
		s.used.Store(turn)
	}
	if w := s.task.Load(); w != nil {
		return w, nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if w := s.task.Load(); w != nil {
		return w, nil
	}
	if err := t.Open(id); err != nil {
		return nil, err
	}
	return s.task.Load(), nil
}

// Get is [Table.Find] for those that can wait: nil also where the task cannot be opened
// now.
func (t *Table) Get(id dap.TaskID) *Task {
	w, _ := t.Find(id) // whoever opens it says why not
	return w
}

// Has says whether the task is there, opened or not.
func (t *Table) Has(id dap.TaskID) bool {
	_, ok := t.m.Load(id)
	return ok
}

// Peek is the task if it is open, without its counting as asked for; else nil.
func (t *Table) Peek(id dap.TaskID) *Task {
	v, ok := t.m.Load(id)
	if !ok {
		return nil
	}
	return v.(*slot).task.Load()
}

// Turn begins another turn, and lists the open tasks that nobody asked for in the one that
// ends, the longest unused first.
func (t *Table) Turn() (idle []dap.TaskID) {
	now := t.turn.Add(1) - 1
	used := make(map[dap.TaskID]uint32)
	for _, w := range t.Opened() {
		v, _ := t.m.Load(w.ID)
		if at := v.(*slot).used.Load(); at < now {
			used[w.ID] = at
			idle = append(idle, w.ID)
		}
	}
	slices.SortFunc(idle, func(a, b dap.TaskID) int { return cmp.Or(cmp.Compare(used[a], used[b]), compareIDs(a, b)) })
	return idle
}

// Drop gives up working forms, which are made again by what asks for them next; forget is
// called with each before that. A caller that has one may still use it.
func (t *Table) Drop(ids []dap.TaskID, forget func(*Task)) {
	gone := make(map[*Task]bool, len(ids))
	for _, id := range ids {
		v, ok := t.m.Load(id)
		if !ok {
			continue
		}
		s := v.(*slot)
		s.opening.Lock()
		if w := s.task.Swap(nil); w != nil {
			gone[w] = true
			forget(w)
		}
		s.opening.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	opened, places := make([]*Task, 0, len(t.opened)), make([]uint64, 0, len(t.opened))
	for i, w := range t.opened {
		if !gone[w] {
			opened, places = append(opened, w), append(places, t.places[i])
		}
	}
	t.opened, t.places = opened, places
}

// IsOpen says whether the task was opened.
func (t *Table) IsOpen(id dap.TaskID) bool {
	v, ok := t.m.Load(id)
	return ok && v.(*slot).task.Load() != nil
}

// Head is that of a task, and false where there is none.
func (t *Table) Head(id dap.TaskID) (Head, bool) {
	v, ok := t.m.Load(id)
	if !ok {
		return Head{}, false
	}
	return v.(*slot).head(), true
}

func (s *slot) head() Head { return Head{moment(s.begin), moment(s.end)} }

// Len is how many tasks there are.
func (t *Table) Len() int { return int(t.n.Load()) }

// Opened are the tasks that are open, in the order in which they were opened. The caller does
// not change the list.
func (t *Table) Opened() []*Task {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.opened[:len(t.opened):len(t.opened)]
}

// Since are the open tasks that were opened after a place, with the place of each.
func (t *Table) Since(place uint64) iter.Seq2[uint64, *Task] {
	t.mu.Lock()
	at, there := slices.BinarySearch(t.places, place)
	if there {
		at++
	}
	opened, places := t.opened[at:len(t.opened):len(t.opened)], t.places[at:]
	t.mu.Unlock()
	return func(yield func(uint64, *Task) bool) {
		for i, w := range opened {
			if !yield(places[i], w) {
				return
			}
		}
	}
}

// Heads ranges over all tasks, in no order. Those that come meanwhile may be among them.
func (t *Table) Heads() iter.Seq2[dap.TaskID, Head] {
	return func(yield func(dap.TaskID, Head) bool) {
		t.m.Range(func(id, s any) bool { return yield(id.(dap.TaskID), s.(*slot).head()) })
	}
}

// IDs are all tasks, in order.
func (t *Table) IDs() []dap.TaskID {
	ids := make([]dap.TaskID, 0, t.Len())
	for id := range t.Heads() {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}

func compareIDs(a, b dap.TaskID) int { return slices.Compare(a[:], b[:]) }
