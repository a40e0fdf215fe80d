package task

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/starling-agg/starling/dap"
)

// A Table has the tasks of a service. Tasks come to it while requests are served: a reader
// finds all of a task or nothing, and waits for nobody. None ever leaves it: what a task
// may still do the store says. The zero value is empty. Safe for concurrent use.
type Table struct {
	m sync.Map // of *Task by dap.TaskID
	n atomic.Int64
}

// Get is the task, or nil.
func (t *Table) Get(id dap.TaskID) *Task {
	if v, ok := t.m.Load(id); ok {
		return v.(*Task)
	}
	return nil
}

// Put enters a task, which nothing changes from then on, and says whether it is new: one
// that is there stays.
func (t *Table) Put(w *Task) bool {
	_, there := t.m.LoadOrStore(w.ID, w)
	if !there {
		t.n.Add(1)
	}
	return !there
}

// Len is how many tasks there are.
func (t *Table) Len() int { return int(t.n.Load()) }

// All ranges over the tasks, in no order. Those that come meanwhile may be among them.
func (t *Table) All() iter.Seq2[dap.TaskID, *Task] {
	return func(yield func(dap.TaskID, *Task) bool) {
		t.m.Range(func(id, w any) bool { return yield(id.(dap.TaskID), w.(*Task)) })
	}
}

// IDs are the tasks, in order.
func (t *Table) IDs() []dap.TaskID {
	ids := make([]dap.TaskID, 0, t.Len())
	for id := range t.All() {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b dap.TaskID) int { return slices.Compare(a[:], b[:]) })
	return ids
}
